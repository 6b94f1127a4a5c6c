"""Bulk reading of a store into arrays.

To avoid one Python object per value, SQLite concatenates each column of numbers or vectors into one text, which NumPy
parses at once. (Arrow's SQLite driver also reads columns, but loads a second copy of SQLite into the process; when
that copy closes the file, POSIX drops every lock that the first one holds: https://www.sqlite.org/howtocorrupt.html,
section 2.2.1.) For other databases, rows are fetched as usual.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, text

from locigraph.kg.counts import counted
from locigraph.kg.errors import InvalidVectorError
from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.store import as_of as as_of_sql
from locigraph.kg.store.neighbourhood import Neighbourhood
from locigraph.kg.types import NodeId, NodeStatus, SpaceId, TurnId

Parameters = Mapping[str, str | int]
Numbers = NDArray[np.float64]

# Vectors are read as hexadecimal text, 8 characters per number; SQLite limits a text to 10^9 bytes.
_VECTORS_AT_ONCE = 20_000


@contextmanager
def consistent_read(engine: Engine) -> Iterator[Connection]:
    """A connection whose queries all see the same state of the database, whatever other writers commit meanwhile."""
    if engine.dialect.name != "sqlite":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        yield connection


def read_snapshot(
    connection: Connection, space: SpaceId, latest: int, model: str | None, part: Neighbourhood | None = None
) -> Snapshot:
    """The graph of a space as known at ``latest`` (seconds since 1970); see ``Store.snapshot``.

    ``connection`` must come from ``consistent_read``, and the space must exist. With ``model`` None no embeddings are
    read. With ``part``, only its nodes and turns are read, and what joins them.
    """
    parameters: Parameters = {"space": space, "t": latest}
    nodes_sql, edges_sql, turns_sql, pairs_sql = _queries(part)
    nodes = numbers(connection, nodes_sql, ("key", "created_at", "valid_from", "valid_to"), parameters)
    order = np.argsort(nodes["key"], kind="stable")
    keys = integers(nodes["key"][order])
    text_columns = ("id", "type", "label", "description", "status")
    words = texts(connection, nodes_sql + " ORDER BY n.key", text_columns, parameters)
    edges = numbers(connection, edges_sql, ("source", "target", "label", "weight"), parameters)
    edge_order = np.lexsort((edges["target"], edges["label"], edges["source"]))
    label_rows = integers(edges["label"][edge_order])
    labels, families = texts(connection, as_of_sql.LABELS, ("name", "family"), {}).values()
    turns = numbers(connection, turns_sql, ("key", "position", "spoken_at"), parameters)
    turn_order = np.lexsort((turns["key"], turns["position"]))
    turn_keys = integers(turns["key"][turn_order])
    turn_columns = ("turn_id", "speaker", "session_id")
    turn_words = texts(connection, turns_sql + " ORDER BY position, key", turn_columns, parameters)
    pairs = numbers(connection, pairs_sql, ("node_key", "turn_key"), parameters)
    node_rows = np.searchsorted(keys, integers(pairs["node_key"]))
    provenance = np.stack([node_rows, _rows_of(turn_keys, integers(pairs["turn_key"]))], axis=1)
    return Snapshot(
        space=space,
        keys=keys,
        ids=tuple(NodeId(node_id) for node_id in words["id"]),
        types=np.asarray(words["type"], dtype=np.str_),
        labels=words["label"],
        descriptions=words["description"],
        active=np.asarray(words["status"], dtype=np.str_) == NodeStatus.ACTIVE,
        recorded_at=integers(nodes["created_at"][order]),
        valid_from=integers(nodes["valid_from"][order]),
        valid_to=integers(nodes["valid_to"][order]),
        embeddings=_embeddings(connection, keys, space, latest, model, is_part=part is not None),
        source=np.searchsorted(keys, integers(edges["source"][edge_order])),
        target=np.searchsorted(keys, integers(edges["target"][edge_order])),
        relations=np.asarray(labels, dtype=np.str_)[label_rows],
        families=np.asarray(families, dtype=np.str_)[label_rows],
        weights=edges["weight"][edge_order].astype(np.float32),
        turn_ids=tuple(TurnId(turn_id) for turn_id in turn_words["turn_id"]),
        speakers=turn_words["speaker"],
        session_ids=turn_words["session_id"],
        spoken_at=integers(turns["spoken_at"][turn_order]),
        provenance=provenance[np.lexsort((provenance[:, 1], provenance[:, 0]))].astype(np.int64),
    )


def _queries(part: Neighbourhood | None) -> tuple[str, str, str, str]:
    """The queries for nodes, edges, turns and pairs of node and turn."""
    if part is None:
        return as_of_sql.nodes(), as_of_sql.edges(), as_of_sql.turns(), as_of_sql.provenance()
    among, nodes, turns = as_of_sql.among, part.nodes, part.turns
    return (
        as_of_sql.nodes(among(nodes, "n.key")),
        as_of_sql.edges(among(nodes, "r.source", "r.target")),
        as_of_sql.turns(among(turns, "key")),
        as_of_sql.provenance(f"{among(nodes, 'p.node_key')} AND {among(turns, 'p.turn_key')}"),
    )


def numbers(connection: Connection, query: str, columns: Sequence[str], parameters: Parameters) -> dict[str, Numbers]:
    """Numeric columns of a query as float64, with NaN for null; row order is arbitrary but the same in all columns.

    float64 is exact up to 2^53, and keys, seconds and positions are far below, so ``integers`` loses nothing.
    """
    if connection.dialect.name == "sqlite":
        joined = ", ".join(f"group_concat(COALESCE({column}, 'nan'))" for column in columns)
        row = connection.execute(text(f"SELECT {joined} FROM ({query})"), dict(parameters)).one()
        return {
            column: np.fromstring(value or "", dtype=np.float64, sep=",")
            for column, value in zip(columns, row, strict=True)
        }
    rows = connection.execute(text(f"SELECT {', '.join(columns)} FROM ({query}) AS q"), dict(parameters)).all()
    return {
        column: np.asarray([np.nan if row[i] is None else row[i] for row in rows], dtype=np.float64)
        for i, column in enumerate(columns)
    }


def integers(column: Numbers) -> NDArray[np.int64]:
    """The numbers as integers; NaN becomes ``NO_TIME``."""
    result = np.full(len(column), NO_TIME, dtype=np.int64)
    known = ~np.isnan(column)
    result[known] = column[known].astype(np.int64)
    return result


def texts(
    connection: Connection, query: str, columns: Sequence[str], parameters: Parameters
) -> dict[str, tuple[str, ...]]:
    """Text columns of a query, in the order of the query."""
    rows = connection.execute(text(query), dict(parameters)).all()
    return {column: tuple(getattr(row, column) for row in rows) for column in columns}


def _rows_of(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of each wanted key in ``keys``, which need not be sorted but must contain them all."""
    order = np.argsort(keys, kind="stable")
    return order[np.searchsorted(keys, wanted, sorter=order)] if len(keys) else np.zeros(0, dtype=np.int64)


