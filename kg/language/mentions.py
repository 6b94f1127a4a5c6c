"""Which people and dates a question names, and in the same terms who said a turn and when."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, date, datetime

from locigraph.kg.language.dates import CalendarPart, calendar_parts
from locigraph.kg.language.tokens import STOP_WORDS, normalised, words
from locigraph.kg.snapshot import NO_TIME

_WORD = re.compile(r"[^\W\d_]+")


def name_words(names: str) -> list[str]:
    """The words of names in lower case and without accents, which questions tend to leave out."""
    plain = "".join(c for c in normalised("NFKD", names.lower()) if not unicodedata.combining(c))
    return words(plain)


def named_people(question: str) -> list[str]:
    """The words of a question that may be names, as ``name_words`` gives them."""
    # Capitalised, but not abbreviations, which are no one's name. NFC, since a combining accent would end a word.
    composed = normalised("NFC", question)
    names = [word for word in _WORD.findall(composed) if word[0].isupper() and any(c.islower() for c in word)]
    return name_words(" ".join(name for name in names if name.lower() not in STOP_WORDS))


def named_dates(question: str, asked_at: datetime | None) -> list[str]:
    """The dates that a question names, each as tokens from coarse to fine.

    Args:
        question: The text.
        asked_at: When it was asked, which relative dates refer to; None leaves these out.
    """
    parts = calendar_parts(question, asked_at.date() if asked_at else None)
    return [token for part in parts for token in _tokens(part)]


def date_tokens(first: int, last: int) -> list[str]:
    """The tokens by which a question could name a time: the finer, the shorter it is.

    Args:
        first: Its beginning, seconds since 1970; ``NO_TIME`` gives no token.
        last: Its end, or ``NO_TIME`` for a single day.
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
    return datetime.fromtimestamp(seconds, UTC).date()
