"""Replays extractions that were made earlier, mostly by language models, so that the graph can be built offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from locigraph.consolidation.blueprint import AddNode, Blueprint, Mention, Operation, Topic, UpdateNode, Wording
from locigraph.consolidation.dating import with_days
from locigraph.consolidation.errors import ConsolidationError
from locigraph.consolidation.extractors.rules import copied_wording, embedded_texts, short_label
from locigraph.consolidation.protocols import Context
from locigraph.kg.corpora import Conversation
from locigraph.kg.language.terms import terms
from locigraph.kg.types import SpaceId, Turn, TurnId

# Kinds in the published entity lists that are used; "When", "How" and "Why" are not, as they hold times and manners.
_ENTITY_KINDS = {"Who": "person", "Where": "location", "What": "other", None: "other"}
# Smallest share of an event's terms that a turn must contain for the event to be pinned to it.
_PINNED_FROM = 0.5


class RecordedExtractor:
    """An extractor that looks up recorded extractions.

    A fact is added at the last of its source turns. The published events cite all turns of a whole topic segment. Each
    event is pinned to the turn that shares most of its terms, so that a hit on the event counts for that turn; if no
    turn has at least half of its terms, all turns of the segment are kept.

    Args:
        conversations: Conversations with their recorded extractions.

    Raises:
        ConsolidationError: If a conversation has no recorded extractions.
    """

    name = "recorded"

    def __init__(self, conversations: Sequence[Conversation]) -> None:
        self._plans: dict[tuple[SpaceId, TurnId], Blueprint] = {}
        for conversation in conversations:
            if conversation.extractions.is_empty:
                raise ConsolidationError(
                    f"conversation {conversation.space!r} has no recorded extractions; use --consolidation rules, or "
                    "name a file with corpus.extractions"
                )
            self._plans.update(_plans(conversation))

    def plan(self, turn: Turn, context: Context) -> Blueprint:
        """The recorded plan of this turn; facts that the context holds word for word are updated, not added again."""
        recorded = self._plans.get((turn.space, turn.turn_id), Blueprint())
        known = {(node.type, node.description): node.id for node in context.nodes}
        operations: list[Operation] = []
        for operation in recorded.operations:
            if isinstance(operation, AddNode):
                same = known.get((operation.type, with_days(operation.draft, turn, operation.days)))
                operations.append(operation if same is None else UpdateNode(same, turn_ids=operation.turn_ids))
        return Blueprint(tuple(operations), recorded.mentions, recorded.topics)

    def write(self, turn: Turn, plan: Blueprint, context: Context) -> Mapping[str, Wording]:
        """The recorded texts."""
        return copied_wording(plan)

    def expected_texts(self, turns: Sequence[Turn]) -> Sequence[str]:
        """All recorded texts of these turns."""
        plans = [(self._plans.get((turn.space, turn.turn_id), Blueprint()), turn) for turn in turns]
        return [text for plan, turn in plans for text in embedded_texts(plan, turn)]


def _plans(conversation: Conversation) -> dict[tuple[SpaceId, TurnId], Blueprint]:
    position = {turn.turn_id: turn.position for turn in conversation.turns}
    turn_of = {turn.turn_id: turn for turn in conversation.turns}
    operations: dict[TurnId, list[Operation]] = {}
    mentions: dict[TurnId, dict[str, Mention]] = {}
    topics: dict[TurnId, list[Topic]] = {}

    def add(node_type: str, text: str, turn_ids: Sequence[TurnId], days: tuple[date, date] | None = None) -> None:
        last = max(turn_ids, key=position.__getitem__)
        operations_there = operations.setdefault(last, [])
        operations_there.append(AddNode(f"n{len(operations_there)}", node_type, text, tuple(turn_ids), days))

    extractions = conversation.extractions
    for fact in extractions.facts:
        add("knowledge_node", fact.text, fact.turn_ids)
    for event in extractions.events:
        add("event_node", event.text, _pin([turn_of[t] for t in event.turn_ids], event.text), event.days)
    for entity in extractions.entities:
        if entity.kind in _ENTITY_KINDS:
            for turn_id in entity.turn_ids:
                mentions.setdefault(turn_id, {})[entity.text] = Mention(entity.text, _ENTITY_KINDS[entity.kind])
    for topic in extractions.topics:
        for turn_id in topic.turn_ids:
            topics.setdefault(turn_id, []).append(Topic(short_label(topic.text), topic.text))
    return {
        (conversation.space, turn.turn_id): Blueprint(
            tuple(operations.get(turn.turn_id, ())),
            tuple(mentions.get(turn.turn_id, {}).values()),
            tuple(topics.get(turn.turn_id, ())),
        )
        for turn in conversation.turns
    }


def _pin(turns: Sequence[Turn], text: str) -> tuple[TurnId, ...]:
    wanted = set(terms(text))
    shares = [len(wanted & set(terms(turn.utterance))) / max(1, len(wanted)) for turn in turns]
    best = max(range(len(turns)), key=lambda i: (shares[i], -i))
    if shares[best] >= _PINNED_FROM:
        return (turns[best].turn_id,)
    return tuple(turn.turn_id for turn in turns)
