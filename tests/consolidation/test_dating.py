from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from locigraph.consolidation.dating import days_of
from locigraph.kg.language.dated_texts import dated, days_in_words, undated
from locigraph.kg.times import day_end, day_start
from tests.fakes import make_turn

TURN = make_turn(0, "x")  # Monday 1 January 2024
AUTUMN = datetime(2024, 10, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (date(2023, 5, 7), date(2023, 5, 7), "7 May 2023"),
        (date(2023, 5, 1), date(2023, 5, 31), "May 2023"),
        (date(2023, 2, 1), date(2023, 2, 28), "February 2023"),
        (date(2023, 5, 1), date(2023, 5, 28), "1 May 2023 to 28 May 2023"),
        (date(2023, 1, 1), date(2023, 12, 31), "2023"),
        (date(2023, 12, 25), date(2024, 1, 7), "25 December 2023 to 7 January 2024"),
    ],
)
def test_days_are_said_as_shortly_as_they_can_be(first: date, last: date, words: str) -> None:
    assert days_in_words((first, last)) == words
    assert dated("Ann sails", (first, last)) == f"Ann sails ({words})"


def test_the_first_expression_of_a_text_dates_it_unless_days_are_given() -> None:
    day = date(2023, 12, 31)
    assert days_of("She fell yesterday and rose today", TURN, None) == (day, day)
    given = (date(2020, 1, 1), date(2020, 1, 1))
    assert days_of("She fell yesterday", TURN, given) == given
    assert days_of("She fell", TURN, None) is None
    assert days_of("She fell yesterday", make_turn(0, "x", dated=False), None) is None


def test_a_weekday_before_a_date_does_not_date_a_text() -> None:
    day = date(2024, 11, 4)
    assert days_of("My exam starts on Monday, 4 November.", make_turn(0, "x", spoken_at=AUTUMN), None) == (day, day)


def test_a_text_without_days_stays_as_it_is() -> None:
    assert dated("Ann sails", None) == "Ann sails"


def test_a_day_lasts_from_midnight_to_its_last_second() -> None:
    assert day_start(date(2024, 1, 1)) == datetime(2024, 1, 1, tzinfo=UTC)
    assert day_end(date(2024, 1, 1)) == datetime(2024, 1, 1, 23, 59, 59, tzinfo=UTC)


def test_the_last_month_that_python_can_count_is_said_in_words() -> None:
    assert days_in_words((date(9999, 12, 1), date(9999, 12, 31))) == "December 9999"


def test_a_text_names_no_day_outside_the_range_that_is_kept() -> None:
    last = datetime(2999, 12, 20, tzinfo=UTC)
    for text in ("this month", "next month", "in 9 weeks", "on 9999-12-31", "on 0001-01-01"):
        days = days_of(text, make_turn(0, text, spoken_at=last), None)
        assert days in (None, (date(2999, 12, 1), date(2999, 12, 31)))


@pytest.mark.parametrize("days", [(date(2024, 5, 1), date(2024, 5, 3)), (date(2024, 5, 1), date(2024, 5, 31)), None])
def test_days_in_brackets_can_be_taken_off_again(days: tuple[date, date] | None) -> None:
    assert undated(dated("Ann (the painter) moved (to Porto)", days)) == "Ann (the painter) moved (to Porto)"


def test_only_days_are_taken_off_and_days_are_said_once() -> None:
    assert undated("Ann has a bike, a Trek (model 4300)") == "Ann has a bike, a Trek (model 4300)"
    day = date(2023, 12, 30)
    assert dated("Ann sold it last Saturday (30 December 2023)", (day, day)).count("30 December") == 1
