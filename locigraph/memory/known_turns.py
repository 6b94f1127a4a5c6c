"""Keeps what filters ask of the nodes of spaces, and which nodes satisfied the last filters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from locigraph.kg.store import Store
from locigraph.kg.store.standing import Standing
from locigraph.kg.types import NodeId, Said, SpaceId
from locigraph.retrieval.conditions import Condition

_MOST_TURNS = 200_000
_MOST_FILTERS = 16
_NODES_A_FILTER = 1_000  # as which a filter that is kept counts: its values take as much room


_Nodes = Mapping[NodeId, tuple[str, tuple[Said, ...]]]


@dataclass(frozen=True)
class _Kept:
    """What is known of a space as it stood, and which of its nodes satisfied conditions, by their names."""

    standing: Standing
    nodes: _Nodes
    found: OrderedDict[str, tuple[Condition, frozenset[NodeId]]] = field(default_factory=OrderedDict)

    @property
    def size(self) -> int:
        """The room that it takes, in nodes."""
        return len(self.nodes) + min(_NODES_A_FILTER, len(self.nodes)) * max(0, len(self.found) - 1)


def _satisfying(nodes: _Nodes, condition: Condition) -> frozenset[NodeId]:
    return frozenset(node for node, (kind, said) in nodes.items() if all(condition(each, kind) for each in said))


class KnownTurns:
    """The nodes of the spaces that were last asked with a filter: turns, or all nodes; what changes is read again.

    Several threads may use it.

    Args:
        graph: The store.
        most: Largest number of nodes of all spaces together; a space that alone has more is not kept.
    """

    def __init__(self, graph: Store, *, most: int = _MOST_TURNS) -> None:
        self._graph, self._most = graph, most
        self._lock = Lock()
        self._kept: OrderedDict[tuple[SpaceId, str | None], _Kept] = OrderedDict()

    def satisfying(
        self,
        space: SpaceId,
        standing: Standing,
        condition: Condition,
        name: str,
        node_type: str | None,
    ) -> frozenset[NodeId]:
        """The nodes of a space of which all turns satisfy a condition.

        Args:
            space: The space.
            standing: How it stands.
            condition: The condition.
            name: What no other condition is called.
            node_type: The type of the nodes; None for all, of which more has to be read.
        """
        key = space, node_type
        with self._lock:
            kept = self._kept.get(key)
        if kept is None or kept.standing != standing:
            kept = self._read(space, standing, node_type, kept)
        with self._lock:
            self._kept.pop(key, None)
            if kept.size <= self._most:  # else it would put out all others, and itself
                self._kept[key] = kept
            while sum(each.size for each in self._kept.values()) > self._most:
                self._kept.popitem(last=False)
            _, found = kept.found.get(name, (condition, None))
        if found is None:
            found = _satisfying(kept.nodes, condition)
            with self._lock:
                kept.found[name] = condition, found
                if len(kept.found) > _MOST_FILTERS:
                    kept.found.popitem(last=False)
        return found

    def _read(self, space: SpaceId, standing: Standing, node_type: str | None, kept: _Kept | None) -> _Kept:
        """What is to be known of a space: all of it, or what has changed since it was read."""
        types = None if node_type is None else (node_type,)
        part = None if kept is None else self._graph.part_since(space, kept.standing.revision, types=types)
        if kept is None or part is None or len(part.nodes) > len(kept.nodes):
            return _Kept(standing, self._graph.said_in(space, node_type))
        changed = self._graph.said_in(space, node_type, keys=part.nodes)
        with self._lock:
            found = OrderedDict(kept.found)
        if not changed:
            return _Kept(standing, kept.nodes, found)
        for name, (condition, nodes) in found.items():
            found[name] = condition, nodes.difference(changed) | _satisfying(changed, condition)
        return _Kept(standing, {**kept.nodes, **changed}, found)

    def drop(self, spaces: Iterable[SpaceId]) -> None:
        """Keep nothing of these spaces any longer."""
        gone = {*spaces}
        with self._lock:
            for key in [key for key in self._kept if key[0] in gone]:
                del self._kept[key]
