"""A refresh of many spaces by one process and by several: wall time, and the memory of the process.

    make servers
    python -m benchmarks.large --store URL --index URI --nodes 1000000 --workers 1 2

The spaces are copies of those of the bundled corpus ``threads``, built by rules, with all their nodes, edges and
embeddings under other names and keys; whether copies are alike makes no difference to the work. The store must be a
PostgreSQL database of its own, which is empty or was filled by an earlier run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import sqlalchemy as sa
from tqdm import tqdm

from benchmarks import records
from locigraph.assembly import opening
from locigraph.assembly.settings import IndexSettings
from locigraph.kg.store import Store, tables
from locigraph.retrieval.index.graph_collections import GRAPH_COLLECTION

_LOCIGRAPH = [sys.executable, "-m", "locigraph"]
# Of each table: the columns that hold keys of nodes or turns.
_KEYS = {
    tables.turns: ("key",),
    tables.nodes: ("key",),
    tables.provenance: ("node_key", "turn_key"),
    tables.relations: ("source", "target"),
    tables.embeddings: ("node_key",),
}


def fill(url: str, nodes: int) -> dict[str, int]:
    """Copy all spaces until the store holds so many nodes; returns what it holds."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        held, first = count_of(connection, tables.nodes), count_of(connection, tables.nodes, is_original=True)
        highest = [
            connection.scalar(sa.select(sa.func.max(table.c.key)).where(_is_original(table)))
            for table in (tables.nodes, tables.turns)
        ]
    stride = 1 + max(key or 0 for key in highest)
    copies = range(held // first, -(-nodes // first))
    for number in tqdm(copies, desc="copy", unit="copy"):
        with engine.begin() as connection:
            _copy(connection, f"~{number}", number * stride)
    with engine.begin() as connection:
        connection.execute(sa.text("analyze"))
        return {table.name: count_of(connection, table) for table in (tables.spaces, *_KEYS)}


def count_of(connection: sa.Connection, table: sa.Table, *, is_original: bool = False) -> int:
    """Number of rows, of all spaces or of those alone that are no copies."""
    query = sa.select(sa.func.count()).select_from(table)
    return int(connection.scalar(query.where(_is_original(table)) if is_original else query) or 0)


def _is_original(table: sa.Table) -> sa.ColumnElement[bool]:
    return table.c.space.not_like("%~%")


def _copy(connection: sa.Connection, suffix: str, offset: int) -> None:
    """Copy the original spaces once, under names with a suffix and keys with an offset."""
    for table in (tables.spaces, *_KEYS):
        columns: list[Any] = []
        for column in table.c:
            if column.name == "space":
                columns.append(column + suffix)
            elif column.name in _KEYS.get(table, ()):
                columns.append(column + offset)
            else:
                columns.append(column)
        chosen = sa.select(*columns)
        if "space" in table.c:
            chosen = chosen.where(_is_original(table))
        else:
            own = sa.select(tables.nodes.c.key).where(_is_original(tables.nodes))
            chosen = chosen.where(table.c.node_key.in_(own))
        connection.execute(table.insert().from_select(list(table.c), chosen))


def refreshed(store: str, index: str, workers: int) -> dict[str, float]:
    """Refresh everything anew with so many workers: seconds of wall time, and peak memory of the largest process."""
    with Store(store) as graph, opening.vector_index(IndexSettings(uri=index), graph) as vectors:
        for name in vectors.owned(GRAPH_COLLECTION, graph.identity()):
            vectors.drop(name)
    command = [*_LOCIGRAPH, "refresh", "--store", store, "--index.uri", index, "--workers", str(workers)]
    begun = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    said, _ = child.communicate()
    wall = time.perf_counter() - begun
    if child.returncode:
        raise SystemExit(f"the refresh ended with code {child.returncode}")
    print(said.strip())
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall_s": round(wall, 1), "largest_process_mb": round(used.ru_maxrss / 2**10)}


def main() -> None:
    """Fill the store, refresh, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, help="URL of a PostgreSQL database of its own")
    parser.add_argument("--index", required=True, help="URI of a Milvus server")
    parser.add_argument("--nodes", type=int, default=1_000_000, help="number of nodes")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers of workers")
    args = records.options_of(parser)
    build = [*_LOCIGRAPH, "build", "--corpus.path", "threads", "--store", args.store, "--index.uri", args.index]
    with Store(args.store) as graph:
        is_empty = not graph.spaces()
    if is_empty:  # else a build would bring the copies of an earlier run up to date, one after another
        subprocess.run(build, check=True)
    held = fill(args.store, args.nodes)
    print(json.dumps(held))
    found = {str(workers): refreshed(args.store, args.index, workers) for workers in args.workers}
    for workers, each in found.items():
        ratio = each["wall_s"] / found[str(args.workers[0])]["wall_s"]
        print(f"{workers} worker(s): {each['wall_s']:.0f} s, {ratio:.2f} of the first; {each['largest_process_mb']} MB")
    records.write(args, {"rows": held, "refresh": found, "processors": os.cpu_count()})


if __name__ == "__main__":
    main()
