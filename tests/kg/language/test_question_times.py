from __future__ import annotations

import time
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.language.dates import resolve_times
from locigraph.kg.language.question_times import FIRST_DAY, LAST_DAY, question_days

# Thursday 17 August 2023. Its week runs from Monday 14 to Sunday 20 August.
ASKED = date(2023, 8, 17)
OPEN = ""


def days(text: str, asked_on: date | None = ASKED) -> tuple[str, str] | None:
    """First and last day in ISO form; an open end is "" ."""
    found = question_days(text, asked_on)
    ends = {FIRST_DAY: OPEN, LAST_DAY: OPEN}
    return None if found is None else (ends.get(found[0], str(found[0])), ends.get(found[1], str(found[1])))


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("What did Ann do before May 2023?", OPEN, "2023-04-30"),
        ("before the 9th of June 2023", OPEN, "2023-06-08"),
        ("before Friday, 9 June 2023", OPEN, "2023-06-08"),
        ("prior to 9 June 2023", OPEN, "2023-06-08"),
        ("before 2023", OPEN, "2022-12-31"),
        ("before the summer of 2023", OPEN, "2023-05-31"),
        ("after 9 June 2023", "2023-06-10", OPEN),
        ("after May 2023", "2023-06-01", OPEN),
        ("after 2022", "2023-01-01", OPEN),
        ("until 9 June 2023", OPEN, "2023-06-09"),
        ("till May 2023", OPEN, "2023-05-31"),
        ("How often had Nate won by 10 July 2022?", OPEN, "2022-07-10"),
        ("up to 9 June 2023", OPEN, "2023-06-09"),
        ("until yesterday", OPEN, "2023-08-16"),
    ],
)
def test_before_and_until_leave_the_beginning_open_and_after_the_end(text: str, first: str, last: str) -> None:
    assert days(text) == (first, last)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("What has Ann read since June 2023?", "2023-06-01"),
        ("since 2019", "2019-01-01"),
        ("since yesterday", "2023-08-16"),
        ("since last week", "2023-08-07"),
        ("since last spring", "2023-03-01"),
        ("since June", "2023-06-01"),
        ("since January", "2023-01-01"),
        ("since October", "2022-10-01"),  # the last one, though the next one is nearer
    ],
)
def test_since_reaches_to_the_day_of_asking(text: str, first: str) -> None:
    assert days(text) == (first, "2023-08-17")


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("Since May 2023, what changed until July 2023?", "2023-05-01", "2023-07-31"),
        ("What did Ann read after 2 May 2023 that Ben had read before 9 June 2023?", "2023-05-03", "2023-06-08"),
        ("not before 9 June 2023", "2023-06-09", "2023-08-17"),
        ("no later than 9 June 2023", OPEN, "2023-06-09"),
    ],
)
def test_bounds_that_stand_apart_hold_together_and_denied_ones_are_the_other_bound(
    text: str, first: str, last: str
) -> None:
    assert days(text) == (first, last)


@pytest.mark.parametrize(
    "text",
    [
        "What happened before or after 9 June 2023?",
        "before and after 9 June 2023",
        "not after 9 June 2023",
        "What did Ann do after 1 May 2023, and what until 3 April 2023?",
    ],
)
def test_bounds_that_exclude_nothing_or_everything_name_no_time(text: str) -> None:
    assert days(text) is None


def test_since_without_a_day_of_asking_has_no_end_and_what_is_to_come_is_no_beginning() -> None:
    assert days("since June 2023", None) == ("2023-06-01", OPEN)
    assert days("since September 2023") is None


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("since the end of May 2023", "2023-05-01", "2023-08-17"),
        ("since early 2023", "2023-01-01", "2023-08-17"),
        ("before the end of May 2023", OPEN, "2023-05-31"),
        ("before the first weekend of August 2023", OPEN, "2023-08-31"),
        ("after the beginning of 2023", "2023-01-01", OPEN),
    ],
)
def test_what_is_bounded_by_a_part_of_a_time_may_lie_in_it(text: str, first: str, last: str) -> None:
    assert days(text) == (first, last)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        # 9 June 2023 is a Friday, 1 May 2023 a Monday.
        ("the week before 9 June 2023", "2023-06-02", "2023-06-08"),
        ("in the week after the 9th of June 2023", "2023-06-10", "2023-06-16"),
        ("the week before May 2023", "2023-04-24", "2023-04-30"),
        ("week before 9 June 2023", "2023-06-02", "2023-06-08"),
        ("the day before 9 June 2023", "2023-06-08", "2023-06-08"),
        ("the day after May 2023", "2023-06-01", "2023-06-01"),
        ("the weekend before 9 June 2023", "2023-06-03", "2023-06-04"),
        ("the weekend after 9 June 2023", "2023-06-10", "2023-06-11"),
        ("the weekend before 10 June 2023", "2023-06-03", "2023-06-04"),  # a Saturday
        ("the weekend after 10 June 2023", "2023-06-17", "2023-06-18"),
        ("the month before May 2023", "2023-04-01", "2023-04-30"),
        ("the month after May 2023", "2023-06-01", "2023-06-30"),
        ("the year before 2023", "2022-01-01", "2022-12-31"),
        ("the Friday before 9 June 2023", "2023-06-02", "2023-06-02"),
        ("the Saturday after 9 June 2023", "2023-06-10", "2023-06-10"),
        ("What did Ann do last weekend before 10 April 2023?", "2023-04-08", "2023-04-09"),
        ("on Sunday before 25 October 2022", "2022-10-23", "2022-10-23"),
        ("two days after 9 June 2023", "2023-06-11", "2023-06-11"),
        ("two weeks before 11 August 2023", "2023-07-24", "2023-07-30"),  # the week of 28 July
        ("the weekend of 22 July 2023", "2023-07-22", "2023-07-23"),
        ("the week of 19 July 2023", "2023-07-17", "2023-07-23"),
    ],
)
def test_a_unit_before_or_after_a_time_is_the_one_beside_it(text: str, first: str, last: str) -> None:
    assert days(text) == (first, last)


