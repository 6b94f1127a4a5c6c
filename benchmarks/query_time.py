"""Time of one query of v1 and of v2, with the same engine and index type, in one run.

``python -m benchmarks.query_time [--nodes 10000 100000]``: random unit vectors and words stand in for the graph of one
space among ten; query encoding is left out for both. v1 is BM25 + ANN over the description embeddings of all
searchable nodes + RRF; v2 is one ANN search over vectors of turns only, as a refresh writes them, of the width that a
checkpoint stores. With ``--all_nodes``, v2 is also measured over vectors of every searchable node, for comparison.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import records
from locigraph.kg.schema import EPISODE, searchable_types
from locigraph.kg.types import NodeId, SpaceId, TurnId
from locigraph.retrieval.index.bm25 import Bm25Index
from locigraph.retrieval.index.descriptions import index_type
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_collection import Collection, CollectionSpec, IndexRow
from locigraph.retrieval.protocols import SearchFilter
from locigraph.retrieval.rank_fusion import reciprocal_rank_fusion
from locigraph.training.checkpoint import hashed_features
from locigraph.training.config import ModelConfig

_VECTOR_DIM = sum(hashed_features(ModelConfig()).widths(384))
_SPACES = 10
_QUERIES = 40
_DEPTH = 50
_WORDS = 20_000
# Out of 20 searchable nodes, this many are turns, as in LoCoMo-10's recorded graph; the others are facts and events.
_TURNS_OF_20 = 11


def main() -> None:
    """Print a table of milliseconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000, 100_000], help="sizes of the space to try")
    parser.add_argument(
        "--widths", type=int, nargs="+", default=[_VECTOR_DIM, 768], help="widths of v2's vectors to try"
    )
    parser.add_argument("--all_nodes", action="store_true", help="also measure v2 over all searchable nodes")
    options = records.options_of(parser)
    rows: list[dict[str, Any]] = []
    print(f"{'nodes':>8} {'index':>6} {'what':<28}{'p50 ms':>9}{'p95 ms':>9}{'v2 / v1':>9}")
    for nodes in options.nodes:
        with tempfile.TemporaryDirectory() as folder:
            rows += _measured(nodes, options.widths, Path(folder), all_nodes=options.all_nodes)
    records.write(options, {"rows": rows})


def _measured(nodes: int, widths: Sequence[int], folder: Path, *, all_nodes: bool) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    kind = index_type(nodes)
    with MilvusIndex(str(folder / "index.db")) as index:
        v1_vectors = _filled(index, "v1", nodes, 384, rng)
        bm25: Bm25Index[str] = Bm25Index()
        for node in range(0, nodes, _SPACES):
            bm25.add(f"n{node}", [f"w{w}" for w in rng.zipf(1.3, 20) % _WORDS])
        searches: dict[str, Callable[[], object]] = {}
        queries = iter(rng.standard_normal((10_000, 384)).astype(np.float32))

        def v1() -> object:
            words = [f"w{w}" for w in rng.zipf(1.3, 6) % _WORDS]
            lexical: list[str] = [key for key, _ in bm25.search(words, top_k=_DEPTH)]
            found = v1_vectors.search(_unit(next(queries)), SearchFilter("t0", searchable_types()), top_k=_DEPTH)
            return reciprocal_rank_fusion([lexical, [str(match.node_id) for match in found]])

        searches["v1"] = v1
        for width in widths:
            for name, types in [("turns", (EPISODE,)), ("all nodes", searchable_types())][: 1 + all_nodes]:
                collection = _filled(index, f"v2_{width}_{len(types)}", nodes, width, rng, types=types)
                vectors = iter(rng.standard_normal((_QUERIES + 5, width)).astype(np.float32))
                searches[f"v2, {width} wide, {name}"] = _v2(collection, vectors)
        times = _interleaved(searches)
    base = float(np.median(times["v1"]))
    rows = []
    for name, values in times.items():
        p50, p95 = np.percentile(values, [50, 95])
        print(f"{nodes:>8} {kind:>6} {name:<28}{p50:>9.2f}{p95:>9.2f}{p50 / base:>9.2f}")
        rows.append({"nodes": nodes, "index": kind, "what": name, "p50_ms": float(p50), "p95_ms": float(p95)})
    return rows


def _v2(collection: Collection, vectors: Iterator[NDArray[np.float32]]) -> Callable[[], object]:
    def search() -> object:
        return collection.search(_unit(next(vectors)), SearchFilter("t0", (EPISODE,)), top_k=_DEPTH)

    return search


def _interleaved(searches: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Milliseconds by name; the searches take turns, so that a noisy neighbour disturbs all alike."""
    times: dict[str, list[float]] = {name: [] for name in searches}
    for round_ in range(_QUERIES + 5):
        for name, search in searches.items():
            started = time.perf_counter()
            search()
            if round_ >= 5:  # the first rounds load segments
                times[name].append(1e3 * (time.perf_counter() - started))
    return times


def _type_of(node: int) -> str:
    return EPISODE if node // _SPACES % 20 < _TURNS_OF_20 else "knowledge_node"


def _filled(
    index: MilvusIndex,
    name: str,
    nodes: int,
    width: int,
    rng: np.random.Generator,
    *,
    types: Sequence[str] | None = None,
) -> Collection:
    types = types or searchable_types()
    collection = index.create(name, CollectionSpec(width, "IP", "bench", "bench", index_type(nodes)))
    for start in range(0, nodes, 5_000):
        rows = [
            IndexRow(SpaceId(f"t{i % _SPACES}"), i, NodeId(f"n{i}"), _type_of(i), 0, (TurnId(f"D1:{i}"),))
            for i in range(start, min(nodes, start + 5_000))
            if _type_of(i) in types
        ]
        vectors = rng.standard_normal((len(rows), width)).astype(np.float32)
        collection.upsert(rows, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    collection.flush()
    return collection


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = vector / np.linalg.norm(vector)
    return unit


if __name__ == "__main__":
    main()
