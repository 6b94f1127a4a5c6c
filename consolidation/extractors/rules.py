"""A deterministic, rule-based substitute for a language model; it copies wording, so it invents nothing.

A sentence worth remembering becomes a fact, or an event if it contains a time expression; the first person is replaced
by the speaker's name. Names become mentions and phrases become topics. No model is downloaded.
Names are found by their capital letters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from locigraph.consolidation.blueprint import (
    MAX_LABEL,
    AddNode,
    Blueprint,
    ContextNode,
    Mention,
    Operation,
    SupersedeNode,
    Topic,
    UpdateNode,
    Wording,
)
from locigraph.consolidation.dating import with_days
from locigraph.consolidation.extractors.names import capitalised_names
from locigraph.consolidation.extractors.sentences import in_third_person, is_forwarded, phrases, sentences, unquoted
from locigraph.consolidation.extractors.slots import CHANGED, Slot, corrected_value, stated_slot
from locigraph.consolidation.extractors.verbatim import foreign_names, said_verbatim
from locigraph.consolidation.protocols import Context
from locigraph.kg.language.dated_texts import undated
from locigraph.kg.language.dates import resolve_times
from locigraph.kg.language.english import is_english
from locigraph.kg.language.languages import ENGLISH, language_of
from locigraph.kg.language.terms import content_words, stem, terms
from locigraph.kg.language.tokens import telling_signs, words
from locigraph.kg.text_caches import cached
from locigraph.kg.types import NodeId, Turn, states_same

# Sentences with fewer content words are not meaningful on their own.
_MIN_TERMS = 3
# Turns with more characters are exposition, such as an assistant's answer; only first-person sentences are kept.
_EXPOSITION = 600
_OF_SPEAKER = re.compile(r"\b(i|i'm|i've|i'd|i'll|my|me|we|we're|we've|our|us)\b", re.IGNORECASE)
_OF_PAST = re.compile(
    r"\b(\w{3,}ed|was|were|went|had|did|got|made|took|saw|met|came|found|bought|gave|told|won|lost|began|left|felt"
    r"|taught|built|wrote|read|ran|spent|brought|chose|drove|flew|grew|held|kept|knew|led|sold|sent|sang|swam|wore)\b",
    re.IGNORECASE,
)

_CORRECTING = re.compile(
    r"\b(?:(?:sorry|i mean|i meant|actually|correction|rather|oops|wait|make that|now|instead)\b|no,)", re.IGNORECASE
)
_WORDS_OF_CORRECTION = frozenset(terms("sorry actually correction meant mean now oops wait rather"))

# Words that do not change what a fact says; all others count, in their order: "before", "with" and "not" too.
_FILLERS = frozenset(["a", "an", "the", "am", "is", "are", "do", "does", "really", "just", "also", "so", "well", "and"])
_MAX_MEMORABLE, _MAX_NAMES = 12, 7
_MAX_DRAFT = 1_500  # characters
_MAX_TOPICS, _MAX_TOPICS_OF_EXPOSITION = 3, 1


class RuleExtractor:
    """An extractor that follows fixed rules."""

    name = "rules"

    def plan(self, turn: Turn, context: Context) -> Blueprint:
        """Facts, events, mentions and topics of a turn; only the speaker if its language cannot be told."""
        if language_of(turn.text) is ENGLISH and not is_english(turn.text):
            return Blueprint(mentions=(Mention(turn.speaker, "person"),))
        operations: list[Operation] = []
        # Facts of different speakers stay separate: each can be forgotten alone, and none supersedes the other's.
        own = {node.id: node for node in context.shown if node.attributes.get("speaker", turn.speaker) == turn.speaker}
        said_since = {node.id for node in context.later}
        replaceable = {
            id_: node
            for id_, node in own.items()
            if id_ not in said_since
            and (node.superseded_at is None or node.superseded_at > turn.recorded_at)
            # A turn may be added late, but it ends nothing that was said after it.
            and (turn.spoken_at is None or node.known_at is None or node.known_at <= turn.spoken_at)
        }
        # A superseded fact that is said again is true again, and a new fact, unless that was before it was superseded.
        known = {
            _statement(node.description): node
            for node in context.nodes
            if node.id in own
            and (node.superseded_at is None or (turn.spoken_at is not None and node.superseded_at > turn.recorded_at))
        }
        updated = set()
        reading = _read(turn)
        for number, (draft, is_event, slot, corrected, is_corrected) in enumerate(reading.memorable):
            ref = f"n{number}"
            repeated = known.get(_statement(with_days(draft, turn)))
            if repeated is not None:
                if repeated.id not in updated:
                    operations.append(UpdateNode(repeated.id))
                    updated.add(repeated.id)
                continue
            if slot is not None and (is_corrected or not slot.is_favourite(turn.speaker)):
                operations = _without_corrected(operations, slot, ref)
            attributes = {"speaker": turn.speaker} | ({} if slot is None else slot.attributes(turn.speaker))
            node_type = "event_node" if is_event else "knowledge_node"
            operations.append(AddNode(ref, node_type, draft, (turn.turn_id,), attributes=attributes))
            replaced = [] if slot is None else [id_ for id_, n in replaceable.items() if slot.replaces(n.attributes)]
            if not replaced and corrected is not None:
                replaced = _corrected(replaceable, corrected, turn.speaker)
            operations += [SupersedeNode(node, ref) for node in replaced]
            since = _since(slot, turn.speaker, own, context.later)
            operations += [SupersedeNode(ref, node.id) for node in since[:1]]
            for node in replaced:
                del replaceable[node]
        return Blueprint(tuple(operations), reading.mentions, reading.topics)

    def write(self, turn: Turn, plan: Blueprint, context: Context) -> Mapping[str, Wording]:
        """The drafts unchanged, labelled by their first content words."""
        return copied_wording(plan)

    def expected_texts(self, turns: Sequence[Turn]) -> Sequence[str]:
        """The facts, topics and names that ``plan`` will find."""
        nothing = Context((), ())
        return [text for turn in turns for text in embedded_texts(self.plan(turn, nothing), turn)]


def _since(
    slot: Slot | None, speaker: str, own: Mapping[NodeId, ContextNode], later: Sequence[ContextNode]
) -> list[ContextNode]:
    """What only later turns have said of the slot of a late one, and what therefore may hold now.

    Of what is not personal, such as a price, only a statement that it has changed ends others.
    """
    if slot is None:
        return []
    return [
        node
        for node in later
        if node.id not in own
        and slot.differs(node.attributes)
        and (slot.is_personal(speaker) or node.attributes.get(CHANGED))
    ]


def _without_corrected(operations: Sequence[Operation], slot: Slot, ref: str) -> list[Operation]:
    """The operations without what a later sentence of the turn, the node ``ref``, corrects: "at 9. Sorry, at 10"."""
    gone = {each.ref for each in operations if isinstance(each, AddNode) and slot.replaces(each.attributes)}
    kept = [each for each in operations if not (isinstance(each, AddNode) and each.ref in gone)]
    return [
        replace(each, successor=ref) if isinstance(each, SupersedeNode) and each.successor in gone else each
        for each in kept
        if not (isinstance(each, SupersedeNode) and each.id in gone)
    ]


def embedded_texts(plan: Blueprint, turn: Turn) -> list[str]:
    """Texts that must be embedded if every draft of a plan is copied unchanged."""
    added = [operation for operation in plan.operations if isinstance(operation, AddNode)]
    texts = [with_days(node.draft, turn, node.days) for node in added]
    return texts + [topic.description for topic in plan.topics] + [mention.name for mention in plan.mentions]


def copied_wording(plan: Blueprint) -> dict[str, Wording]:
    """The drafts of all new nodes unchanged, labelled by their first content words."""
    return {
        operation.ref: Wording(short_label(operation.draft), operation.draft)
        for operation in plan.operations
        if isinstance(operation, AddNode)
    }


def short_label(text: str) -> str:
    """The first six content words of a text, or its beginning if it has none."""
    return " ".join(content_words(text)[:6])[:100] or text[:60]


def _corrected(nodes: Mapping[NodeId, ContextNode], corrected: _Correction, speaker: str) -> list[NodeId]:
    """The only one of some nodes that has the old value of a correction and not the new one; nothing if several have.

    It must be about the same: have the value in a slot, or share a word with the correction beside both values, if that
    has any; unless the old value itself has ended. The name of the speaker, which all facts have, is no value.
    """
    new, old = (f" {' '.join(words(value))} " for value in (corrected.new, corrected.old))
    values = {*terms(f"{corrected.new} {corrected.old} {speaker}"), *_WORDS_OF_CORRECTION}
    is_bare = values.issuperset(terms(corrected.words.removeprefix(corrected.before)))
    about = {*terms(corrected.words)} - values
    found = []
    for id_, node in nodes.items():
        text = undated(node.description).replace(speaker, "")
        said = f" {' '.join(words(text))} "
        is_value = states_same(node.attributes.get("value"), corrected.old)
        is_about = corrected.has_ended or is_bare or is_value or not about.isdisjoint(terms(text))
        if old in said and new not in said and is_about:
            found.append(id_)
    return found if len(found) == 1 else []


class _Correction(NamedTuple):
    """A new value in place of an old one, both in lower case, with the words in which this is said.

    Attributes:
        words: The sentence, and the one before it.
        before: The one before it.
    """

    new: str
    old: str
    words: str
    before: str

    @property
    def has_ended(self) -> bool:
        """Whether the old value itself has ended: "Lune has closed. It's now Orbit"."""
        return self.old not in self.words.removeprefix(self.before).lower()


class _Memorable(NamedTuple):
    """A sentence worth remembering.

    Attributes:
        draft: The sentence in the third person.
        is_event: Whether it contains a time expression.
        slot: The slot that it states; None if it states none.
        corrected: The new and the old value, if it names both.
        is_correction: Whether it has words of a correction, such as "sorry".
    """

    draft: str
    is_event: bool
    slot: Slot | None
    corrected: _Correction | None
    is_correction: bool


class _Reading(NamedTuple):
    """What the rules find in a turn, independent of the existing graph.

    Attributes:
        memorable: The sentences worth remembering.
    """

    memorable: tuple[_Memorable, ...]
    mentions: tuple[Mention, ...]
    topics: tuple[Topic, ...]


@cached(2**14)  # each turn is read twice, in ``expected_texts`` and in ``plan``; a long one again
def _read(turn: Turn) -> _Reading:
    return _Reading(tuple(_memorable(turn)), _mentions(turn), _topics(turn))


def _memorable(turn: Turn) -> list[_Memorable]:
    memorable: list[_Memorable] = []
    is_long = len(turn.text) > _EXPOSITION
    if language_of(turn.text) is not ENGLISH:
        said = said_verbatim(turn, at_least=_MIN_TERMS, is_long=is_long)
        return [
            _Memorable(draft[:_MAX_DRAFT], has_time, None, None, False)
            for draft, has_time in islice(said, _MAX_MEMORABLE)
        ]
    day = turn.spoken_at.date() if turn.spoken_at else None
    before = ""
    # Of what somebody else has said, only the first sentence shows it.
    said_here = sentences(turn.text)[: 1 if is_forwarded(turn.text) else None]
    for sentence, own_words in unquoted(said_here):
        after, before = before, own_words
        is_told = _OF_SPEAKER.search(sentence) or (not is_long and _OF_PAST.search(sentence))
        if sentence.endswith("?") or sentence.startswith(">") or (is_long and not is_told):
            continue
        slot, values = stated_slot(own_words, turn.speaker), corrected_value(own_words, after=after)
        corrected = None if values is None else _Correction(*values, f"{after} {own_words}", after)
        is_news = slot is not None or (corrected is not None and not is_long)
        if is_news or (is_told and len(terms(sentence)) >= _MIN_TERMS):
            draft = in_third_person(sentence, turn.speaker, own_words)[:_MAX_DRAFT]
            has_time, corrects = bool(resolve_times(sentence, day)), _CORRECTING.search(own_words) is not None
            memorable.append(_Memorable(draft, has_time, slot, corrected, corrects))
        if len(memorable) == _MAX_MEMORABLE:
            break
    return memorable


def _statement(text: str) -> tuple[str, ...]:
    """What a fact says: its stemmed words in order, without fillers."""
    return tuple(stem(word) for word in telling_signs(text) if word not in _FILLERS)


def _mentions(turn: Turn) -> tuple[Mention, ...]:
    language = language_of(turn.text)
    found = capitalised_names(turn.text) if language is ENGLISH else foreign_names(turn.text, language)
    named = (mention for mention in found if mention.name != turn.speaker)
    return Mention(turn.speaker, "person"), *islice(named, _MAX_NAMES)


def _topics(turn: Turn) -> tuple[Topic, ...]:
    text = f"{turn.text}. {turn.image_caption or ''}"
    language = language_of(turn.text)
    if not language.is_spaced:
        return ()
    found = phrases(text, exclude=frozenset(words(turn.speaker)), stop_words=language.stop_words)
    short = [phrase for phrase in found if len(phrase) <= MAX_LABEL]
    longest_first = sorted(short, key=lambda phrase: -len(phrase.split()))
    limit = _MAX_TOPICS_OF_EXPOSITION if len(turn.text) > _EXPOSITION else _MAX_TOPICS
    return tuple(Topic(phrase, phrase) for phrase in longest_first[:limit])
