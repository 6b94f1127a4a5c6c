"""Turns a checked plan and its wording into a graph change; dates, entities and topics are resolved in code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from locigraph.consolidation.blueprint import (
    AddNode,
    AddRelation,
    ArchiveNode,
    Blueprint,
    Mention,
    SupersedeNode,
    Topic,
    UpdateNode,
    Wording,
)
from locigraph.consolidation.dating import days_of
from locigraph.consolidation.resolution import concept_key, concept_label, entity_key, full_name
from locigraph.consolidation.space_state import EPISODE_REF, SpaceState
from locigraph.kg.language.dated_texts import Days, dated, undated
from locigraph.kg.schema import ARCHIVED_BY, EPISODE, MERGED_BY, MERGED_INTO, SUPERSEDED_BY, dated_types
from locigraph.kg.times import day_end, day_start
from locigraph.kg.types import GraphChange, NewNode, NewRelation, NodeId, NodeStatus, NodeUpdate, Turn, TurnId

# If the day of speech is shifted by this much, every relative date changes, but the year assumed for a date without a
# year rarely does.
_ANOTHER_TIME = timedelta(days=40)


class ChangeBuilder:
    """Builds the graph change, without embeddings, from a turn's plan and wording.

    Args:
        turn: The turn that is consolidated.
        plan: Its checked plan.
        wording: Its checked labels and descriptions, by the ids of the plan.
        state: Cached state of the space.
    """

    def __init__(self, turn: Turn, plan: Blueprint, wording: Mapping[str, Wording], state: SpaceState) -> None:
        self._turn = turn
        self._plan = plan
        self._wording = wording
        self._state = state
        self._episode: str = state.episodes.get(turn.turn_id, EPISODE_REF)
        self._nodes: list[NewNode] = []
        self._updates: dict[NodeId, NodeUpdate] = {}
        self._relations: list[NewRelation] = []
        self._dropped: list[tuple[NodeId, str, NodeId]] = []

    def build(self) -> GraphChange:
        """Build the whole change."""
        turn = self._turn
        is_new = turn.turn_id not in self._state.episodes  # a retried turn has its episode already
        if is_new:
            self._nodes.append(
                NewNode(
                    EPISODE_REF, EPISODE, f"{turn.speaker} {turn.turn_id}", turn.utterance, (turn.turn_id,),
                    valid_from=turn.spoken_at, valid_to=turn.spoken_at, attributes={"speaker": turn.speaker},
                )
            )  # fmt: skip
        before, after = (self._state.beside(turn, step) for step in (-1, 1))
        if before is not None:
            self._relations.append(NewRelation(before, "NEXT", self._episode))
        if after is not None:
            self._relations.append(NewRelation(self._episode, "NEXT", after))
        if is_new and before is not None and after is not None:  # a late turn comes between them
            self._dropped.append((before, "NEXT", after))
        for operation in self._plan.operations:
            if isinstance(operation, AddNode):
                self._add(operation)
            elif isinstance(operation, AddRelation):
                self._relations.append(NewRelation(operation.source, operation.label, operation.target))
            elif isinstance(operation, UpdateNode):
                self._update(operation)
            elif isinstance(operation, ArchiveNode):
                attributes = {**self._state.planned[operation.id].attributes, ARCHIVED_BY: turn.turn_id}
                self._amend(NodeUpdate(operation.id, status=NodeStatus.ARCHIVED, attributes=attributes))
            elif isinstance(operation, SupersedeNode):
                self._supersede(operation)
        added = [op for op in self._plan.operations if isinstance(op, AddNode)]
        self._follow_by_later_events([op for op in added if op.type == "event_node"])
        for mention in self._plan.mentions:
            self._mention(mention, added)
        for topic in self._plan.topics:
            self._topic(topic, added)
        return GraphChange(
            turn.space, turn.recorded_at, turn.turn_id, tuple(self._nodes), tuple(self._updates.values()),
            tuple(self._relations), dropped=tuple(self._dropped),
        )  # fmt: skip

    def _add(self, operation: AddNode) -> None:
        turn, words = self._turn, self._wording[operation.ref]
        days = days_of(words.description, turn, operation.days)
        description = dated(words.description, days)
        valid_from, valid_to = turn.spoken_at, None
        if days is not None:
            valid_from, valid_to = day_start(days[0]), day_end(days[1])
        if operation.type not in dated_types():
            valid_to = None  # the day is only when a fact began; it stays true
        self._nodes.append(
            NewNode(
                operation.ref, operation.type, words.label, description, operation.turn_ids, valid_from, valid_to,
                operation.attributes,
            )
        )  # fmt: skip
        self._derive(operation.ref, operation.turn_ids)
        earlier = self._state.event_before(turn) if operation.type == "event_node" else None
        if earlier is not None:
            self._relations.append(NewRelation(earlier, "PRECEDES", operation.ref))

    def _derive(self, name: str, sources: Sequence[TurnId]) -> None:
        """Join a node to the turns that it was taken from."""
        for turn_id in sources:
            episode = self._episode if turn_id == self._turn.turn_id else self._state.episodes.get(turn_id)
            if episode is not None:
                self._relations.append(NewRelation(name, "DERIVED_FROM", episode))

    def _supersede(self, operation: SupersedeNode) -> None:
        # If turns come out of order, the fact must not end before both facts were known, as for the edge below.
        end = max([self._turn.recorded_at, *self._state.known_since(operation.id, operation.successor)])
        new = next((place for place, node in enumerate(self._nodes) if node.ref == operation.id), None)
        if new is None:
            known = NodeId(operation.id)
            if (valid_to := self._state.end_if_superseded(known, end)) is not None:
                self._amend(NodeUpdate(known, valid_to=valid_to))
        elif self._nodes[new].type not in dated_types():
            node = self._nodes[new]
            self._nodes[new] = replace(node, valid_to=max(end, node.valid_from or end), open_until=end)
        self._relations.append(NewRelation(operation.id, SUPERSEDED_BY, operation.successor))
        if new is not None:  # a late fact comes between the one that it ends and the one that ends it
            ended = (known for known in self._plan.operations if isinstance(known, SupersedeNode))
            between = (NodeId(known.id) for known in ended if known.successor == operation.id)
            self._dropped += [(known, SUPERSEDED_BY, NodeId(operation.successor)) for known in between]

    def _follow_by_later_events(self, events: list[AddNode]) -> None:
        """Insert the events of a late or retried turn into the PRECEDES chain, between earlier and later events."""
        if not events:
            return
        index = self._state.index
        last = max(
            reversed(events), key=lambda op: min(index[turn_id] for turn_id in op.turn_ids)
        )  # ties: the last one
        earlier = self._state.event_before(self._turn)
        for later in self._state.events_after(self._turn):
            self._relations.append(NewRelation(last.ref, "PRECEDES", later))
            if earlier is not None:
                self._dropped.append((earlier, "PRECEDES", later))

    def _update(self, operation: UpdateNode) -> None:
        words, turn = self._wording.get(operation.id), self._turn
        others = (each for each in operation.turn_ids if each in self._state.index)  # they may be forgotten
        sources = tuple(dict.fromkeys((turn.turn_id, *others)))
        update = NodeUpdate(operation.id, add_provenance=sources)
        self._amend(update if words is None else self._reworded(update, words))
        self._derive(operation.id, sources)

    def _reworded(self, update: NodeUpdate, words: Wording) -> NodeUpdate:
        """The update with new words; the node keeps its days unless the words name others.

        Relative dates, such as "last Saturday", are those of the turn in which they were first said.
        """
        known = self._state.planned[update.id].description
        text, kept = undated(words.description), known.removeprefix(undated(known))
        days = days_of(text, self._turn, None)
        if kept and (days is None or self._is_relative(text, days)):
            return replace(update, label=words.label, description=text + kept)
        reworded = replace(update, label=words.label, description=dated(text, days))
        if days is None:
            return reworded
        reworded = replace(reworded, valid_from=day_start(days[0]))
        is_dated = self._state.planned[update.id].type in dated_types()
        return replace(reworded, valid_to=day_end(days[1])) if is_dated else reworded

    def _is_relative(self, text: str, days: Days) -> bool:
        """Whether the days of a text depend on when it is said; "30 May" and "May 2024" do not."""
        spoken_at = self._turn.spoken_at
        earlier = replace(self._turn, spoken_at=None if spoken_at is None else spoken_at - _ANOTHER_TIME)
        return days_of(text, earlier, None) != days

    def _amend(self, update: NodeUpdate) -> None:
        earlier = self._updates.get(update.id)
        if earlier is not None:
            sources = tuple(dict.fromkeys(earlier.add_provenance + update.add_provenance))
            update = replace(earlier, **update.changed, add_provenance=sources)
        self._updates[update.id] = update

    def _mention(self, mention: Mention, added: list[AddNode]) -> None:
        name = mention.name if mention.is_full else full_name(mention.name, self._state.speakers)
        target: str | None = self._state.resolver.entity(name)
        if target is None:
            same = [n.ref for n in self._nodes if n.type == "entity" and entity_key(n.label) == entity_key(name)]
            target = same[0] if same else f"entity:{name}"
            if not same:
                self._nodes.append(
                    NewNode(target, "entity", name, name, (self._turn.turn_id,), attributes={"kind": mention.kind})
                )
        else:
            self._amend(NodeUpdate(NodeId(target), add_provenance=(self._turn.turn_id,)))
        self._relations.append(NewRelation(self._episode, "MENTIONS", target))
        whole_name = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)  # not "Ann" in "planned"
        self._relations += [NewRelation(op.ref, "MENTIONS", target) for op in added if whole_name.search(op.draft)]

    def _topic(self, topic: Topic, added: list[AddNode]) -> None:
        label = concept_label(topic.label)
        if label is None:
            return
        ref = f"concept:{concept_key(label)}"  # the first of several spellings is kept
        if any(n.ref == ref for n in self._nodes):
            return
        self._nodes.append(NewNode(ref, "concept", label, topic.description, (self._turn.turn_id,)))
        self._relations.append(NewRelation(self._episode, "HAS_CONCEPT", ref))
        self._relations += [NewRelation(op.ref, "ABOUT_CONCEPT", ref) for op in added]


def merge_topics(change: GraphChange, state: SpaceState) -> GraphChange:
    """Replace new concepts by existing ones with the same meaning; the change's nodes must be embedded.

    A concept that is worded differently from the existing one is still created, but archived, as in ``merging``: it
    records what it was merged into, and becomes active again if that concept is forgotten.
    """
    merged: dict[NodeId, None] = {}
    nodes: list[NewNode] = []
    relations = list(change.relations)
    for node in change.nodes:
        existing = None
        if node.type == "concept":
            assert node.embedding is not None
            existing = state.resolver.concept(node.label, node.embedding)
        if existing is None:
            nodes.append(node)
            continue
        into, cosine = existing
        merged[into] = None
        of_node = [r for r in change.relations if r.target == node.ref]
        relations += [replace(r, target=into) for r in of_node]
        if cosine is None:
            relations = [r for r in relations if r not in of_node]
            continue
        marks = {MERGED_INTO: into, MERGED_BY: "consolidation"}
        nodes.append(replace(node, status=NodeStatus.ARCHIVED, attributes={**node.attributes, **marks}))
        relations.append(NewRelation(node.ref, "SIMILAR_TO", into, cosine))
    sources = (change.turn_id,) if change.turn_id is not None else ()
    updates = tuple(NodeUpdate(node_id, add_provenance=sources) for node_id in merged)
    return replace(change, nodes=tuple(nodes), relations=tuple(relations), updates=change.updates + updates)
