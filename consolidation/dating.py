"""Resolves the dates of facts and events from their wording, and adds them to the description."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date

from locigraph.kg.language.dates import resolve_times
from locigraph.kg.times import day_in_words
from locigraph.kg.types import Turn

Days = tuple[date, date]
_DAYS = re.compile(r" \([^()]*\b\d{4}\)$")


def days_of(text: str, turn: Turn, given: Days | None) -> Days | None:
    """The days given by the extractor, else those of the first time expression in the text; None if there is none."""
    if given is not None:
        return given
    expressions = resolve_times(text, turn.spoken_at.date() if turn.spoken_at else None)
    return (expressions[0].first, expressions[0].last) if expressions else None


def dated(text: str, days: Days | None) -> str:
    """The text followed by its days in brackets, so that a question that names a date can find it."""
    return text if days is None else f"{text} ({days_in_words(days)})"


def with_days(text: str, turn: Turn, given: Days | None = None) -> str:
    """The text followed by its days in brackets, given or named in it; see ``days_of``."""
    return dated(text, days_of(text, turn, given))


def undated(text: str) -> str:
    """The text without the days in brackets that ``dated`` added."""
    return _DAYS.sub("", text)


def days_in_words(days: Days) -> str:
    """A range of days in words, such as '7 May 2023', 'May 2023', '2023' or '1 May 2023 to 7 May 2023'."""
    first, last = days
    if first == last:
        return day_in_words(first)
    if (
        first.day == 1
        and (first.year, first.month) == (last.year, last.month)
        and last.day == monthrange(last.year, last.month)[1]
    ):
        return f"{first:%B %Y}"
    if (first.month, first.day, last.month, last.day) == (1, 1, 12, 31) and first.year == last.year:
        return f"{first.year}"
    return f"{day_in_words(first)} to {day_in_words(last)}"
