"""One turn after another into the graph, each in one transaction.

Per turn: context -> architect -> check -> scribe -> check -> dates -> entities and concepts -> embed -> commit.
The turn itself was written before. A failure leaves it pending or failed with its reason, and loses nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from consolidation.blueprint import (
    AddNode,
    AddRelation,
    ArchiveNode,
    Blueprint,
    Mention,
    SupersedeNode,
    Topic,
    UpdateNode,
    Wording,
    check_blueprint,
    check_wording,
)
from consolidation.dating import dated, day_end, day_start, days_of
from consolidation.errors import ConsolidationError
from consolidation.protocols import Context, ContextSource, Extractor, TextEncoder
from consolidation.resolution import Resolver, concept_key, concept_label, entity_key, full_name
from kg.store import Store
from kg.types import (
    GraphChange,
    NewNode,
    NewRelation,
    Node,
    NodeId,
    NodeStatus,
    NodeUpdate,
    SpaceId,
    Turn,
    TurnId,
    TurnState,
)

_Made = TypeVar("_Made")

_EPISODE = "episode"
# The temporary id of the turn's own node; its colon keeps it apart from those of a plan.
_EPISODE_REF = "turn:episode"
_CONTEXT_NODES = 12
_RECENT_TURNS = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run over a space did."""

    done: int
    failed: int


def claim_space(store: Store, space: SpaceId, extractor: Extractor) -> None:
    """Make a space this extractor's, before its first turn is consolidated.

    Raises:
        ConsolidationError: If another one has built it.
    """
    name = f"extractor/{space}"
    held = store.setting(name)
    if held is not None and held != extractor.name:
        raise ConsolidationError(
            f"space {space!r} was built by {held!r}, not {extractor.name!r}; two extractors must not build one graph: "
            "use another store"
        )
    if held is None:
        store.require_space(space)
        store.set_setting(name, extractor.name)


class Consolidator:
    """The pipeline.

    Args:
        store: Where turns and graph are.
        extractor: Architect and scribe.
        encoder: Embeds descriptions.
        context: Finds what a turn may change.
    """

    def __init__(self, store: Store, extractor: Extractor, encoder: TextEncoder, context: ContextSource) -> None:
        self._store = store
        self._extractor = extractor
        self._encoder = encoder
        self._context = context

    def run(self, space: SpaceId, *, on_turn: Callable[[], None] = lambda: None) -> Outcome:
        """Consolidate every pending turn of a space; what is done already is passed over.

        Args:
            space: The tenant.
            on_turn: Called after each turn, for a progress bar.

        Raises:
            ConsolidationError: If another extractor built what is there.
        """
        claim_space(self._store, space, self._extractor)
        turns = self._store.turns(space)
        pending = {turn.turn_id for turn in self._store.turns(space, state=TurnState.PENDING)}
        if not pending:
            return Outcome(0, 0)
        memory = _SpaceMemory(self._store, space, turns, self._encoder)
        failed = 0
        for turn in turns:
            if turn.turn_id not in pending:
                continue
            try:
                self._consolidate(turn, memory)
            except ConsolidationError as error:
                self._store.fail_turn(space, turn.turn_id, str(error))
                failed += 1
            on_turn()
        return Outcome(len(pending) - failed, failed)

    def _consolidate(self, turn: Turn, memory: _SpaceMemory) -> None:
        context = Context(tuple(self._context.find(turn, limit=_CONTEXT_NODES)), memory.recent(turn, _RECENT_TURNS))
        plan, wording = self._plan_and_write(turn, context, memory)
        change = _ChangeBuilder(turn, plan, wording, memory).build()
        texts = [node.description for node in change.nodes]
        vectors = self._encoder.encode(texts)
        nodes = tuple(replace(n, embedding=v) for n, v in zip(change.nodes, vectors, strict=True))
        change, nodes, vectors = _merge_topics(change, nodes, vectors, memory)
        updates = change.updates
        rewritten = [u for u in updates if u.description is not None]
        if rewritten:
            fresh = self._encoder.encode([u.description or "" for u in rewritten])
            by_id = {u.id: replace(u, embedding=v) for u, v in zip(rewritten, fresh, strict=True)}
            updates = tuple(by_id.get(u.id, u) for u in updates)
        ids = self._store.commit(replace(change, nodes=nodes, updates=updates, embedding_model=self._encoder.model_id))
        memory.learn(turn, nodes, ids)
        made = [_as_node(turn, n, ids[n.ref]) for n in nodes]
        amended = [u for u in updates if u.description is not None or u.status is not None]
        if amended:
            # What is archived has no use for a vector; the row only keeps nodes and vectors side by side.
            rows = [np.zeros_like(vectors[0]) if u.embedding is None else u.embedding for u in amended]
            made += [self._store.node(turn.space, u.id) for u in amended]
            vectors = np.concatenate([vectors, np.stack(rows)])
        self._context.observe(turn.space, made, vectors)

    def _plan_and_write(
        self, turn: Turn, context: Context, memory: _SpaceMemory
    ) -> tuple[Blueprint, Mapping[str, Wording]]:
        labels = list(self._store.relation_labels())

        def plan_once(complaint: str | None) -> Blueprint:
            plan = self._extractor.plan(turn, context, complaint=complaint)
            check_blueprint(plan, turn_id=turn.turn_id, turns=memory.index, shown=context.nodes, labels=labels)
            return plan

        plan = _with_one_repair(plan_once)

        def write_once(complaint: str | None) -> Mapping[str, Wording]:
            wording = self._extractor.write(turn, plan, context, complaint=complaint)
            check_wording(plan, wording)
            return wording

        return plan, _with_one_repair(write_once)


