"""In-memory state of a space during consolidation, so that the pipeline need not query the store at every turn."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from locigraph.consolidation.blueprint import ContextNode
from locigraph.consolidation.resolution import Resolver, merged_nodes
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.schema import (
    EPISODE,
    MERGED_INTO,
    NAMED_TYPES,
    RELATION_LABELS,
    SUPERSEDED_BY,
    RelationLabel,
    dated_types,
    plannable_types,
)
from locigraph.kg.store import Store
from locigraph.kg.types import Node, NodeId, NodeStatus, SpaceId, Turn, TurnId

_MOST_LABELS = 12
#: Temporary id of the turn's episode node; its colon distinguishes it from the refs of a plan.
EPISODE_REF = "turn:episode"


class SpaceState:
    """Turns and episodes of a space, its entities and concepts, and the nodes that architects planned.

    Attributes:
        space: The space.
        turns: All turns of the space, in conversation order.
        index: Index of each turn in ``turns``.
        speakers: Names of the speakers, in the order in which they first speak.
        episodes: Id of the episode node of each turn that has one.
        planned: The nodes of plannable types, as an architect is shown them.
        coined: Relation labels that turns of the space have coined, sorted by name, at most twelve.
        resolver: Finds the entity or concept to which a mention refers.
        revision: Revision number of the space in the store that this state reflects.
    """

    def __init__(self, store: Store, space: SpaceId, encoder: TextEncoder) -> None:
        self._store = store
        self.space = space
        self.episodes: dict[TurnId, NodeId] = {}
        self.revision = store.revision(space)  # read first, so that any later change makes this state out of date
        self.turns: list[Turn] = []
        self.index: dict[TurnId, int] = {}
        # Sessions may overlap in time, so their turns can be interleaved in ``turns``.
        self._sessions: dict[str, list[Turn]] = {}
        self._place: dict[TurnId, int] = {}
        self._done: dict[str, list[int]] = {}  # in each session those of the turns with an episode, ascending
        self._last_done = -1  # index of the last of all these turns
        self.speakers: tuple[str, ...] = ()
        self.extend(store.turns(space))
        self.planned: dict[NodeId, ContextNode] = {}
        self._planned_by: dict[TurnId, dict[NodeId, None]] = {}
        self._sources: dict[NodeId, list[TurnId]] = {}  # of planned nodes
        self._archived: set[NodeId] = set()
        self.coined: tuple[RelationLabel, ...] = ()
        labels = store.used_labels(space)
        self.learn_labels(labels)
        self._superseded_at: dict[NodeId, datetime] = {}
        # (index of the first source turn, order of creation, id), sorted.
        self._events: list[tuple[int, int, NodeId]] = []
        for node in store.nodes(space, types=[EPISODE, *plannable_types()], include_archived=True):
            self._learn_statement(node)
        for edge in store.relations(space) if SUPERSEDED_BY in labels else ():
            if edge.label == SUPERSEDED_BY:
                self.supersede(edge.source, edge.target)
        named = store.nodes(space, types=NAMED_TYPES, include_archived=True)
        active = [node for node in named if node.status == NodeStatus.ACTIVE]
        self.resolver = Resolver(active, encoder.encode([node.description for node in active]))
        meant = merged_nodes(named)
        for node in named:
            if node.id in meant:
                self.resolver.alias(node.type, node.label, meant[node.id])

    def takes_in(self, turns: Sequence[Turn], revision: int) -> bool:
        """Whether this is the state of the space, once late turns have been put between the others.

        Args:
            turns: The pending turns, in order, with the positions that the store has given them.
            revision: Present revision number of the space.
        """
        if revision == self.revision:
            return True
        new = [turn for turn in turns if turn.turn_id not in self.index]
        part = self._store.part_since(self.space, self.revision) if new else None
        if part is None or part.nodes:  # other changes than late turns
            return False
        if new[-1].position >= len(self.turns) + len(new):  # places of an earlier version, with gaps
            return False
        self._insert(new)
        self.revision = revision
        return True

    def _insert(self, new: Sequence[Turn]) -> None:
        """Put turns of which no node is known between the others, where their positions are, which ascend."""
        events = [(self.turns[first].turn_id, number, node_id) for first, number, node_id in self._events]
        last_done = self.turns[self._last_done].turn_id if self._last_done >= 0 else None
        for turn in new:
            self.turns.insert(turn.position, turn)
        begin = new[0].position
        self.index.update((turn.turn_id, i) for i, turn in enumerate(self.turns[begin:], begin))
        for session_id in {turn.session_id for turn in new}:
            known = self._sessions.get(session_id, [])
            done = [known[i].turn_id for i in self._done.get(session_id, ())]
            turns = sorted(
                [*known, *(turn for turn in new if turn.session_id == session_id)],
                key=lambda turn: self.index[turn.turn_id],
            )
            self._sessions[session_id] = turns
            self._place.update((turn.turn_id, i) for i, turn in enumerate(turns))
            self._done[session_id] = [self._place[turn_id] for turn_id in done]
        self._last_done = -1 if last_done is None else self.index[last_done]
        self._events = [(self.index[turn_id], number, node_id) for turn_id, number, node_id in events]
        self.speakers = tuple(dict.fromkeys(turn.speaker for turn in self.turns))

    def extend(self, turns: Iterable[Turn]) -> None:
        """Append turns that come after all others, in conversation order; those that are known are skipped."""
        speakers = dict.fromkeys(self.speakers)
        for turn in turns:
            if turn.turn_id in self.index:
                continue
            speakers[turn.speaker] = None
            self.index[turn.turn_id] = len(self.turns)
            self.turns.append(turn)
            session = self._sessions.setdefault(turn.session_id, [])
            self._place[turn.turn_id] = len(session)
            session.append(turn)
        self.speakers = tuple(speakers)

    def learn(self, nodes: Sequence[Node], vectors: NDArray[np.float32]) -> None:
        """Add the nodes that a committed turn created or changed.

        Args:
            nodes: The nodes as they are now.
            vectors: Their embeddings, float32 [nodes, dim].
        """
        for node, vector in zip(nodes, vectors, strict=True):
            if MERGED_INTO in node.attributes:
                self.resolver.alias(node.type, node.label, NodeId(str(node.attributes[MERGED_INTO])))
            elif node.type in NAMED_TYPES:
                self.resolver.learn(node.id, node.type, node.label, vector)
            else:
                self._learn_statement(node)

    def _learn_statement(self, node: Node) -> None:
        if node.type == EPISODE:
            for turn_id in node.provenance:
                self.episodes[turn_id] = node.id
                self._note_episode_of(turn_id)
            return
        if node.type == "event_node" and node.id not in self.planned:
            first = min(self.index[turn_id] for turn_id in node.provenance)
            insort(self._events, (first, len(self._events), node.id))
        for turn_id in node.provenance:
            self._planned_by.setdefault(turn_id, {})[node.id] = None
        self._sources[node.id] = [*node.provenance]
        first_day = None if node.valid_from is None else node.valid_from.date()
        self.planned[node.id] = ContextNode(
            node.id, node.type, node.description, node.attributes, first_day, self._superseded_at.get(node.id),
            node.created_at,
        )  # fmt: skip
        if node.status == NodeStatus.ARCHIVED:
            self._archived.add(node.id)

    def _note_episode_of(self, turn_id: TurnId) -> None:
        self._last_done = max(self._last_done, self.index[turn_id])
        done = self._done.setdefault(self.turns[self.index[turn_id]].session_id, [])
        place = self._place[turn_id]
        if bisect_left(done, place) == bisect_right(done, place):
            insort(done, place)

    def supersede(self, node_id: NodeId, successor: NodeId) -> None:
        """Record that another node replaces this one since both were known; the earliest such time is kept."""
        known = (self.planned[each].known_at for each in (node_id, successor))
        time = max(each for each in known if each is not None)
        first = min(time, self._superseded_at.get(node_id, time))
        self._superseded_at[node_id] = first
        self.planned[node_id] = replace(self.planned[node_id], superseded_at=first)

    def learn_labels(self, names: AbstractSet[str]) -> None:
        """Add the coined labels among those of committed edges."""
        if new := names - RELATION_LABELS.keys() - {label.name for label in self.coined}:
            labels = self._store.relation_labels(self.space)
            coined = sorted([*self.coined, *(labels[name] for name in new)], key=attrgetter("name"))
            self.coined = tuple(coined[:_MOST_LABELS])

    def add_source(self, turn_id: TurnId, node_ids: Iterable[NodeId]) -> None:
        """Record that a committed turn is a further source of nodes."""
        known = {node_id: None for node_id in node_ids if node_id in self.planned}
        self._planned_by.setdefault(turn_id, {}).update(known)
        for node_id in known:
            self._sources[node_id].append(turn_id)

    def planned_by(self, turns: Sequence[Turn]) -> list[ContextNode]:
        """The nodes that the given turns created or repeated, without archived ones."""
        ids = dict.fromkeys(node_id for turn in turns for node_id in self._planned_by.get(turn.turn_id, ()))
        return [self.planned[node_id] for node_id in ids if node_id not in self._archived]

    def of_later_turns(self, turn: Turn, node_ids: Iterable[NodeId]) -> list[ContextNode]:
        """Those of some planned nodes that turns after this one created or repeated, in the order of these."""
        here = self.index[turn.turn_id]
        if self._last_done <= here:
            return []
        places = {node_id: [self.index[each] for each in self._sources[node_id]] for node_id in node_ids}
        later = sorted(
            (min(place for place in of_node if place > here), node_id)
            for node_id, of_node in places.items()
            if max(of_node) > here
        )
        return [self.planned[node_id] for _, node_id in later]

    def is_of_later_turns(self, node_id: NodeId, turn: Turn) -> bool:
        """Whether only turns after this one say what a planned node does."""
        here = self.index[turn.turn_id]
        return self._last_done > here and all(self.index[each] > here for each in self._sources[node_id])

    def event_before(self, turn: Turn) -> NodeId | None:
        """The last event of any earlier turn, even if later turns were consolidated before this one."""
        place = bisect_left(self._events, (self.index[turn.turn_id],))
        return self._events[place - 1][2] if place else None

    def events_after(self, turn: Turn) -> list[NodeId]:
        """The events of the first later turn that has any; there are some only for a late or retried turn."""
        start = bisect_left(self._events, (self.index[turn.turn_id] + 1,))
        end = bisect_left(self._events, (self._events[start][0] + 1,)) if start < len(self._events) else start
        return [node_id for *_, node_id in self._events[start:end]]

    def recent(self, turn: Turn, count: int) -> tuple[Turn, ...]:
        """Up to ``count`` turns just before this one in its session, oldest first."""
        here = self._place[turn.turn_id]
        return tuple(self._sessions[turn.session_id][max(0, here - count) : here])

    def beside(self, turn: Turn, step: int) -> NodeId | None:
        """Episode of the nearest turn before (-1) or after (+1) in the session that has one; None if none has."""
        place, done = self._place[turn.turn_id], self._done.get(turn.session_id, [])
        found = bisect_left(done, place) - 1 if step < 0 else bisect_right(done, place)
        return self.episodes[self._sessions[turn.session_id][done[found]].turn_id] if 0 <= found < len(done) else None

    def known_since(self, *refs: str) -> list[datetime]:
        """When the given nodes became known; refs of nodes that are not in the graph yet are left out."""
        nodes = [self._store.node(self.space, NodeId(ref)) for ref in refs if ref in self.planned]
        return [node.created_at for node in nodes]

    def end_if_superseded(self, node_id: NodeId, time: datetime) -> datetime | None:
        """The end of a node's valid time if it is superseded at a time; None if its valid time stays as it is.

        The valid time of an event is its date, which stays. A fact that ended earlier keeps its end, and one that was
        to begin later ends when it begins.
        """
        node = self._store.node(self.space, node_id)
        if node.type in dated_types() or (node.valid_to is not None and node.valid_to <= time):
            return None
        return max(time, node.valid_from or time)
