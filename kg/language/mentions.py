"""Finds the people and dates that a question names, as tokens that can be matched with a turn's speaker and time."""

from __future__ import annotations

import re
import unicodedata
from datetime import date, datetime

from locigraph.kg.language.calendar_parts import CalendarPart, calendar_parts
from locigraph.kg.language.tokens import STOP_WORDS, normalised, words
from locigraph.kg.snapshot import NO_TIME
from locigraph.kg.times import moment

_WORD = re.compile(r"[^\W\d_]+")


def name_words(names: str) -> list[str]:
    """The words of names in lower case and without accents, since questions often leave accents out."""
    plain = "".join(c for c in normalised("NFKD", names.lower()) if not unicodedata.combining(c))
    return words(plain)


def capitalised(question: str) -> list[tuple[str, bool]]:
    """The words of a question that may be names, each with whether it is at its beginning."""
    # Not abbreviations in capitals. NFC, since a combining accent would end a word.
    found = [(match[0], match.start() == 0) for match in _WORD.finditer(normalised("NFC", question))]
    return [
        (word, is_first)
        for word, is_first in found
        if word[0].isupper() and any(c.islower() for c in word) and word.lower() not in STOP_WORDS
    ]


def named_people(question: str) -> list[str]:
    """The words of a question that may be names, as ``name_words`` gives them."""
    return name_words(" ".join(word for word, _ in capitalised(question)))


def named_dates(question: str, asked_at: datetime | None) -> list[str]:
    """Tokens for the dates that a question names, such as ``m5``, ``y2023m5`` and ``m5d7``.

    Args:
        question: The text.
        asked_at: When it was asked; relative dates are resolved against it, and ignored if it is None.
    """
    parts = calendar_parts(question, asked_at.date() if asked_at else None)
    return [token for part in parts for token in _tokens(part)]


def date_tokens(first: int, last: int) -> list[str]:
    """The date tokens by which a question could name a period; the shorter the period, the finer the tokens.

    Args:
        first: Beginning of the period, seconds since 1970; ``NO_TIME`` gives no token.
        last: End of the period in the same form, or ``NO_TIME`` for a single day.
    """
    if first == NO_TIME:
        return []
    begin = _day(first)
    end = begin if last == NO_TIME else _day(last)
    days = (end - begin).days
    if days > 31:
        return [f"y{begin.year}"]
    if days > 6:
        return [f"y{begin.year}", f"m{begin.month}", f"y{begin.year}m{begin.month}"]
    return [f"y{begin.year}", *_tokens(CalendarPart(begin.year, begin.month, begin.day))]


def _tokens(part: CalendarPart) -> list[str]:
    tokens = []
    if part.month is not None:
        tokens.append(f"m{part.month}")
        if part.year is not None:
            tokens.append(f"y{part.year}m{part.month}")
        if part.day is not None:
            tokens.append(f"m{part.month}d{part.day}")
    elif part.year is not None:
        tokens.append(f"y{part.year}")
    return tokens


def _day(seconds: int) -> date:
    return moment(seconds).date()
