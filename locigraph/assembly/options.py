"""Parses and checks options: names, questions, limits and times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from numbers import Number
from typing import TYPE_CHECKING

from locigraph.kg.errors import LocigraphError, nearest, shortened
from locigraph.kg.name_list import Names, names_in
from locigraph.kg.registry import RowT, Table
from locigraph.kg.times import TIME_RANGE, in_utc, is_in_range, read_time
from locigraph.kg.types import UNSTORABLE, Scope, SpaceId

if TYPE_CHECKING:
    from locigraph.retrieval.budgets import KindLimits

_MOST_DAYS = 36_500
_LEAST_DAYS = 0.001  # less is a mistake in the unit, which would erase everything
#: Largest number of letters of a question.
MAX_QUESTION = 8_000
_MOST = 2**31 - 1  # what every database takes for a whole number


def names(given: Names, table: Table[RowT]) -> list[str]:
    """Names of rows of a table, as a list or separated by commas; returns them without duplicates.

    Raises:
        UnknownNameError: If the table lacks one; the message lists those that it holds.
    """
    return list(dict.fromkeys(table[name].name for name in names_in(given)))


def listed(given: str | Sequence[str]) -> list[str]:
    """The given names as a list; a string is one name, not a sequence of letters.

    Raises:
        LocigraphError: If it is neither a name nor several.
    """
    names: list[str] = [*given] if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    for name in names:
        if not isinstance(name, str):
            raise LocigraphError(f"the name {shortened(name)} is not text; names of spaces, turns and speakers are")
    return names


def one_space(space: str) -> SpaceId:
    """The name of a space; raises LocigraphError if it is no text, such as a list of several."""
    if not isinstance(space, str):
        raise LocigraphError(f"space is {shortened(space)}; expected the name of one space")
    return SpaceId(space)


def check_question(question: str) -> None:
    """Raise LocigraphError if a question is empty, too long, or holds characters that no stored text has."""
    if not isinstance(question, str):
        raise LocigraphError(f"the question is {shortened(question)}; expected text")
    if not question.strip():
        raise LocigraphError("the question is empty; say what to look for")
    if len(question) > MAX_QUESTION:  # others would wait while it is encoded
        raise LocigraphError(
            f"the question has {len(question):,} letters; expected at most {MAX_QUESTION:,}, so ask about a part of it"
        )
    if UNSTORABLE.search(question):
        raise LocigraphError(f"the question {question[:40]!r} contains NUL or a lone surrogate; remove it")


def check_positive(name: str, value: object, *, most: int = _MOST) -> None:
    """Raise LocigraphError, which names the argument, unless its value is a whole number from 1 to ``most``."""
    if type(value) is not int:
        raise LocigraphError(f"{name} is {shortened(value)}; expected a whole number")
    if value < 1:
        raise LocigraphError(f"{name} is {shortened(value)}; expected at least 1")
    if value > most:
        raise LocigraphError(f"{name} is {shortened(value)}; expected at most {most}")


def check_list(name: str, value: object, of: str) -> None:
    """Raise LocigraphError, which names the argument and what it is a list of, if its value is not several of these."""
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise LocigraphError(f"{name} is {shortened(value)}; expected a list of {of}")


def check_text(name: str, value: object) -> None:
    """Raise LocigraphError, which names the argument, if its value is neither text nor None."""
    if value is not None and not isinstance(value, str):
        raise LocigraphError(f"{name} is {shortened(value)}; expected text")


def keep_of(days: object) -> timedelta | None:
    """How long to keep turns, of a number of days; None, for ever, passes through.

    Raises:
        LocigraphError: If it is no number from .001, some minutes, to 36,500.
    """
    if days is None:
        return None
    if isinstance(days, bool) or not isinstance(days, int | float) or not _LEAST_DAYS <= days <= _MOST_DAYS:
        raise LocigraphError(
            f"days is {shortened(days)}; expected a number above 0, from {_LEAST_DAYS} to {_MOST_DAYS:,}, or null; "
            "forget erases at once"
        )
    return timedelta(days=days)


def check_cosine(threshold: float) -> None:
    """Raise LocigraphError unless a threshold is a cosine above 0."""
    if not 0 < threshold <= 1:
        raise LocigraphError(f"threshold is {threshold}; expected a cosine above 0 and up to 1")


def kind_limits(given: Mapping[str, int] | None) -> KindLimits:
    """Limits of a context by kind of memory; a kind that is not named has none.

    Raises:
        LocigraphError: If they are no mapping, a name is not a kind of memory, or a limit is not a whole number of at
            least 0.
    """
    from locigraph.retrieval.budgets import KindLimits

    if given is not None and not isinstance(given, Mapping):
        raise LocigraphError(f"budget_kinds is {shortened(given)}; expected a mapping from kinds of memory to numbers")
    kinds = [field.name for field in fields(KindLimits)]
    for kind, limit in (given or {}).items():
        if kind not in kinds:
            hint = nearest(str(kind), kinds)
            raise LocigraphError(f"budget_kinds names {shortened(kind)}, which is not a kind of memory{hint}")
        if type(limit) is not int or limit < 0:
            raise LocigraphError(f"budget_kinds: {kind} is {shortened(limit)}; expected a whole number, 0 or more")
    return KindLimits(**(given or {}))


def check_named(space: str | Sequence[str] | None, scope: Scope) -> None:
    """Raise LocigraphError unless a space, or a user or agent, is named, these by a text."""
    for name, owner in (("user", scope.user), ("agent", scope.agent)):
        if owner is not None:
            check_text(name, owner)
    if not (space or scope):
        raise LocigraphError("no space is named; name a space (locigraph spaces lists them), or a user or agent")


def time_of(given: object) -> datetime | None:
    """A time in UTC from a datetime or a text in ISO 8601; None stays None.

    Raises:
        LocigraphError: If it is neither, or the time is out of range.
    """
    if given is None:
        return None
    text = str(given)
    try:
        time = given if isinstance(given, datetime) else read_time("" if isinstance(given, Number) else text)
    except ValueError as error:
        raise LocigraphError(
            f"time {shortened(text)} is not ISO 8601; expected a time such as 2024-06-30T00:00:00"
        ) from error
    if not is_in_range(time):
        raise LocigraphError(f"time is {shortened(text)}; expected {TIME_RANGE}")
    return in_utc(time)
