"""Finds the part of a graph that changes of some nodes can reach, in time that depends on that part alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, select

from locigraph.kg.schema import EPISODE
from locigraph.kg.store import tables
from locigraph.kg.store.statements import rows_in
from locigraph.kg.types import SpaceId

_NEXT = "NEXT"  # family of the edges between a turn and the one after it in its session
_OPENING = 2  # the first turns of a session, which are known by their place


@dataclass(frozen=True)
class Neighbourhood:
    """A part of a space's graph, by keys.

    Attributes:
        episodes: Nodes of the turns that changes can reach.
        nodes: These, the nodes that can reach them, and what is needed to know the traits of the latter.
        turns: The turns of all episodes among ``nodes``, and the first turns of their sessions.
        gone: Changed nodes that are no longer there.
    """

    episodes: tuple[int, ...]
    nodes: tuple[int, ...]
    turns: tuple[int, ...]
    gone: tuple[int, ...]


def around(
    connection: Connection, space: SpaceId, changed: Collection[int], *, families: Collection[str], hops: int, most: int
) -> Neighbourhood | None:
    """The neighbourhood of changed nodes.

    Args:
        connection: A connection that sees one state of the database.
        space: The space.
        changed: Keys of the changed nodes.
        families: Families of the edges along which a turn takes in a neighbour.
        hops: Number of turns before and after a turn that are its neighbours.
        most: Number of nodes above which to give up, since reading the whole space costs no more.

    Returns:
        The neighbourhood; None if it has more than ``most`` nodes.
    """
    graph = _Edges(connection, families)
    types = _types(connection, space, changed)
    episodes = {key for key, kind in types.items() if kind == EPISODE}
    near = graph.touching({*types} - episodes)
    episodes |= {key for key, kind in _types(connection, space, near).items() if kind == EPISODE}
    reached = graph.along_sessions(episodes, hops)
    if len(reached) > most:
        return None
    known = graph.along_sessions(reached, hops)
    nodes = {*_types(connection, space, known | graph.touching(known))}
    if len(nodes) > most:
        return None
    n, p, t = tables.nodes.c, tables.provenance.c, tables.turns.c
    query = (
        select(t.key, t.session_id)
        .join(tables.provenance, p.turn_key == t.key)
        .join(tables.nodes, n.key == p.node_key)
        .where(n.type == EPISODE)
    )
    rows = list(rows_in(connection, query, n.key, nodes))
    turns = {int(row.key) for row in rows}
    for session in {row.session_id for row in rows}:
        first = select(t.key).where(t.space == space, t.session_id == session).order_by(t.position, t.key)
        turns.update(int(key) for key in connection.scalars(first.limit(_OPENING)))
    reached &= nodes
    gone = sorted({*changed} - {*types})
    return Neighbourhood(tuple(sorted(reached)), tuple(sorted(nodes)), tuple(sorted(turns)), tuple(gone))


def _types(connection: Connection, space: SpaceId, keys: Iterable[int]) -> dict[int, str]:
    n = tables.nodes.c
    query = select(n.key, n.type).where(n.space == space)
    return {int(row.key): row.type for row in rows_in(connection, query, n.key, sorted(keys))}


class _Edges:
    """The edges of some families."""

    def __init__(self, connection: Connection, families: Collection[str]) -> None:
        self._connection = connection
        labels = tables.relation_labels.c
        found = connection.execute(select(labels.name, labels.family).where(labels.family.in_(sorted(families)))).all()
        self._all = [row.name for row in found]
        self._next = [row.name for row in found if row.family == _NEXT]

    def touching(self, keys: Iterable[int]) -> set[int]:
        """The other ends of all edges at some nodes."""
        return self._other_ends(keys, self._all)

    def along_sessions(self, keys: Iterable[int], hops: int) -> set[int]:
        """Some turns, and those up to so many turns before and after them in their sessions."""
        found = {*keys}
        last = found
        for _ in range(hops):
            last = self._other_ends(last, self._next) - found
            if not last:
                break
            found = found | last
        return found

    def _other_ends(self, keys: Iterable[int], labels: list[str]) -> set[int]:
        r = tables.relations.c
        found: set[int] = set()
        for end, other in ((r.source, r.target), (r.target, r.source)):
            query = select(other.label("key")).where(r.label.in_(labels))
            found.update(int(row.key) for row in rows_in(self._connection, query, end, sorted(keys)))
        return found
