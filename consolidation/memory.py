"""What the pipeline knows of a space while it works, so that the store need not be asked at every turn."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from datetime import datetime

from locigraph.consolidation.protocols import TextEncoder
from locigraph.consolidation.resolution import Resolver
from locigraph.kg.store import Store
from locigraph.kg.types import (
    NewNode,
    NodeId,
    SpaceId,
    Turn,
    TurnId,
)

#: The temporary id of the turn's own node; its colon keeps it apart from those of a plan.
EPISODE_REF = "turn:episode"
_EPISODE = "episode"


class SpaceMemory:
    """What the pipeline knows of a space while it works: episodes by turn, entities and concepts, the last event."""

    def __init__(self, store: Store, space: SpaceId, turns: Iterable[Turn], encoder: TextEncoder) -> None:
        self._store = store
        self._space = space
        self.turns = tuple(turns)
        self.index = {turn.turn_id: i for i, turn in enumerate(self.turns)}
        self.speakers = tuple(dict.fromkeys(turn.speaker for turn in self.turns))
        self.episodes: dict[TurnId, NodeId] = {
            turn_id: node.id
            for node in store.nodes(space, types=[_EPISODE], include_archived=True)
            for turn_id in node.provenance
        }
        named = store.nodes(space, types=["entity", "concept"])
        vectors = encoder.encode([node.description for node in named])
        self.resolver = Resolver(named, vectors)
        # (position of the first source turn, order of making, id), sorted.
        self._events: list[tuple[int, int, NodeId]] = []
        for event in store.nodes(space, types=["event_node"], include_archived=True):
            self._learn_event(event.id, event.provenance)

    def _learn_event(self, node_id: NodeId, turn_ids: Iterable[TurnId]) -> None:
        insort(self._events, (min(self.index[turn_id] for turn_id in turn_ids), len(self._events), node_id))

    def event_before(self, turn: Turn) -> NodeId | None:
        """The last event that an earlier turn told of; a retried turn comes after later ones are done."""
        found = bisect_left(self._events, (self.index[turn.turn_id],))
        return self._events[found - 1][2] if found else None

    def recent(self, turn: Turn, count: int) -> tuple[Turn, ...]:
        """The turns before this one in its session, oldest first."""
        here = self.index[turn.turn_id]
        return tuple(t for t in self.turns[max(0, here - count) : here] if t.session_id == turn.session_id)

    def beside(self, turn: Turn, step: int) -> NodeId | None:
        """Episode of the turn before (-1) or after (+1) in the session; None when there is none yet."""
        other = self.index[turn.turn_id] + step
        if not 0 <= other < len(self.turns) or self.turns[other].session_id != turn.session_id:
            return None
        return self.episodes.get(self.turns[other].turn_id)

    def is_open_at(self, node_id: NodeId, time: datetime) -> bool:
        """Whether a node's valid time goes on beyond a time; what ended earlier must keep its end."""
        valid_to = self._store.node(self._space, node_id).valid_to
        return valid_to is None or valid_to > time

    def learn(self, turn: Turn, nodes: Iterable[NewNode], ids: Mapping[str, NodeId]) -> None:
        """Take in what a committed turn made."""
        self.episodes[turn.turn_id] = ids[EPISODE_REF]
        for node in nodes:
            if node.type in ("entity", "concept"):
                assert node.embedding is not None
                self.resolver.learn(ids[node.ref], node.type, node.label, node.embedding)
            elif node.type == "event_node":
                self._learn_event(ids[node.ref], node.provenance)
