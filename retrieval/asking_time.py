"""When a question counts as asked, from which its relative dates are reckoned, such as "last Saturday"."""

from __future__ import annotations

from datetime import UTC, date, datetime, time

from locigraph.kg.language.mentions import named_dates
from locigraph.kg.text_caches import cached
from locigraph.kg.types import SpaceId
from locigraph.retrieval.query_generator import LastDay

#: Talk in which nothing was said for longer is a record, to whose readers "last week" means its last week.
_LIVE_DAYS = 31
_SOME_DAY = datetime(2024, 5, 15, tzinfo=UTC)


def asking_time(question: str, space: SpaceId, *, as_of: datetime | None, day_of: LastDay | None) -> datetime | None:
    """When a question counts as asked: ``as_of``, or else the beginning of a day, read if the question needs one.

    Args:
        question: The question.
        space: The space that is asked.
        as_of: The time as of which it is asked, if one was given.
        day_of: Reads the day on which questions are asked of a space; None if relative dates are to be ignored.
    """
    if as_of is not None or day_of is None or not _has_relative_dates(question):
        return as_of
    day = day_of(space)
    return None if day is None else datetime.combine(day, time(), UTC)


def day_of_asking(last: date | None, today: date) -> date:
    """The day on which a question without a time is asked: today, or the last day of talk that ended a month ago."""
    return today if last is None or (today - last).days <= _LIVE_DAYS else last


@cached(4_096)
def _has_relative_dates(question: str) -> bool:
    return named_dates(question, _SOME_DAY) != named_dates(question, None)
