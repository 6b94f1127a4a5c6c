"""Keeps what filters ask of the turns of spaces, and which turns satisfied the last filters."""

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
    turns: Mapping[NodeId, Said]
    found: OrderedDict[str, frozenset[NodeId]] = field(default_factory=OrderedDict)


class KnownTurns:
    """The turns of the spaces that were last asked with a filter, each space until it changes.

    Several threads may use it.

    Args:
        graph: The store.
        most: Largest number of turns of all spaces together; a space that alone has more is not kept.
    """

    def __init__(self, graph: Store, *, most: int = _MOST_TURNS) -> None:
        self._graph, self._most = graph, most
        self._lock = Lock()
        self._kept: OrderedDict[SpaceId, _Kept] = OrderedDict()

    def satisfying(
        self, space: SpaceId, standing: Standing | None, condition: Condition, name: str
    ) -> frozenset[NodeId]:
        """The nodes of the turns of a space that satisfy a condition.

        Args:
            space: The space.
            standing: How it stands.
            condition: The condition.
            name: What no other condition is called.
        """
        with self._lock:
            kept = self._kept.get(space)
        if kept is None or kept.standing != standing:
            kept = _Kept(standing, self._graph.said_in(space))
        with self._lock:
            self._kept[space] = kept
            self._kept.move_to_end(space)
            while self._kept and sum(len(each.turns) for each in self._kept.values()) > self._most:
                self._kept.popitem(last=False)
            found = kept.found.get(name)
        if found is None:
            found = frozenset(node for node, said in kept.turns.items() if condition(said, EPISODE))
            with self._lock:
                kept.found[name] = found
                if len(kept.found) > _MOST_FILTERS:
                    kept.found.popitem(last=False)
        return found

    def drop(self, spaces: Iterable[SpaceId]) -> None:
        """Keep nothing of these spaces any longer."""
        with self._lock:
            for space in spaces:
                self._kept.pop(space, None)
