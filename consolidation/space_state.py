"""What the pipeline knows of a space while it consolidates it, so that the store need not be asked at every turn."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from locigraph.consolidation.blueprint import ContextNode
from locigraph.consolidation.protocols import TextEncoder
from locigraph.consolidation.resolution import Resolver
from locigraph.kg.schema import EPISODE, MERGED_INTO, NAMED_TYPES, RELATION_LABELS, RelationLabel, plannable_types
from locigraph.kg.store import Store
from locigraph.kg.types import Node, NodeId, NodeStatus, SpaceId, Turn, TurnId

_MOST_LABELS = 12
#: Label of the edge from a node to the one that holds in its place.
SUPERSEDED_BY = "SUPERSEDED_BY"
#: The temporary id of the turn's own node; its colon keeps it apart from those of a plan.
EPISODE_REF = "turn:episode"


class SpaceState:
    """Turns and episodes of a space, its entities and concepts, and the nodes that architects planned.

    Attributes:
        space: The space.
        turns: All turns of the space, in conversation order.
        index: Place of each turn among them.
        speakers: Names of the speakers, in the order in which they first speak.
        episodes: Id of each consolidated turn's episode.
        planned: What an architect is shown of each node of a plannable type.
        coined: Relation labels that turns of the space have coined, by name; of many the first.
        resolver: Finds the entity or concept that a mention means.
        revision: The store's number of the last change that is taken in.
    """

    def __init__(self, store: Store, space: SpaceId, encoder: TextEncoder) -> None:
        self._store = store
        self.space = space
        self.turns: list[Turn] = []
        self.index: dict[TurnId, int] = {}
        # Sessions may overlap in time, and then their turns alternate.
        self._sessions: dict[str, list[Turn]] = {}
        self._place: dict[TurnId, int] = {}
        self.speakers: tuple[str, ...] = ()
        self.revision = store.revision(space)  # before anything is read: a change from here on makes this out of date
        self.extend(store.turns(space))
        self.episodes: dict[TurnId, NodeId] = {}
        self.planned: dict[NodeId, ContextNode] = {}
        self._planned_by: dict[TurnId, dict[NodeId, None]] = {}
        self._archived: set[NodeId] = set()
        self.coined: tuple[RelationLabel, ...] = ()
        labels = store.used_labels(space)
        self.learn_labels(labels)
        self._superseded_at: dict[NodeId, datetime] = {}
        # (position of the first source turn, order of making, id), sorted.
        self._events: list[tuple[int, int, NodeId]] = []
        for node in store.nodes(space, types=[EPISODE, *plannable_types()], include_archived=True):
            self._learn_statement(node)
        for edge in store.relations(space) if SUPERSEDED_BY in labels else ():
            if edge.label == SUPERSEDED_BY:
                self.supersede(edge.source, store.node(space, edge.target).created_at)
        named = store.nodes(space, types=NAMED_TYPES, include_archived=True)
        active = [node for node in named if node.status == NodeStatus.ACTIVE]
        self.resolver = Resolver(active, encoder.encode([node.description for node in active]))
        into = {node.id: NodeId(str(node.attributes[MERGED_INTO])) for node in named if MERGED_INTO in node.attributes}
        for node in named:
            meant = node.id
            while meant in into:  # what it was merged into may have been merged itself
                meant = into[meant]
            if meant != node.id:
                self.resolver.alias(node.type, node.label, meant)

    def extend(self, turns: Iterable[Turn]) -> None:
        """Take in turns that come after all others, in the order of the conversation."""
        for turn in turns:
            self.index[turn.turn_id] = len(self.turns)
            self.turns.append(turn)
            session = self._sessions.setdefault(turn.session_id, [])
            self._place[turn.turn_id] = len(session)
            session.append(turn)
        self.speakers = tuple(dict.fromkeys(turn.speaker for turn in self.turns))

    def learn(self, nodes: Sequence[Node], vectors: NDArray[np.float32]) -> None:
        """Take in the nodes that a committed turn made or changed.

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
            self.episodes.update(dict.fromkeys(node.provenance, node.id))
            return
        if node.type == "event_node" and node.id not in self.planned:
            first = min(self.index[turn_id] for turn_id in node.provenance)
            insort(self._events, (first, len(self._events), node.id))
        for turn_id in node.provenance:
            self._planned_by.setdefault(turn_id, {})[node.id] = None
        first_day = None if node.valid_from is None else node.valid_from.date()
        self.planned[node.id] = ContextNode(
            node.id, node.type, node.description, node.attributes, first_day, self._superseded_at.get(node.id)
        )
        if node.status == NodeStatus.ARCHIVED:
            self._archived.add(node.id)

    def supersede(self, node_id: NodeId, time: datetime) -> None:
        """Take in that something else holds in the place of a node, as was known first at a time."""
        first = min(time, self._superseded_at.get(node_id, time))
        self._superseded_at[node_id] = first
        self.planned[node_id] = replace(self.planned[node_id], superseded_at=first)

    def learn_labels(self, names: AbstractSet[str]) -> None:
        """Take in the labels of committed edges."""
        if new := names - RELATION_LABELS.keys() - {label.name for label in self.coined}:
            held = self._store.relation_labels(self.space)
            found = sorted([*self.coined, *(held[name] for name in new)], key=attrgetter("name"))
            self.coined = tuple(found[:_MOST_LABELS])

    def add_source(self, turn_id: TurnId, node_ids: Iterable[NodeId]) -> None:
        """Take in that a committed turn is one more source of nodes."""
        known = {node_id: None for node_id in node_ids if node_id in self.planned}
        self._planned_by.setdefault(turn_id, {}).update(known)

    def planned_by(self, turns: Sequence[Turn]) -> list[ContextNode]:
        """The nodes that some turns planned or said again, and that nobody has archived."""
        ids = dict.fromkeys(node_id for turn in turns for node_id in self._planned_by.get(turn.turn_id, ()))
        return [self.planned[node_id] for node_id in ids if node_id not in self._archived]

    def event_before(self, turn: Turn) -> NodeId | None:
        """The last event that an earlier turn told of; a retried turn comes after later ones are done."""
        found = bisect_left(self._events, (self.index[turn.turn_id],))
        return self._events[found - 1][2] if found else None

    def events_after(self, turn: Turn) -> list[NodeId]:
        """The first events that later turns told of, of a turn that is tried again; none of one in its order."""
        later = self._events[bisect_left(self._events, (self.index[turn.turn_id] + 1,)) :]
        return [node_id for place, _, node_id in later if place == later[0][0]]

    def recent(self, turn: Turn, count: int) -> tuple[Turn, ...]:
        """The turns before this one in its session, oldest first."""
        here = self._place[turn.turn_id]
        return tuple(self._sessions[turn.session_id][max(0, here - count) : here])

    def beside(self, turn: Turn, step: int) -> NodeId | None:
        """Episode of the turn before (-1) or after (+1) in the session; None when there is none yet."""
        session, other = self._sessions[turn.session_id], self._place[turn.turn_id] + step
        return self.episodes.get(session[other].turn_id) if 0 <= other < len(session) else None

    def known_since(self, *refs: str) -> list[datetime]:
        """When nodes became known; a ref of a node that is not in the graph yet has no time."""
        nodes = [self._store.node(self.space, NodeId(ref)) for ref in refs if ref in self.planned]
        return [node.created_at for node in nodes]

    def is_open_at(self, node_id: NodeId, time: datetime) -> bool:
        """Whether a node's valid time goes on beyond a time; what ended earlier must keep its end."""
        valid_to = self._store.node(self.space, node_id).valid_to
        return valid_to is None or valid_to > time