def _embeddings(
    connection: Connection, keys: NDArray[np.int64], space: SpaceId, latest: int, model: str | None, *, is_part: bool
) -> NDArray[np.float32]:
    if model is None or not len(keys):
        return np.zeros((len(keys), 0), dtype=np.float32)
    parts = []
    for start in range(0, len(keys), _VECTORS_AT_ONCE):
        wanted = keys[start : start + _VECTORS_AT_ONCE]
        parameters: Parameters = {
            "space": space, "t": latest, "model": model, "low": int(wanted[0]), "high": int(wanted[-1]),
        }  # fmt: skip
        in_range = "n.space = :space AND n.key BETWEEN :low AND :high"
        of_these = as_of_sql.among(wanted.tolist(), "n.key") if is_part else in_range
        found, matrix = _vectors(connection, as_of_sql.vectors(of_these), parameters)
        if len(found) != len(wanted):
            raise InvalidVectorError(
                f"space {space!r}: {len(wanted) - len(found):,} of {counted(len(wanted), 'node')} have no embedding of "
                f"model {model!r}; run locigraph build with that text encoder"
            )
        parts.append(matrix[np.argsort(found, kind="stable")])
    return np.concatenate(parts)


def _vectors(
    connection: Connection, query: str, parameters: Parameters
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Node keys and their vectors [nodes, dim], in arbitrary order."""
    if connection.dialect.name == "sqlite":
        joined_up = (
            "SELECT group_concat(key), group_concat(hex(vector), ''), min(length(vector)), max(length(vector)) "
            f"FROM ({query})"
        )
        row = connection.execute(text(joined_up), dict(parameters)).one()
        keys = integers(np.fromstring(row[0] or "", dtype=np.float64, sep=","))
        joined, sizes = bytes.fromhex(row[1] or ""), {row[2] or 0, row[3] or 0}
    else:
        rows = connection.execute(text(query), dict(parameters)).all()
        keys = np.asarray([row.key for row in rows], dtype=np.int64)
        joined, sizes = b"".join(row.vector for row in rows), {len(row.vector) for row in rows} or {0}
    is_sound = len(sizes) == 1 and not min(sizes) % 4
    data = np.frombuffer(joined if is_sound else b"", dtype="<f4")
    if not is_sound or not np.isfinite(data).all():
        raise InvalidVectorError(
            f"space {parameters['space']!r}: vectors of model {parameters['model']!r} contain NaN or differ in length; "
            "run locigraph build with that text encoder to compute them again"
        )
    return keys, data.reshape(len(keys), min(sizes) // 4).astype(np.float32)