def _with_one_repair(attempt: Callable[[str | None], _Made]) -> _Made:
    try:
        return attempt(None)
    except ConsolidationError as error:
        return attempt(str(error))


class _SpaceMemory:
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
        self.episodes[turn.turn_id] = ids[_EPISODE_REF]
        for node in nodes:
            if node.type in ("entity", "concept"):
                assert node.embedding is not None
                self.resolver.learn(ids[node.ref], node.type, node.label, node.embedding)
            elif node.type == "event_node":
                self._learn_event(ids[node.ref], node.provenance)


class _ChangeBuilder:
    """A checked plan and its words, as a change of the store."""

    def __init__(self, turn: Turn, plan: Blueprint, wording: Mapping[str, Wording], memory: _SpaceMemory) -> None:
        self._turn = turn
        self._plan = plan
        self._wording = wording
        self._memory = memory
        self._nodes: list[NewNode] = []
        self._updates: dict[NodeId, NodeUpdate] = {}
        self._relations: list[NewRelation] = []

    def build(self) -> GraphChange:
        turn = self._turn
        self._nodes.append(
            NewNode(
                _EPISODE_REF, _EPISODE, f"{turn.speaker} {turn.turn_id}", turn.utterance, (turn.turn_id,),
                valid_from=turn.spoken_at, valid_to=turn.spoken_at, attributes={"speaker": turn.speaker},
            )
        )  # fmt: skip
        for step in (-1, 1):
            neighbour = self._memory.beside(turn, step)
            if neighbour is not None:
                ends = (neighbour, _EPISODE_REF) if step < 0 else (_EPISODE_REF, neighbour)
                self._relations.append(NewRelation(ends[0], "NEXT", ends[1]))
        for operation in self._plan.operations:
            if isinstance(operation, AddNode):
                self._add(operation)
            elif isinstance(operation, AddRelation):
                self._relations.append(NewRelation(operation.source, operation.label, operation.target))
            elif isinstance(operation, UpdateNode):
                self._update(operation)
            elif isinstance(operation, ArchiveNode):
                self._amend(NodeUpdate(operation.id, status=NodeStatus.ARCHIVED))
            elif isinstance(operation, SupersedeNode):
                if self._memory.is_open_at(operation.id, turn.recorded_at):
                    self._amend(NodeUpdate(operation.id, valid_to=turn.recorded_at))
                self._relations.append(NewRelation(operation.id, "SUPERSEDED_BY", operation.successor))
        made = [op for op in self._plan.operations if isinstance(op, AddNode)]
        for mention in self._plan.mentions:
            self._mention(mention, made)
        for topic in self._plan.topics:
            self._topic(topic, made)
        return GraphChange(
            turn.space, turn.recorded_at, turn.turn_id, tuple(self._nodes), tuple(self._updates.values()),
            tuple(self._relations),
        )  # fmt: skip

    def _add(self, operation: AddNode) -> None:
        turn, words = self._turn, self._wording[operation.ref]
        days = days_of(words.description, turn, operation.days)
        description = dated(words.description, days)
        valid_from, valid_to = turn.spoken_at, None
        if days is not None:
            valid_from, valid_to = day_start(days[0]), day_end(days[1])
        if operation.type == "knowledge_node":
            valid_to = None  # a fact that began on a day goes on
        self._nodes.append(
            NewNode(
                operation.ref, operation.type, words.label, description, operation.turn_ids, valid_from, valid_to,
                operation.attributes,
            )
        )  # fmt: skip
        for turn_id in operation.turn_ids:
            episode = _EPISODE_REF if turn_id == turn.turn_id else self._memory.episodes.get(turn_id)
            if episode is not None:
                self._relations.append(NewRelation(operation.ref, "DERIVED_FROM", episode))
        earlier = self._memory.event_before(turn) if operation.type == "event_node" else None
        if earlier is not None:
            self._relations.append(NewRelation(earlier, "PRECEDES", operation.ref))

    def _update(self, operation: UpdateNode) -> None:
        words, turn = self._wording.get(operation.id), self._turn
        label = description = None
        if words is not None:
            label, description = words.label, dated(words.description, days_of(words.description, turn, None))
        self._amend(NodeUpdate(operation.id, label, description, add_provenance=(turn.turn_id,)))
        self._relations.append(NewRelation(operation.id, "DERIVED_FROM", _EPISODE_REF))

    def _amend(self, update: NodeUpdate) -> None:
        held = self._updates.get(update.id)
        if held is not None:
            given = {
                name: getattr(update, name)
                for name in ("label", "description", "status", "valid_to")
                if getattr(update, name) is not None
            }
            sources = tuple(dict.fromkeys(held.add_provenance + update.add_provenance))
            update = replace(held, **given, add_provenance=sources)
        self._updates[update.id] = update

    def _mention(self, mention: Mention, made: list[AddNode]) -> None:
        name = full_name(mention.name, self._memory.speakers)
        target: str | None = self._memory.resolver.entity(name, self._memory.speakers)
        if target is None:
            same = [n.ref for n in self._nodes if n.type == "entity" and entity_key(n.label) == entity_key(name)]
            target = same[0] if same else f"entity:{name}"
            if not same:
                self._nodes.append(
                    NewNode(target, "entity", name, name, (self._turn.turn_id,), attributes={"kind": mention.kind})
                )
        else:
            self._amend(NodeUpdate(NodeId(target), add_provenance=(self._turn.turn_id,)))
        self._relations.append(NewRelation(_EPISODE_REF, "MENTIONS", target))
        whole = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)  # not "Ann" in "planned"
        self._relations += [NewRelation(op.ref, "MENTIONS", target) for op in made if whole.search(op.draft)]

    def _topic(self, topic: Topic, made: list[AddNode]) -> None:
        label = concept_label(topic.label)
        if label is None:
            return
        ref = f"concept:{concept_key(label)}"  # of several spellings the first
        if any(n.ref == ref for n in self._nodes):
            return
        self._nodes.append(NewNode(ref, "concept", label, topic.description, (self._turn.turn_id,)))
        self._relations.append(NewRelation(_EPISODE_REF, "HAS_CONCEPT", ref))
        self._relations += [NewRelation(op.ref, "ABOUT_CONCEPT", ref) for op in made]


