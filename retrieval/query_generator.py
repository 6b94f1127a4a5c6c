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
from locigraph.kg.language.dates import resolve_times
from locigraph.kg.times import day_end, day_start, epoch
from locigraph.kg.types import SpaceId

#: Most clauses of a question that are searched for by themselves: each costs two searches.
MAX_CLAUSES = 8
_KEPT = 4_096  # questions whose queries are kept
# After a failure the writer is not asked the same question for so long: a recall may ask it several times, and each
# would wait for the writer's deadline.
_PAUSE_S = 60
_LOG = logging.getLogger(__name__)
# Of single blanks, since a run of blanks in a pattern is tried from each of its places.
_CLAUSE = re.compile(
    r",? (?:and|or) (?=(?:what|when|where|who|whom|why|how|which|did|does|do|is|was)\b)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """One thing to look for.

    Attributes:
        text: Its words.
        types: Node types to look for; None for all that a strategy searches.
        window: First and last second, since 1970, of the time that the words name; None if they name none.
        intent: What is asked for: ``why``, ``when`` or ``entity``; None where nobody has said.
    """

    text: str
    types: tuple[str, ...] | None = None
    window: tuple[int, int] | None = None
    intent: str | None = None


#: Makes the queries of a question, the first of which is the question itself; relative times are read from the day.
QueryGenerator = Callable[[str, date | None], Sequence[SearchQuery]]
#: The day of the last turn of a space, from which a question of the present is asked; None without dates.
LastDay = Callable[[SpaceId], date | None]


class WrittenQuery(Protocol):
    """A query in the words of its writer."""

    @property
    def text(self) -> str:
        """What to look for."""
        ...

    @property
    def types(self) -> Sequence[str]:
        """Node types that can answer; empty for all that a strategy searches."""
        ...

    @property
    def time(self) -> str | None:
        """Words that name the time in question, as they are; None if it names none."""
        ...

    @property
    def intent(self) -> str | None:
        """What is asked for: ``why``, ``when`` or ``entity``; None if the writer cannot tell."""
        ...


class QueryWriter(Protocol):
    """Writes queries; retrieval need not know how."""

    @property
    def name(self) -> str:
        """Name and version, for reports."""
        ...

    def __call__(self, question: str, asked_on: date | None) -> Sequence[WrittenQuery]:
        """The queries of a question that is asked on a day; LocigraphError where it cannot write any."""
        ...


def generate_queries(question: str, asked_on: date | None = None) -> list[SearchQuery]:
    """The question itself and, if it has several clauses that begin with a question word, the first of these."""
    found = _CLAUSE.split(" ".join(question.split()), maxsplit=MAX_CLAUSES)[:MAX_CLAUSES]
    clauses = [clause.strip() for clause in found if clause.strip()]
    texts = [question, *(clauses if len(clauses) > 1 else [])]
    return [SearchQuery(text, window=named_window(text, asked_on)) for text in texts]


class WrittenQueries:
    """Queries as a writer words them; where it fails, those of the rules, so that a search never fails with it.

    The first failure is logged. The question itself stays the first query, so that what is written can only add.

    Args:
        write: Words the queries. The times that it names are resolved here.
    """

    def __init__(self, write: QueryWriter) -> None:
        self.name = write.name
        self._write = write
        self._made = lru_cache(_KEPT)(self._make)  # several strategies ask, and one may ask again
        self._intents: OrderedDict[str, str] = OrderedDict()
        self._failed: OrderedDict[str, float] = OrderedDict()  # when, by question
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
                _LOG.warning("queries are made by rules, since %s", error)
            self._failed[question] = now
            _limit(self._failed)
            return generate_queries(question, asked_on)

    def intent_of(self, text: str) -> str | None:
        """What a question, or a query that was written for one, asks for; None where the writer has not said."""
        return self._intents.get(text)

    @property
    def notes(self) -> list[str]:
        """How many questions had their queries by rules, and why the first; empty if none had."""
        count = counted(len(self._failed), "question")
        return [f"the queries of {count} were made by rules, at first since {self._reason}"] if self._failed else []

    def _make(self, question: str, asked_on: date | None) -> Sequence[SearchQuery]:
        found = []
        for each in self._write(question, asked_on):
            # "May 2023" and "in 2023" name a time, "2023" and "March" only with a word before them.
            window = each.time and (named_window(each.time, asked_on) or named_window(f"in {each.time}", asked_on))
            found.append(SearchQuery(each.text, tuple(each.types) or None, window or None, each.intent))
        named = [query.window for query in found if query.window is not None]
        window = (min(first for first, _ in named), max(last for _, last in named)) if named else None
        intent = next((query.intent for query in found if query.intent is not None), None)
        whole = SearchQuery(question, None, window or named_window(question, asked_on), intent)
        self._intents |= {query.text: query.intent for query in (*found, whole) if query.intent is not None}
        _limit(self._intents)
        return tuple(dict.fromkeys([whole, *found]))


def _limit(held: OrderedDict[str, Any]) -> None:
    """Remove what was put in first, beyond what is kept."""
    while len(held) > _KEPT:
        held.popitem(last=False)


def named_window(text: str, asked_on: date | None) -> tuple[int, int] | None:
    """First and last second, since 1970, of the times that a text names; None if it names none.

    Args:
        text: A question, or a part of one.
        asked_on: The day from which relative times such as "last week" are read; None leaves these out.
    """
    days = resolve_times(text, asked_on)
    if not days:
        return None
    return epoch(day_start(min(each.first for each in days))), epoch(day_end(max(each.last for each in days)))
