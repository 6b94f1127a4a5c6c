"""The result of a reader: conversations with turns, questions with gold evidence, and counts of what was left out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path

from locigraph.kg.errors import CorpusFormatError, nearest
from locigraph.kg.types import NAME_RULE, Question, SpaceId, Turn, TurnId, is_name


@dataclass(frozen=True, slots=True)
class RecordedItem:
    """A fact, topic or entity of a recorded extraction, with its source turns."""

    text: str
    turn_ids: tuple[TurnId, ...]
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event of a recorded extraction; ``start`` and ``end`` are None if no day was found."""

    text: str
    turn_ids: tuple[TurnId, ...]
    start: date | None
    end: date | None

    @property
    def days(self) -> tuple[date, date] | None:
        """First and last day; None if there is no start. An end before the start is ignored."""
        return None if self.start is None else (self.start, max(self.start, self.end or self.start))


@dataclass(frozen=True, slots=True)
class Extractions:
    """All that was extracted from one conversation."""

    facts: tuple[RecordedItem, ...] = ()
    entities: tuple[RecordedItem, ...] = ()
    topics: tuple[RecordedItem, ...] = ()
    events: tuple[RecordedEvent, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was extracted."""
        return not (self.facts or self.entities or self.topics or self.events)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One dialogue, which becomes one space.

    Attributes:
        space: Its name.
        turns: Its turns in the order they were spoken.
        extractions: Recorded extractions from it.
        skipped: Number of its questions that were left out, by reason.
        unresolved: Evidence citations that could not be resolved, each with its question.
        title: What it is called where it comes from, if its space has another name.
    """

    space: SpaceId
    turns: tuple[Turn, ...]
    extractions: Extractions = field(default_factory=Extractions)
    skipped: Mapping[str, int] = field(default_factory=dict)
    unresolved: tuple[str, ...] = ()
    title: str | None = None


def _hash(given: object) -> str:
    return hashlib.sha256(repr(given).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Corpus:
    """A corpus as read from a file.

    Attributes:
        conversations: The conversations, in the file's order.
        questions: The questions with resolvable evidence, in the file's order.
        notes: Further remarks for reports, such as unresolved evidence ids or an unknown hash.
        format: Name of its format's row in ``FORMATS``; ``load_corpus`` sets it.
        path: Path as the user gave it; ``load_corpus`` sets it.
        sha256: SHA-256 of the file's bytes; ``load_corpus`` sets it unless the reader has.
        left_out: Number of questions that were left out, by reason, in addition to those that the conversations count.
        unanswerable: Questions that the conversations do not answer although they seem to; a memory should say so.
        corrections: Published corrections of the evidence, by question ID; evaluated in addition to the original
            evidence, never instead of it.
    """

    conversations: tuple[Conversation, ...]
    questions: tuple[Question, ...] = ()
    notes: tuple[str, ...] = ()
    format: str = ""
    path: str = ""
    sha256: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)
    unanswerable: tuple[Question, ...] = ()
    corrections: Mapping[str, tuple[TurnId, ...]] = field(default_factory=dict)

    @property
    def source(self) -> dict[str, str]:
        """Name and hash of the file, for records and manifests: its folder says nothing on other machines."""
        return {"path": Path(self.path).name, "sha256": self.sha256}

    @cached_property
    def content(self) -> str:
        """Hash of what is used of the file, conversations and questions with their evidence; 12 hexadecimal digits."""
        said = [(each.space, each.turns) for each in self.conversations]
        asked = [(each.question_id, each.text, each.evidence, str(each.asked_at)) for each in self.questions]
        return _hash([said, asked, sorted(self.corrections.items())])

    @cached_property
    def extractions(self) -> str:
        """Hash of what was extracted from the conversations; 12 hexadecimal digits."""
        return _hash([(each.space, each.extractions) for each in self.conversations])

    @cached_property
    def texts(self) -> dict[str, dict[str, str]]:
        """What was said: space -> turn ID -> text."""
        return {str(c.space): {str(t.turn_id): t.text for t in c.turns} for c in self.conversations}

    @cached_property
    def skipped(self) -> dict[str, int]:
        """Number of questions that were left out, by reason."""
        total: Counter[str] = Counter()
        for reasons in (*(conversation.skipped for conversation in self.conversations), self.left_out):
            total.update(reasons)
        return dict(total)

    def of_categories(self, categories: Sequence[str]) -> Corpus:
        """The corpus with only the questions of the given categories; the others are counted as skipped.

        Raises:
            CorpusFormatError: If no question has one of the categories.
        """
        present = {question.category for question in self.questions}
        self._require("category", categories, present, "a category of the corpus")
        kept = tuple(q for q in self.questions if q.category in categories)
        others = Counter(q.category for q in self.questions if q.category not in categories)
        reasons = {f"category {category} not asked for": count for category, count in sorted(others.items())}
        return replace(self, questions=kept, left_out={**self.left_out, **reasons})

    def of_conversations(self, names: Sequence[str]) -> Corpus:
        """The corpus with only the given conversations, their questions and their counts of skipped questions.

        Raises:
            CorpusFormatError: If the corpus lacks one of the conversations.
        """
        present = [str(conversation.space) for conversation in self.conversations]
        self._require("conversations", names, present, "a conversation of the corpus")
        return replace(
            self,
            conversations=tuple(c for c in self.conversations if c.space in names),
            questions=tuple(q for q in self.questions if q.space in names),
            unanswerable=tuple(q for q in self.unanswerable if q.space in names),
        )

    def _require(self, field: str, names: Sequence[str], present: Collection[str], expected: str) -> None:
        for name in names:
            if name not in present:
                raise CorpusFormatError(self.path, None, field, name, expected + nearest(name, present))

    def in_space(self, name: str) -> Corpus:
        """The corpus with its only conversation, and the questions about it, under another space name.

        Raises:
            CorpusFormatError: If it does not hold exactly one conversation, or the name is invalid.
        """
        if len(self.conversations) != 1:
            names = ", ".join(repr(str(conversation.space)) for conversation in self.conversations[:3])
            expected = f"null, since the file holds {len(self.conversations)} conversations, such as {names}"
            raise CorpusFormatError(self.path, None, "space", name, expected)
        if not is_name(name):
            raise CorpusFormatError(self.path, None, "space", name, NAME_RULE)
        space, (conversation,) = SpaceId(name), self.conversations
        turns = tuple(replace(turn, space=space, conversation_id=name) for turn in conversation.turns)
        return replace(
            self,
            conversations=(replace(conversation, space=space, turns=turns),),
            questions=tuple(replace(question, space=space) for question in self.questions),
            unanswerable=tuple(replace(question, space=space) for question in self.unanswerable),
        )


@dataclass(frozen=True)
class CorpusFormat:
    """A row of ``FORMATS``.

    Attributes:
        name: The name that users type.
        read: Reads a file; raises CorpusFormatError if it does not have this format.
        keys: Keys that together occur in JSON files of this format only, or of later rows; empty for other formats.
        recognises: Whether a text that begins so has this format; None if ``keys`` tell.
        with_corrections: Adds a file of corrected evidence to a corpus; None if the format has no corrections.
        categories: Question categories to keep if the user names none; empty keeps all.
        unanswerable: Categories of questions that the conversations do not answer.
        listing: Categories whose answers list several things, separated by commas.
        explained: Categories whose answers may be followed by a semicolon and an explanation.
        reads_folders: Whether it reads folders.
        is_export: Whether it is a format in which another program stores or exports chats.
        makes_ids: Whether the reader makes the ids of turns from their content, since the export has none.
        nameless: File name that the program gives to every export, so that the user must name the space; None if file
            names differ.
        known_sha256: Names of the published files by SHA-256. Any other file is mentioned in the notes, since its
            results may not be comparable; empty if nothing was published.
    """

    name: str
    read: Callable[[str], Corpus]
    keys: frozenset[str] = frozenset()
    recognises: Callable[[str], bool] | None = None
    with_corrections: Callable[[Corpus, str], Corpus] | None = None
    categories: tuple[str, ...] = ()
    unanswerable: tuple[str, ...] = ()
    listing: tuple[str, ...] = ()
    explained: tuple[str, ...] = ()
    reads_folders: bool = False
    is_export: bool = False
    makes_ids: bool = False
    nameless: str | None = None
    known_sha256: Mapping[str, str] = field(default_factory=dict)
