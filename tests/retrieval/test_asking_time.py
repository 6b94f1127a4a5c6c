from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from locigraph.kg.types import SpaceId
from locigraph.retrieval.asking_time import asking_time, day_of_asking
from tests.fakes import SPACE

TODAY = date(2024, 5, 15)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (None, TODAY),
        (date(2024, 5, 15), TODAY),
        (date(2024, 5, 20), TODAY),
        (date(2024, 4, 14), TODAY),
        (date(2024, 4, 13), date(2024, 4, 13)),
        (date(2019, 1, 2), date(2019, 1, 2)),
    ],
)
def test_a_question_is_asked_today_unless_the_talk_ended_over_a_month_ago(last: date | None, expected: date) -> None:
    assert day_of_asking(last, TODAY) == expected


def test_the_day_is_read_only_for_a_question_with_relative_dates_and_without_a_time() -> None:
    read: list[SpaceId] = []

    def day_of(space: SpaceId) -> date | None:
        read.append(space)
        return TODAY

    at = datetime(2023, 1, 2, 3, tzinfo=UTC)
    assert asking_time("What did I buy last Saturday?", SPACE, as_of=at, day_of=day_of) == at
    assert asking_time("What did I buy last Saturday?", SPACE, as_of=None, day_of=None) is None
    for question in ("What did I buy?", "What did I buy on 7 May 2023?"):
        assert asking_time(question, SPACE, as_of=None, day_of=day_of) is None
    assert read == []
    assert asking_time("What did I buy last Saturday?", SPACE, as_of=None, day_of=day_of) == datetime(
        2024, 5, 15, tzinfo=UTC
    )
    assert read == [SPACE]
    assert asking_time("What did I buy yesterday?", SPACE, as_of=None, day_of=lambda _: None) is None
