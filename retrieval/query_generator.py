"""Makes one or more search queries of a question, by rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from locigraph.kg.language.dates import resolve_times
from locigraph.kg.times import epoch

#: Most clauses of a question that are searched for by themselves: each costs two searches.
MAX_CLAUSES = 8
_SECONDS_OF_DAY = 86_400
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
    """

    text: str
    types: tuple[str, ...] | None = None
    window: tuple[int, int] | None = None


#: Makes the queries of a question, the first of which is the question itself; relative times are read from the day.
QueryGenerator = Callable[[str, date | None], Sequence[SearchQuery]]


def generate_queries(question: str, asked_on: date | None = None) -> list[SearchQuery]:
    """The question itself and, if it has several clauses that begin with a question word, the first of these."""
    found = _CLAUSE.split(" ".join(question.split()), maxsplit=MAX_CLAUSES)[:MAX_CLAUSES]
    clauses = [clause.strip() for clause in found if clause.strip()]
    texts = [question, *(clauses if len(clauses) > 1 else [])]
    return [SearchQuery(text, window=named_window(text, asked_on)) for text in texts]


def named_window(text: str, asked_on: date | None) -> tuple[int, int] | None:
    """First and last second, since 1970, of the times that a text names; None if it names none.

    Args:
        text: A question, or a part of one.
        asked_on: The day from which relative times such as "last week" are read; None leaves these out.
    """
    days = resolve_times(text, asked_on)
    if not days:
        return None
    first, last = min(each.first for each in days), max(each.last for each in days)
    return _second(first), _second(last) + _SECONDS_OF_DAY - 1


def _second(day: date) -> int:
    return epoch(datetime(day.year, day.month, day.day, tzinfo=UTC))
