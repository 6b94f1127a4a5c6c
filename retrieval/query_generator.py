"""Turns a question into one or more search queries, by rules or with a query writer such as a language model."""

from __future__ import annotations

import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any, Protocol

from locigraph.kg.counts import counted
from locigraph.kg.errors import LocigraphError
from locigraph.kg.language.question_times import FIRST_DAY, LAST_DAY, question_days
from locigraph.kg.times import day_end, day_start, epoch
from locigraph.kg.types import SpaceId

#: Largest number of clauses of a question that get a query of their own; each costs two searches.
MAX_CLAUSES = 8
_KEPT = 4_096  # questions whose queries are kept
# For this long after a failure, the writer is not asked the same question again: one recall may ask it several times,
# and each time would wait for the writer's timeout.
_PAUSE_S = 60
_LOG = logging.getLogger(__name__)
# Matches single blanks only, since a pattern for runs of blanks would be tried from each position in a run.
_CLAUSE = re.compile(
    r",? (?:and|or) (?=(?:what|when|where|who|whom|why|how|which|did|does|do|is|was)\b)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """One search query.

    Attributes:
        text: Its text.
        types: Node types to look for; None for all that a strategy searches.
        window: First and last second, since 1970, of the time that the text names; None if it names none.
        intent: What is asked for: ``why``, ``when`` or ``entity``; None if unknown.
    """

    text: str
    types: tuple[str, ...] | None = None
    window: tuple[int, int] | None = None
    intent: str | None = None


#: Generates the queries of a question, the question itself first. The date, if known, resolves relative times.
QueryGenerator = Callable[[str, date | None], Sequence[SearchQuery]]
#: Reads the day of the last turn of a space, which counts as the day of asking when no ``as_of`` is given; None if the
#: space has no dates.
LastDay = Callable[[SpaceId], date | None]


class WrittenQuery(Protocol):
    """A query as a ``QueryWriter`` returns it."""

    @property
    def text(self) -> str:
        """What to look for."""
        ...

    @property
    def types(self) -> Sequence[str]:
        """Node types that can hold the answer; empty for all that a strategy searches."""
        ...

    @property
    def time(self) -> str | None:
        """Words that name the time in question, not yet resolved; None if the query names no time."""
        ...

    @property
    def intent(self) -> str | None:
        """What is asked for: ``why``, ``when`` or ``entity``; None if the writer cannot tell."""
        ...


class QueryWriter(Protocol):
    """Writes the queries of a question, for example with a language model."""

    @property
    def name(self) -> str:
        """Name and version, for reports."""
        ...

    def __call__(self, question: str, asked_on: date | None) -> Sequence[WrittenQuery]:
        """The queries of a question that is asked on a day; raises LocigraphError if it cannot write any."""
        ...


def generate_queries(question: str, asked_on: date | None = None) -> list[SearchQuery]:
    """The question itself and, if it has several clauses that begin with a question word, up to ``MAX_CLAUSES``."""
    parts = _CLAUSE.split(" ".join(question.split()), maxsplit=MAX_CLAUSES)[:MAX_CLAUSES]
    clauses = [clause.strip() for clause in parts if clause.strip()]
    texts = [question, *(clauses if len(clauses) > 1 else [])]
    return [SearchQuery(text, window=named_window(text, asked_on)) for text in texts]


class WrittenQueries:
    """Queries from a writer; if it fails, those of ``generate_queries``, so that a search never fails because of it.

    The first failure is logged. The question itself stays the first query, so that the writer can only add to it.

    Args:
        write: Writes the queries. The times that its queries name are resolved here.
    """

    def __init__(self, write: QueryWriter) -> None:
        self.name = write.name
        self._write = write
        self._made = lru_cache(_KEPT)(self._make)  # several strategies ask the same question
        self._intents: OrderedDict[str, str] = OrderedDict()
        self._failed: OrderedDict[str, float] = OrderedDict()  # time of the failure, by question
        self._reason = ""

    def __call__(self, question: str, asked_on: date | None = None) -> Sequence[SearchQuery]:
        """The question itself and the written queries; see ``QueryGenerator``."""
        now = time.monotonic()
        if now - self._failed.get(question, -_PAUSE_S) < _PAUSE_S:
            return generate_queries(question, asked_on)
        try:
            return self._made(question, asked_on)
        except LocigraphError as error:
            if not self._reason:
                self._reason = str(error)
                _LOG.warning("the query writer failed, so queries are made by rules: %s", error)
            self._failed[question] = now
            _limit(self._failed)
            return generate_queries(question, asked_on)

    def intent_of(self, text: str) -> str | None:
        """Intent of a question, or of a query that was written for one; None if the writer gave none."""
        return self._intents.get(text)

    @property
    def notes(self) -> list[str]:
        """A note on how many questions got their queries from rules, with the first reason; empty if none did."""
        count = counted(len(self._failed), "question")
        return (
            [f"the query writer failed, so the queries of {count} were made by rules; first error: {self._reason}"]
            if self._failed
            else []
        )

    def _make(self, question: str, asked_on: date | None) -> Sequence[SearchQuery]:
        written = []
        for draft in self._write(question, asked_on):
            # "May 2023" and "in 2023" name a time, "2023" and "March" only with a word before them.
            window = draft.time and (named_window(draft.time, asked_on) or named_window(f"in {draft.time}", asked_on))
            written.append(SearchQuery(draft.text, tuple(draft.types) or None, window or None, draft.intent))
        named = [query.window for query in written if query.window is not None]
        window = (min(first for first, _ in named), max(last for _, last in named)) if named else None
        intent = next((query.intent for query in written if query.intent is not None), None)
        if window is None or window == OPEN_WINDOW:  # "before May" and "after July", written apart, exclude no time
            window = named_window(question, asked_on)
        whole = SearchQuery(question, None, window, intent)
        self._intents |= {query.text: query.intent for query in (*written, whole) if query.intent is not None}
        _limit(self._intents)
        return tuple(dict.fromkeys([whole, *written]))


def _limit(entries: OrderedDict[str, Any]) -> None:
    """Remove the oldest entries until at most ``_KEPT`` are left."""
    while len(entries) > _KEPT:
        entries.popitem(last=False)


def named_window(text: str, asked_on: date | None) -> tuple[int, int] | None:
    """First and last second, since 1970, of the times that a text names; None if it names none.

    An end that the text leaves open, as "before May 2023" does, is that of ``OPEN_WINDOW``.

    Args:
        text: A question, or a part of one.
        asked_on: The day from which relative times such as "last week" are resolved; None ignores these.
    """
    days = question_days(text, asked_on)
    return None if days is None else _window(days)


def _window(days: tuple[date, date]) -> tuple[int, int]:
    return epoch(day_start(days[0])), epoch(day_end(days[1]))


#: First and last second that a window can have.
OPEN_WINDOW = _window((FIRST_DAY, LAST_DAY))
