"""Keeps what answers show of nodes, so that a question reads nothing of a space that has not changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from threading import Lock

from locigraph.kg.joint import joint_name
from locigraph.kg.schema import dated_types
from locigraph.kg.store import Store
from locigraph.kg.store.standing import Standing
from locigraph.kg.types import NodeId, Replacement, Said, SpaceId, TurnId
from locigraph.retrieval.hit_filters import is_kept

_MOST_LETTERS = 50_000_000
_OVERHEAD = 400  # what a node takes beside its text


@dataclass(frozen=True, slots=True)
class KnownNode:
    """What answers show of a node, as it is now.

    Attributes:
        text: Its description; None if it is archived or gone.
        said: The turns whose words it contains; empty if it is gone.
        until: The day on which it ceased to be valid, or was replaced; None while it holds, and if that is not known.
        replaced: What has replaced it, or most of it, in the order in which that was learnt.
    """

    text: str | None
    said: tuple[Said, ...] = ()
    until: date | None = None
    replaced: tuple[Replacement, ...] = ()

    def within(self, space: SpaceId) -> KnownNode:
        """The same, with IDs of nodes as they are where several spaces are searched as one (see ``kg.joint``)."""
        named = (replace(each, nodes=tuple(joint_name(space, node) for node in each.nodes)) for each in self.replaced)
        return replace(self, replaced=tuple(named)) if self.replaced else self

    def without_expired(self, now: datetime) -> KnownNode:
        """The same as if what has expired until a time had replaced nothing, as after it is erased."""
        held = tuple(by for by in self.replaced if is_kept(by.said, now))
        if len(held) == len(self.replaced):
            return self
        return replace(self, replaced=held, until=held[0].day if held else None)

    @property
    def speakers(self) -> frozenset[str]:
        """Those whose words it contains; empty if it is gone."""
        return frozenset(each.speaker for each in self.said)

    @property
    def spoken_at(self) -> datetime | None:
        """When the last of these words were spoken; None if that is not known."""
        return max((each.spoken_at for each in self.said if each.spoken_at is not None), default=None)


def _letters(node: KnownNode) -> int:
    return _OVERHEAD + len(node.text or "")


@dataclass(frozen=True)
class _Kept:
    """What is kept of a space. It does not change, so that several threads may read it.

    Attributes:
        standing: How the space stood; None if nothing is kept.
        nodes: The nodes by their IDs.
        saying: IDs of these nodes by each turn whose words they contain.
        letters: Their size.
    """

    standing: Standing | None = None
    nodes: Mapping[NodeId, KnownNode] = field(default_factory=dict)
    saying: Mapping[TurnId, frozenset[NodeId]] = field(default_factory=dict)
    letters: int = 0

    def with_more(self, nodes: Mapping[NodeId, KnownNode]) -> _Kept:
        """The same with nodes that were not kept."""
        saying = dict(self.saying)
        for name, node in nodes.items():
            for said in node.said:
                saying[said.turn_id] = saying.get(said.turn_id, frozenset()) | {name}
        letters = self.letters + sum(map(_letters, nodes.values()))
        return _Kept(self.standing, {**self.nodes, **nodes}, saying, letters)

    def without(self, nodes: Iterable[NodeId], turns: Iterable[TurnId]) -> _Kept:
        """The same without some nodes, and without those that contain words of some turns."""
        gone = {*nodes}.union(*(self.saying.get(turn, ()) for turn in turns)) & self.nodes.keys()
        if not gone:
            return self
        left, saying = dict(self.nodes), dict(self.saying)
        for name in gone:
            for turn in {said.turn_id for said in left.pop(name).said}:
                saying[turn] -= {name}
                if not saying[turn]:
                    del saying[turn]
        letters = self.letters - sum(_letters(self.nodes[name]) for name in gone)
        return _Kept(self.standing, left, saying, letters)


class KnownNodes:
    """The nodes that questions have found, each kept until it changes; those used last, if there are many.

    Several threads may use it.

    Args:
        graph: The store.
        most: Largest number of letters of all nodes together, of which each counts 400 for the rest of it; a space that
            alone has more is not kept.
    """

    def __init__(self, graph: Store, *, most: int = _MOST_LETTERS) -> None:
        self._graph, self._most = graph, most
        self._lock = Lock()
        self._kept: OrderedDict[SpaceId, _Kept] = OrderedDict()

    def of(self, space: SpaceId, standing: Standing | None, ids: Sequence[NodeId]) -> Mapping[NodeId, KnownNode]:
        """Nodes of a space that stands as given: at least those with these IDs."""
        with self._lock:
            kept = self._kept.get(space, _Kept())
        if kept.standing != standing:
            kept = replace(self._unchanged(space, kept), standing=standing)
        missing = [node for node in ids if node not in kept.nodes]
        if missing:
            kept = kept.with_more(self._read(space, missing))
        with self._lock:
            self._kept[space] = kept
            self._kept.move_to_end(space)
            held = sum(each.letters for each in self._kept.values()) if missing else 0
            while held > self._most:
                _, dropped = self._kept.popitem(last=False)
                held -= dropped.letters
        return kept.nodes

    def drop(self, spaces: Iterable[SpaceId]) -> None:
        """Keep nothing of these spaces any longer."""
        with self._lock:
            for space in spaces:
                self._kept.pop(space, None)

    def _unchanged(self, space: SpaceId, kept: _Kept) -> _Kept:
        """The kept nodes that are as they were when the space stood as it did then."""
        if kept.standing is None or not kept.nodes:
            return _Kept()
        changed = self._graph.names_since(space, kept.standing.revision)
        return _Kept() if changed is None else kept.without(*changed)

    def _read(self, space: SpaceId, ids: Sequence[NodeId]) -> dict[NodeId, KnownNode]:
        with self._graph.reading():
            origins, replaced = self._graph.origins_of(space, ids), self._graph.replacements_of(space, ids)
            nodes = self._graph.nodes(space, ids=ids)
        found = {node: KnownNode(None, origins.get(node, ())) for node in ids}
        for node in nodes:
            by = replaced.get(node.id, ())
            if node.type in dated_types():  # their valid time is their date
                until = by[0].day if by else None
            elif any(each.day is None for each in by):  # its valid time ends with that of a turn without one
                until = min((each.day for each in by if each.day is not None), default=None)
            else:
                until = None if node.valid_to is None else node.valid_to.date()
            found[node.id] = KnownNode(node.description, origins.get(node.id, ()), until, by)
        return found
