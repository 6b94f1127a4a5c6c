from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.language.dates import CalendarPart, calendar_parts, resolve_times

# Wednesday 8 May 2024. Its week runs from Monday 6 to Sunday 12 May.
SPOKEN = date(2024, 5, 8)


def days(text: str, spoken_on: date | None = SPOKEN) -> list[tuple[str, str]]:
    return [(str(e.first), str(e.last)) for e in resolve_times(text, spoken_on)]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("on 2023-02-28", "2023-02-28", "2023-02-28"),
        ("7 May 2023", "2023-05-07", "2023-05-07"),
        ("the 1st of March, 2023", "2023-03-01", "2023-03-01"),
        ("March 2nd, 2023", "2023-03-02", "2023-03-02"),
        ("Sept. 3 2023", "2023-09-03", "2023-09-03"),
        ("29 February 2024", "2024-02-29", "2024-02-29"),
        ("February 2023", "2023-02-01", "2023-02-28"),
        ("since 2019", "2019-01-01", "2019-12-31"),
    ],
)
def test_absolute_dates_need_no_anchor(text: str, first: str, last: str) -> None:
    assert days(text) == days(text, None) == [(first, last)]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("this morning", "2024-05-08", "2024-05-08"),
        ("last night", "2024-05-07", "2024-05-07"),
        ("the day before yesterday", "2024-05-06", "2024-05-06"),
        ("tomorrow", "2024-05-09", "2024-05-09"),
        ("three days ago", "2024-05-05", "2024-05-05"),
        ("a couple of days ago", "2024-05-06", "2024-05-06"),
        ("in 10 days", "2024-05-18", "2024-05-18"),
        ("last week", "2024-04-29", "2024-05-05"),
        ("two weeks ago", "2024-04-22", "2024-04-28"),
        ("next week", "2024-05-13", "2024-05-19"),
        ("last weekend", "2024-05-04", "2024-05-05"),
        ("this past weekend", "2024-05-04", "2024-05-05"),
        ("this weekend", "2024-05-11", "2024-05-12"),
        ("next weekend", "2024-05-18", "2024-05-19"),
        ("last month", "2024-04-01", "2024-04-30"),
        ("five months ago", "2023-12-01", "2023-12-31"),
        ("in 8 months", "2025-01-01", "2025-01-31"),
        ("last year", "2023-01-01", "2023-12-31"),
        ("10 years ago", "2014-01-01", "2014-12-31"),
        ("last Friday", "2024-05-03", "2024-05-03"),
        ("last Wednesday", "2024-05-01", "2024-05-01"),
        ("next Wednesday", "2024-05-15", "2024-05-15"),
        ("this coming Sunday", "2024-05-12", "2024-05-12"),
        ("last May", "2023-05-01", "2023-05-31"),
        ("next March", "2025-03-01", "2025-03-31"),
        ("in January", "2024-01-01", "2024-01-31"),
        ("in December", "2023-12-01", "2023-12-31"),  # five months back, seven ahead
        ("the second week of April", "2024-04-08", "2024-04-14"),
        ("on 7 June", "2024-06-07", "2024-06-07"),
        ("December 30th", "2023-12-30", "2023-12-30"),
        ("February 29", "2024-02-29", "2024-02-29"),
    ],
)
def test_relative_expressions_are_resolved_against_the_day_they_were_said(text: str, first: str, last: str) -> None:
    assert days(text) == [(first, last)]
    assert days(text, None) == []


@pytest.mark.parametrize(
    "text",
    [
        "30 February 2023", "February 30, 2023", "2023-02-29", "2023-13-01", "31 April", "the 0th of March",
        "29 February 2023",
    ],
)  # fmt: skip
def test_an_impossible_date_gives_nothing_not_even_its_month(text: str) -> None:
    assert days(text) == []


def test_29_february_without_a_leap_year_nearby_gives_nothing() -> None:
    assert days("29 February", date(2022, 5, 1)) == []  # 2021, 2022 and 2023 have none


def test_what_lies_outside_the_calendar_gives_nothing() -> None:
    assert days("two days ago", date(1, 1, 1)) == []
    assert days("ten years ago", date(5, 1, 1)) == []
    assert days("next year", date(9999, 12, 31)) == []


@pytest.mark.parametrize(
    "text", ["I may go", "May I ask?", "You may be right", "march on", "Friday is fine", "a second", ""]
)
def test_words_that_only_look_like_dates_are_left_alone(text: str) -> None:
    assert days(text) == []


def test_the_longest_reading_wins_where_two_overlap() -> None:
    found = resolve_times("We met on 7 May 2023 and again yesterday.", SPOKEN)
    assert [(e.text, e.first) for e in found] == [("7 May 2023", date(2023, 5, 7)), ("yesterday", date(2024, 5, 7))]


def test_an_expression_keeps_its_words_and_spans_whole_days() -> None:
    (found,) = resolve_times("Back LAST Week!", SPOKEN)
    assert found.text == "LAST Week"
    assert (found.first, found.last) == (date(2024, 4, 29), date(2024, 5, 5))


def test_letters_that_grow_when_made_small_do_not_shift_the_words() -> None:
    (found,) = resolve_times("İİİ yesterday", SPOKEN)
    assert found.text == "yesterday"


@given(st.text(st.sampled_from("0123456789 -,amyprjunelstwkofi30dFeb"), max_size=60), st.dates())
def test_any_text_gives_ordered_spans_without_overlap(text: str, spoken_on: date) -> None:
    reached = 0
    for expression in resolve_times(text, spoken_on):
        assert expression.first <= expression.last
        reached = text.index(expression.text, reached) + len(expression.text)


@given(st.dates(min_value=date(1000, 1, 1), max_value=date(2999, 12, 31)))
def test_every_day_is_read_back_from_its_iso_form(day: date) -> None:
    assert days(f"on {day.isoformat()}", None) == [(str(day), str(day))]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What did Ann do on 7 May 2023?", [CalendarPart(2023, 5, 7)]),
        ("In 2023, on 12 June, what did Ann do?", [CalendarPart(2023, 6, 12)]),
        ("What happened in May?", [CalendarPart(None, 5, None)]),
        ("What happened in 2022?", [CalendarPart(2022)]),
        ("What was sold in June or July 2023?", [CalendarPart(2023, 6), CalendarPart(2023, 7)]),
        ("What may Ann like?", []),
        ("May I ask who Ann is?", []),
        ("Who is Ann?", []),
    ],
)
def test_a_question_names_the_parts_of_a_date(question: str, expected: list[CalendarPart]) -> None:
    assert calendar_parts(question) == expected


def test_relative_words_of_a_question_count_when_they_name_at_most_a_week() -> None:
    assert calendar_parts("What did I buy yesterday?", SPOKEN) == [CalendarPart(2024, 5, 7)]
    assert len(calendar_parts("What did I buy last week?", SPOKEN)) == 7
    assert calendar_parts("What did I buy last month?", SPOKEN) == []
    assert calendar_parts("What did I buy yesterday?") == []
