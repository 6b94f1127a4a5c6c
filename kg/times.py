"""Conversion of times to whole seconds since 1970 UTC, the form in which tables, arrays and indexes hold them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from math import floor

#: Times outside this range are refused, so that date arithmetic stays within Python's years 1 to 9999.
EARLIEST, LATEST = datetime(1000, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)
#: The range as error messages describe it.
TIME_RANGE = f"a time from {EARLIEST:%Y} to {LATEST.year - 1}"


def in_utc(at: datetime) -> datetime:
    """The time in UTC, which decides its day; a time without zone is read as UTC."""
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def is_in_range(at: datetime) -> bool:
    """Whether a time lies within the range that can be stored; a time without zone is read as UTC."""
    return EARLIEST <= (at if at.tzinfo else at.replace(tzinfo=UTC)) < LATEST


def read_time(text: str) -> datetime:
    """A time in ISO 8601; raises ValueError for anything else.

    Python would read seconds and milliseconds since 1970 as a day and an hour of another century.
    """
    beginning = text.strip()[:9]
    if len(beginning) == 9 and beginning.isdecimal():
        raise ValueError(f"{text} is not ISO 8601")
    return datetime.fromisoformat(text)


def epoch(at: datetime) -> int:
    """Whole seconds since 1970 UTC, rounded down; a time without zone is read as UTC."""
    return floor(in_utc(at).timestamp())


def optional_epoch(at: datetime | None) -> int | None:
    """``epoch`` that passes None through."""
    return None if at is None else epoch(at)


def moment(seconds: int) -> datetime:
    """Inverse of ``epoch``."""
    return datetime.fromtimestamp(seconds, UTC)


def optional_moment(seconds: int | None) -> datetime | None:
    """Inverse of ``optional_epoch``."""
    return None if seconds is None else moment(seconds)


def day_in_words(day: date) -> str:
    """A day as a question would name it, such as '7 May 2023'."""
    return f"{day.day} {day:%B %Y}"


def day_start(day: date) -> datetime:
    """The first second of a day, in UTC."""
    return datetime.combine(day, time.min, UTC)


def day_end(day: date) -> datetime:
    """The last second of a day, in UTC."""
    return datetime.combine(day, time(23, 59, 59), UTC)
