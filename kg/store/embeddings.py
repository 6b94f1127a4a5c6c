"""Embeddings of nodes, keyed by node, text encoder and description, so that earlier node versions keep theirs.

What a text encoder reads of a turn may contain the turn before it (see ``kg.embedded_text``). Where that turn is
forgotten, or a late one comes between the two, ``drop_in_context`` removes the vector. The caches of text encoders,
however, still hold the vectors of turns in an earlier context; ``once_read_together`` gives their texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from locigraph.kg.counts import counted
from locigraph.kg.embedded_text import TURN_BEFORE, in_context, once_neighbours, reads_turn_before, turns_before
from locigraph.kg.errors import InvalidVectorError
from locigraph.kg.schema import EPISODE
from locigraph.kg.store import tables
from locigraph.kg.store.rows import node_of, turn_of
from locigraph.kg.store.statements import chunks, dialect_insert, rows_in
from locigraph.kg.times import epoch
from locigraph.kg.types import Node, NodeId, NodeStatus, SpaceId


@dataclass(frozen=True, slots=True)
class NodeText:
    """What a text encoder reads for a node, and the hash of its description, under which its vector is stored."""

    node_id: NodeId
    text: str
    text_hash: str


def put_rows(connection: Connection, model: str, rows: Sequence[tuple[int, str, NDArray[np.float32]]]) -> None:
    """Write (node key, text hash, vector) rows; an existing vector with the same node, model and hash is replaced.

    Raises:
        InvalidVectorError: If a vector is not finite, or has another dimension than the others of its model.
    """
    if not rows:
        return
    table = tables.embeddings
    dim = _dim(connection, model) or rows[0][2].size
    for key, _, vector in rows:
        if vector.shape != (dim,) or dim == 0 or not np.isfinite(vector).all():
            raise InvalidVectorError(
                f"embedding of node key {key} by {model!r} has shape {vector.shape} and "
                f"{int((~np.isfinite(vector)).sum())} NaN or infinite values; expected ({dim},) finite numbers; "
                "nothing was written"
            )
    statement = dialect_insert(connection, table)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=list(table.primary_key.columns), set_={"vector": statement.excluded.vector}
        ),
        [
            {"node_key": key, "model": model, "text_hash": digest, "vector": vector.astype("<f4").tobytes()}
            for key, digest, vector in rows
        ],
    )


def put(
    connection: Connection, space: SpaceId, model: str, texts: Sequence[NodeText], vectors: NDArray[np.float32]
) -> list[int]:
    """Write vectors for the texts of existing nodes; see ``Store.put_embeddings``. Returns the nodes' keys."""
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise InvalidVectorError(f"expected {counted(len(texts), 'row')} of vectors, got shape {vectors.shape}")
    table = tables.nodes
    query = select(table.c.id, table.c.key, table.c.type).where(table.c.space == space)
    nodes = {row.id: row for row in rows_in(connection, query, table.c.id, [text.node_id for text in texts])}
    keys = {node_id: int(node.key) for node_id, node in nodes.items()}
    as_read = _read_in_context(connection, space, model, nodes.values())
    rows = []
    for text, vector in zip(texts, vectors, strict=True):
        key = keys.get(text.node_id)
        if key is not None and as_read.get(key, text.text) == text.text:
            rows.append((key, text.text_hash, vector))
    put_rows(connection, model, rows)
    return [*dict.fromkeys(key for key, _, _ in rows)]


