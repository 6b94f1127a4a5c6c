"""What a reader yields: conversations with their turns, questions with their gold, and what had to be left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from locigraph.kg.errors import CorpusFormatError, nearest
from locigraph.kg.types import Question, SpaceId, Turn, TurnId


@dataclass(frozen=True, slots=True)
class RecordedItem:
    """A fact, topic or entity that somebody's extractor found, with the turns it came from."""

    text: str
    turn_ids: tuple[TurnId, ...]
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An extracted event; ``start`` and ``end`` are calendar days, None when the extractor found none."""

    text: str
    turn_ids: tuple[TurnId, ...]
    start: date | None
    end: date | None


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
    """One dialogue, which is one space: its turns in the order they were spoken."""

    space: SpaceId
    turns: tuple[Turn, ...]
    extractions: Extractions = field(default_factory=Extractions)


@dataclass(frozen=True)
class Corpus:
    """A corpus as read.

    Attributes:
        format: ``locomo``, ``longmemeval`` or ``jsonl``.
        path: As the user named it.
        sha256: Of the file's bytes.
        conversations: In the file's order.
        questions: Those with resolvable evidence, in the file's order.
        skipped: How many questions were left out, by reason.
        notes: What else a report must say: evidence ids that could not be resolved, an unknown hash.
        corrections: Published corrections of the evidence, by question id: a second gold, never put in its place.
    """

    format: str
    path: str
    sha256: str
    conversations: tuple[Conversation, ...]
    questions: tuple[Question, ...]
    skipped: dict[str, int]
    notes: tuple[str, ...] = ()
    corrections: Mapping[str, tuple[TurnId, ...]] = field(default_factory=dict)

    def of_categories(self, categories: Sequence[str]) -> Corpus:
        """The corpus with the questions of these categories only; the rest are counted as skipped.

        Raises:
            CorpusFormatError: If no question has a named category.
        """
        present = {question.category for question in self.questions}
        for category in categories:
            if category not in present:
                raise CorpusFormatError(
                    self.path,
                    None,
                    "category",
                    category,
                    "a category of the corpus" + nearest(category, present),
                )
        kept = tuple(q for q in self.questions if q.category in categories)
        left_out = Counter(q.category for q in self.questions if q.category not in categories)
        skipped = dict(self.skipped)
        for category, count in sorted(left_out.items()):
            skipped[f"category {category} not asked for"] = count
        return replace(self, questions=kept, skipped=skipped)
