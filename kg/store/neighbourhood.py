"""Finds the part of a graph that changes of some nodes can reach, in time that depends on that part alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, select, text

from locigraph.kg.schema import EPISODE
from locigraph.kg.store import tables
from locigraph.kg.store.as_of import among
from locigraph.kg.store.statements import chunks
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
    for _ in range(_OPENING - 1):  # where turns came before these, the next ones do not open their session any more
        episodes |= graph.after(episodes)
    reached = graph.along_sessions(episodes, hops)
    if len(reached) > most:
        return None
    known = graph.along_sessions(reached, hops)
    nodes = {*_types(connection, space, known | graph.touching(known))}
    if len(nodes) > most:
        return None
    turns, sessions = set[int](), set[str]()
    of_nodes = (
        "SELECT t.key, t.session_id FROM turns t JOIN provenance p ON p.turn_key = t.key "
        "JOIN nodes n ON n.key = p.node_key WHERE n.type = :type AND "
    )
    for chunk in chunks(sorted(nodes)):
        for row in connection.execute(text(of_nodes + among(chunk, "n.key")), {"type": EPISODE}):
            turns.add(int(row.key))
            sessions.add(row.session_id)
    first = text(
        "SELECT key FROM turns WHERE space = :space AND session_id = :session ORDER BY position, key LIMIT :count"
    )
    for session in sorted(sessions):
        found = connection.scalars(first, {"space": space, "session": session, "count": _OPENING})
        turns.update(int(key) for key in found)
    reached &= nodes
    gone = sorted({*changed} - {*types})
    return Neighbourhood(tuple(sorted(reached)), tuple(sorted(nodes)), tuple(sorted(turns)), tuple(gone))


def _types(connection: Connection, space: SpaceId, keys: Iterable[int]) -> dict[int, str]:
    """Types of the nodes of a space that have these keys."""
    found: dict[int, str] = {}
    for chunk in chunks(sorted(keys)):
        query = text(f"SELECT key, type FROM nodes WHERE {among(chunk, 'key')} AND space = :space")
        found.update((int(row.key), row.type) for row in connection.execute(query, {"space": space}))
    return found


class _Edges:
    """The edges of some families."""

    def __init__(self, connection: Connection, families: Collection[str]) -> None:
        self._connection = connection
        labels = tables.relation_labels.c
        found = connection.execute(select(labels.name, labels.family).where(labels.family.in_(sorted(families)))).all()
        self._all = frozenset(row.name for row in found)
        self._next = frozenset(row.name for row in found if row.family == _NEXT)

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

    def after(self, keys: Iterable[int]) -> set[int]:
        """The turns right after some turns in their sessions."""
        found: set[int] = set()
        for chunk in chunks(sorted(keys)):
            query = text(f"SELECT target, label FROM relations WHERE {among(chunk, 'source')}")
            found.update(int(key) for key, label in self._connection.execute(query) if label in self._next)
        return found

    def _other_ends(self, keys: Iterable[int], labels: Collection[str]) -> set[int]:
        found: set[int] = set()
        for chunk in chunks(sorted(keys)):
            # Keys stand in the text of the query: binding hundreds of values takes longer than finding the rows.
            query = text(
                f"SELECT target, label FROM relations WHERE {among(chunk, 'source')} "
                f"UNION ALL SELECT source, label FROM relations WHERE {among(chunk, 'target')}"
            )
            found.update(int(key) for key, label in self._connection.execute(query) if label in labels)
        return found