def lacking(
    connection: Connection,
    space: SpaceId,
    model: str,
    *,
    checks_vectors: bool,
    keys: Collection[int] | None = None,
) -> list[NodeText]:
    """Texts of nodes, and of their earlier versions, that this model has not embedded yet; see ``Store.unembedded``."""
    n, v, e = tables.nodes, tables.node_versions, tables.embeddings
    present = select(n.c.key, n.c.id, n.c.type, n.c.description, n.c.text_hash, e.c.vector).outerjoin(
        e, _present(model)
    )
    earlier = (
        select(n.c.key, n.c.id, n.c.type, v.c.description, v.c.text_hash, e.c.vector)
        .join(v, v.c.key == n.c.key)
        .outerjoin(e, _of_text(model, v.c.key, v.c.text_hash))
        .where(v.c.text_hash != n.c.text_hash)
    )
    parts = [query.where(n.c.space == space) for query in (present, earlier)]
    if not checks_vectors:
        # Reads no vectors, which takes a twentieth of the time.
        parts = [query.where(e.c.node_key.is_(None)) for query in parts]
    dim = _dim(connection, model) if checks_vectors else 0
    found: list[Any] = []
    for chunk in [None] if keys is None else chunks(sorted(keys)):
        some = parts if chunk is None else [query.where(n.c.key.in_(chunk)) for query in parts]
        found += connection.execute(sa.union_all(*some).order_by("key"))
    rows = [row for row in found if not _is_sound(row.vector, dim)]
    as_read = _read_in_context(connection, space, model, rows)
    texts = (NodeText(NodeId(row.id), as_read.get(row.key, row.description), row.text_hash) for row in rows)
    return list(dict.fromkeys(texts))  # several versions may have the same text


def _read_in_context(connection: Connection, space: SpaceId, model: str, nodes: Iterable[Any]) -> dict[int, str]:
    """What a model reads of the episodes among nodes together with the turns before them, if it does, by node key."""
    episodes = [int(node.key) for node in nodes if node.type == EPISODE]
    if not episodes or not reads_turn_before(model):
        return {}
    previous = episodes_before(connection, space, episodes)
    texts = descriptions_of(connection, {*episodes, *(previous[key] for key in episodes if key in previous)})
    words = {key: descriptions[0] for key, descriptions in texts.items()}
    return {key: in_context(words[key], words[previous[key]]) if key in previous else words[key] for key in episodes}


def episodes_before(connection: Connection, space: SpaceId, episodes: Iterable[int]) -> dict[int, int]:
    """For each episode in the sessions of the given ones, that of the turn before it, if there is one; by node key.

    A turn that was spoken later does not count, since it is unknown where this turn is the last one known.
    """
    n, p, t = tables.nodes, tables.provenance, tables.turns
    of_turn = p.c.turn_key == t.c.key, n.c.key == p.c.node_key, n.c.type == EPISODE
    # A join of the three tables, or an order, has SQLite read all nodes or all turns.
    episode = select(n.c.key).where(*of_turn).order_by(n.c.key).limit(1).scalar_subquery()
    query = select(
        t.c.session_id, t.c.position, t.c.key.label("turn_key"), episode.label("key"),
        sa.func.coalesce(t.c.spoken_at, 0).label("spoken_at"),
    ).where(t.c.space == space)  # fmt: skip
    of_episodes = select(t.c.session_id).join(p, p.c.turn_key == t.c.key)
    sessions = {row.session_id for row in rows_in(connection, of_episodes, p.c.node_key, episodes)}
    rows = sorted(rows_in(connection, query, t.c.session_id, sorted(sessions)), key=attrgetter("position", "turn_key"))
    places = turns_before([row.session_id for row in rows], [int(row.spoken_at) for row in rows])
    pairs = ((row.key, rows[place].key) for row, place in zip(rows, places, strict=True) if place is not None)
    return {key: before for key, before in pairs if key is not None and before is not None}


def followers(connection: Connection, space: SpaceId, episodes: AbstractSet[int]) -> list[int]:
    """Other episodes whose vectors may contain one of these, by node key: those of the turns after them."""
    pairs = episodes_before(connection, space, episodes).items() if episodes else ()
    return [key for key, before in pairs if before in episodes and key not in episodes]


def once_read_together(connection: Connection, space: SpaceId, doomed: AbstractSet[int]) -> set[str]:
    """What text encoders may ever have read of turns in context, if either of the two is doomed.

    These are the pairs of turns that are neighbours in their session, that were before turns between them arrived, and
    that are in snapshots of the past, which lack turns spoken later. So there are at most four for each turn of a
    session, and not one for each two turns. Not among them are the neighbours in a snapshot of the past that was read
    before a turn between them arrived, if that turn was spoken before one of the two.

    Args:
        connection: A connection within a transaction.
        space: The space.
        doomed: Keys of the turns to be forgotten.
    """
    sessions: dict[str, list[Any]] = {}
    table = tables.turns
    rows = connection.execute(select(table).where(table.c.space == space).order_by(table.c.position, table.c.key))
    for row in rows:
        sessions.setdefault(row.session_id, []).append(row)
    texts = set()
    for session in sessions.values():
        if doomed.isdisjoint(row.key for row in session):
            continue
        turns = [turn_of(row) for row in session]
        arrived, spoken = [row.key for row in session], [epoch(turn.recorded_at) for turn in turns]
        for pair in {*once_neighbours(arrived), *once_neighbours(spoken)}:
            if not doomed.isdisjoint(arrived[place] for place in pair):
                before, after = (turns[place].utterance for place in pair)
                texts.add(in_context(after, before))
    return texts


