"""Keeps what filters ask of the nodes of spaces, and which nodes satisfied the last filters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from locigraph.kg.schema import EPISODE
from locigraph.kg.store import Store
from locigraph.kg.store.standing import Standing
from locigraph.kg.types import NodeId, Said, SpaceId
from locigraph.retrieval.conditions import Condition

_MOST_TURNS = 200_000
_MOST_FILTERS = 16


@dataclass
class _Kept:
    standing: Standing | None
    last: int
    nodes: Mapping[NodeId, tuple[str, tuple[Said, ...]]]
    found: OrderedDict[str, frozenset[NodeId]] = field(default_factory=OrderedDict)


class KnownTurns:
    """The nodes of the spaces that were last asked with a filter, each space until it changes: turns, or all nodes.

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
        standing: Standing | None,
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
            # A turn never changes, so of turns only new ones are read; what is gone since is found by no search.
            known = kept if kept is not None and node_type == EPISODE else None
            last = self._graph.last_node_key(space)
            newer = self._graph.said_in(space, node_type, after=0 if known is None else known.last)
            kept = _Kept(standing, last, newer if known is None else {**known.nodes, **newer})
        with self._lock:
            self._kept[key] = kept
            self._kept.move_to_end(key)
            while self._kept and sum(len(each.nodes) for each in self._kept.values()) > self._most:
                self._kept.popitem(last=False)
            found = kept.found.get(name)
        if found is None:
            found = frozenset(
                node for node, (kind, said) in kept.nodes.items() if all(condition(each, kind) for each in said)
            )
            with self._lock:
                kept.found[name] = found
                if len(kept.found) > _MOST_FILTERS:
                    kept.found.popitem(last=False)
        return found

    def drop(self, spaces: Iterable[SpaceId]) -> None:
        """Keep nothing of these spaces any longer."""
        gone = {*spaces}
        with self._lock:
            for key in [key for key in self._kept if key[0] in gone]:
                del self._kept[key]