@pytest.mark.parametrize(
    "text",
    ["two or three weeks before 9 June 2023", "more than a week before 9 June 2023", "the month before 9 June 2023",
     "a few days before 9 June 2023", "every weekend before 9 June 2023", "half a week before 9 June 2023",
     "in the two weeks before 9 June 2023"],
)  # fmt: skip
def test_where_it_is_not_clear_how_long_before_all_that_is_before_counts(text: str) -> None:
    assert days(text) == (OPEN, "2023-06-08")


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("last spring", "2023-03-01", "2023-05-31"),
        ("last summer", "2022-06-01", "2022-08-31"),  # this one is not over
        ("last winter", "2022-12-01", "2023-02-28"),
        ("last summer, 2021", "2021-06-01", "2021-08-31"),
        ("this past spring", "2023-03-01", "2023-05-31"),
        ("this summer", "2023-06-01", "2023-08-31"),
        ("summer 2023", "2023-06-01", "2023-08-31"),
        ("in the fall of 2022", "2022-09-01", "2022-11-30"),
        ("two weekends ago", "2023-08-05", "2023-08-06"),
        ("in the last three months", "2023-05-17", "2023-08-17"),
        ("over the past 2 weeks", "2023-08-03", "2023-08-17"),
        ("in the past year", "2022-08-17", "2023-08-17"),
        ("early 2023", "2023-01-01", "2023-12-31"),
    ],
)
def test_seasons_weekends_and_spans_up_to_today_are_resolved(text: str, first: str, last: str) -> None:
    assert days(text) == (first, last)


def test_a_span_of_months_begins_on_the_last_day_of_a_month_that_is_too_short() -> None:
    assert days("in the last three months", date(2023, 5, 31)) == ("2023-02-28", "2023-05-31")


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("after May 2023 and before July 2023", "2023-06-01", "2023-06-30"),
        ("since May 2023 until 9 July 2023", "2023-05-01", "2023-07-09"),
        ("from 3 March 2021 until 9 April 2021", "2021-03-03", "2021-04-09"),
        ("in 2022, before June 2022", "2022-01-01", "2022-05-31"),
        ("between May 2022 and July 2023", "2022-05-01", "2023-07-31"),
        ("in March 2023, and where was Ben yesterday?", "2023-03-01", "2023-08-16"),
        ("in March 2023, and where was Ben after April 2023?", "2023-03-01", OPEN),
    ],
)
def test_times_that_limit_each_other_are_cut_and_others_taken_together(text: str, first: str, last: str) -> None:
    assert days(text) == (first, last)


@pytest.mark.parametrize(
    "text",
    [
        "winter 2022", "the winter of 2022", "this winter", "before 30 February 2023", "the week before last week",
        "before last week", "two or three weekends ago", "the weekend of 19 July 2023",
        "before May 2023 or after July 2023", "before May 2023 and after July 2023", "before the summer", "since then",
        "before", "the week before 1000-01-01", "after 2999-12-31",
    ],
)  # fmt: skip
def test_what_is_ambiguous_or_excludes_no_time_names_none(text: str) -> None:
    assert days(text) is None


@pytest.mark.parametrize(
    "text",
    ["after the trip on 9 June 2023", "before lunch on 9 June 2023", "a photo of 9 June 2023",
     "Since when? 9 June 2023"],
)  # fmt: skip
def test_words_that_stand_apart_from_a_time_do_not_move_it(text: str) -> None:
    assert days(text) == ("2023-06-09", "2023-06-09")


@pytest.mark.parametrize("text", ["the last week of May 2023", "in the last two weeks of May 2023"])
def test_a_part_of_a_time_is_looked_for_in_all_of_it(text: str) -> None:
    assert days(text) == ("2023-05-01", "2023-05-31")


@pytest.mark.parametrize("text", ["since June 2023", "before May 2023", "the week before 9 June 2023", "last spring"])
def test_what_is_remembered_is_read_as_before(text: str) -> None:
    expected = {"since June 2023": "June 2023", "before May 2023": "May 2023", "last spring": None}
    found = [each.text for each in resolve_times(text, ASKED)]
    assert found == [name for name in [expected.get(text, "9 June 2023")] if name is not None]


PIECES = [
    "before ", "after ", "since ", "until ", "the ", "week ", "weekend of ", "two ", "and ", "9 June 2023 ",
    "May 2023 ", "2023 ", "last ", "summer ", "weekends ago ", "Friday ", ", ", "1000-01-01 ", "2999-12-31 ",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.none() | st.dates())
def test_any_words_give_a_range_in_order_or_none(text: str, asked_on: date | None) -> None:
    found = question_days(text, asked_on)
    assert found is None or FIRST_DAY <= found[0] <= found[1] <= LAST_DAY


@pytest.mark.parametrize("piece", ["before ", "the week before 9 June 2023 ", "before May 2023 and ", "last summer "])
def test_the_time_grows_with_the_text_and_not_with_its_square(piece: str) -> None:
    def seconds(size: int) -> float:
        begun = time.process_time()
        question_days((piece * size)[:size] + str(size), ASKED)
        return time.process_time() - begun

    seconds(1_000)
    assert seconds(80_000) < 8 * max(min(seconds(20_000 + each) for each in range(3)), 0.01)