def descriptions_of(connection: Connection, keys: Iterable[int]) -> dict[int, list[str]]:
    """All descriptions that nodes have had, by node key; the present one first."""
    descriptions: dict[int, dict[str, None]] = {}
    for table in (tables.nodes, tables.node_versions):
        for row in rows_in(connection, select(table.c.key, table.c.description), table.c.key, sorted(set(keys))):
            descriptions.setdefault(row.key, {})[row.description] = None
    return {key: list(texts) for key, texts in descriptions.items()}


def drop_in_context(connection: Connection, keys: Sequence[int]) -> None:
    """Delete the vectors of text encoders that read turns together with the turns before them, of some episodes."""
    e = tables.embeddings.c
    for chunk in chunks(sorted(keys)):
        in_context_too = e.model.contains(TURN_BEFORE, autoescape=True)
        connection.execute(sa.delete(tables.embeddings).where(e.node_key.in_(chunk), in_context_too))


def faults(connection: Connection) -> Iterator[str]:
    """A line for each vector that is damaged."""
    n, e = tables.nodes, tables.embeddings
    dims = {model: _dim(connection, model) for model in connection.scalars(select(e.c.model).distinct())}
    for row in connection.execute(select(n.c.id, e.c.model, e.c.vector).join(e, e.c.node_key == n.c.key)):
        if not _is_sound(row.vector, dims[row.model]):
            yield (
                f"vector of node {row.id} by {row.model!r} is not {dims[row.model]} finite numbers, and locigraph "
                "build computes it again with that text encoder"
            )


def by_key(
    connection: Connection, space: SpaceId, keys: Sequence[int], model: str
) -> tuple[list[Node], list[int], NDArray[np.float32]]:
    """Nodes with the given integer keys and their current vectors; see ``Store.vectors_by_key``."""
    n, e = tables.nodes, tables.embeddings
    nodes, node_keys, vectors = [], [], []
    dim = _dim(connection, model)
    query = select(n, e.c.vector).outerjoin(e, _present(model)).where(n.c.space == space).order_by(n.c.key)
    for row in rows_in(connection, query, n.c.key, keys):
        if not _is_sound(row.vector, dim):
            if row.status == NodeStatus.ACTIVE:
                raise InvalidVectorError(
                    f"node {row.id!r} of space {space!r} has no valid vector of {model!r}; run locigraph "
                    "build with that text encoder"
                )
            continue
        nodes.append(node_of(space, row, ()))
        node_keys.append(int(row.key))
        vectors.append(np.frombuffer(row.vector, dtype="<f4"))
    matrix = np.stack(vectors).astype(np.float32) if vectors else np.zeros((0, 0), dtype=np.float32)
    return nodes, node_keys, matrix


def _dim(connection: Connection, model: str) -> int:
    """Dimension of a model's vectors: the most frequent of the newest nine, as some may be damaged; 0 if none."""
    table = tables.embeddings.c
    newest = select(func.length(table.vector)).where(table.model == model).order_by(table.node_key.desc()).limit(9)
    widths = Counter(size // 4 for size in connection.scalars(newest) if size and size % 4 == 0)
    return max(widths, key=widths.__getitem__, default=0)


def _is_sound(vector: bytes | None, dim: int) -> bool:
    return vector is not None and len(vector) == 4 * dim and bool(np.isfinite(np.frombuffer(vector, dtype="<f4")).all())


def _present(model: str) -> sa.ColumnElement[Any]:
    return _of_text(model, tables.nodes.c.key, tables.nodes.c.text_hash)


def _of_text(model: str, key: sa.Column[Any], text_hash: sa.Column[Any]) -> sa.ColumnElement[Any]:
    e = tables.embeddings.c
    return sa.and_(e.node_key == key, e.model == model, e.text_hash == text_hash)