def _merge_topics(
    change: GraphChange, nodes: tuple[NewNode, ...], vectors: NDArray[np.float32], memory: _SpaceMemory
) -> tuple[GraphChange, tuple[NewNode, ...], NDArray[np.float32]]:
    """Put existing concepts in the place of new ones that mean the same."""
    existing: dict[str, NodeId] = {}
    for node, vector in zip(nodes, vectors, strict=True):
        if node.type == "concept":
            found = memory.resolver.concept(node.label, vector)
            if found is not None:
                existing[node.ref] = found
    if not existing:
        return change, nodes, vectors
    keep = [i for i, node in enumerate(nodes) if node.ref not in existing]
    relations = tuple(replace(r, target=existing.get(r.target, r.target)) for r in change.relations)
    sources = (change.turn_id,) if change.turn_id is not None else ()
    updates = tuple(NodeUpdate(node_id, add_provenance=sources) for node_id in dict.fromkeys(existing.values()))
    merged = replace(change, relations=relations, updates=change.updates + updates)
    return merged, tuple(nodes[i] for i in keep), vectors[keep]


def _as_node(turn: Turn, node: NewNode, node_id: NodeId) -> Node:
    return Node(
        turn.space, node_id, node.type, node.label, node.description, NodeStatus.ACTIVE, turn.recorded_at,
        turn.recorded_at, node.valid_from, node.valid_to, node.attributes, node.provenance,
    )  # fmt: skip
