"""Descriptions that end in the days that they are about, in brackets."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date

from locigraph.kg.times import day_in_words

Days = tuple[date, date]
_DAY = r"\d{1,2} [A-Z][a-z]+ \d{4}"
_DAYS = re.compile(rf" \((?:{_DAY}(?: to {_DAY})?|(?:[A-Z][a-z]+ )?\d{{4}})\)$")  # what ``days_in_words`` writes


def dated(text: str, days: Days | None) -> str:
    """The text followed by its days in brackets, so that a question that names a date can find it.

    A text that ends so already is given back as it is.
    """
    if days is None:
        return text
    in_brackets = f" ({days_in_words(days)})"
    return text if text.endswith(in_brackets) else text + in_brackets


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
