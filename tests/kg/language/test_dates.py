from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.language.calendar_parts import CalendarPart, calendar_parts
from locigraph.kg.language.dates import resolve_times

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


# --- spoken on Wednesday 16 October 2024 ---------------------------------------------------------------------

AUTUMN = date(2024, 10, 16)


def said(text: str) -> list[tuple[str, str]]:
    return days(text, AUTUMN)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("My exam starts on Monday, 4 November.", "2024-11-04"),
        ("on Sunday, May 5, 2019", "2019-05-05"),
        ("It was last Friday, 4 October", "2024-10-04"),
        ("next Tuesday the 5th of November", "2024-11-05"),
        ("on Friday, 2024-11-01", "2024-11-01"),
        ("on Monday, Nov 4", "2024-11-04"),
    ],
)
def test_a_weekday_before_a_date_is_no_expression_of_its_own(text: str, day: str) -> None:
    assert said(text) == [(day, day)]


@pytest.mark.parametrize("text", ["on Friday the 4th", "this Friday 18th"])
def test_a_weekday_before_a_date_that_cannot_be_resolved_is_left_out(text: str) -> None:
    assert said(text) == []


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("on Friday next week", "2024-10-25"),
        ("on Friday last week", "2024-10-11"),
        ("on Friday of next week", "2024-10-25"),
        ("Monday this week", "2024-10-14"),
        ("next week on Friday", "2024-10-25"),
        ("I fly to Rome the day after tomorrow.", "2024-10-18"),
        ("the day before yesterday", "2024-10-14"),
    ],
)
def test_a_day_told_in_several_words_is_one_expression(text: str, day: str) -> None:
    assert said(text) == [(day, day)]


@pytest.mark.parametrize(
    "clause",
    [
        "I see my dentist about the tooth", "I will see Ann", "I'll see Ann", "I’ll see Ann", "I won't come",
        "She is going to call", "I'm flying to Rome", "We’re not meeting", "Are you coming", "She's moving",
        "I have an exam", "I've got the vet", "I have an appointment with Dr. Smith", "The rent is due", "I plan to go",
        "I'm excited to see my sister", "I heard that we're meeting", "I left early, but I will be back", "See you",
        "My next lesson is", "The exam is", "I'm off", "The shop is closed", "There's a concert in the old park",
        "My flight leaves", "I fly to Rome", "We meet", "The meeting is at 9", "The party is at Tom's",
    ],
)  # fmt: skip
def test_a_weekday_after_a_sign_of_the_future_is_the_coming_one(clause: str) -> None:
    assert said(f"{clause} on Friday.") == [("2024-10-18", "2024-10-18")]


@pytest.mark.parametrize(
    "clause",
    [
        "", "I met Ann", "I had an appointment", "We planned a trip", "I was going to see her", "I'm glad we met",
        "I will be fine. I fell", "She wasn't due", "We sat next to him", "I finished the plan", "I'm proud of my win",
        "The shop was closed", "There was a concert",
    ],
)  # fmt: skip
def test_any_other_weekday_is_the_last_one(clause: str) -> None:
    assert said(f"{clause} on Friday.") == [("2024-10-11", "2024-10-11")]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("twenty-five years ago", "1999-01-01", "1999-12-31"),
        ("twenty five years ago", "1999-01-01", "1999-12-31"),
        ("eleven days ago", "2024-10-05", "2024-10-05"),
        ("in twenty-one days", "2024-11-06", "2024-11-06"),
        ("half a year ago", "2024-04-01", "2024-04-30"),
    ],
)
def test_numbers_in_words_are_read_whole(text: str, first: str, last: str) -> None:
    assert said(text) == [(first, last)]


@pytest.mark.parametrize(
    "text",
    [
        "1.5 years ago", "2.5 weeks ago", "1,500 years ago", "5-6 years ago", "half a month ago",
        "a hundred and five years ago", "one year and two months ago", "two weeks and three days ago",
        "two or three weeks ago",
    ],
)  # fmt: skip
def test_the_end_of_a_longer_number_is_not_read_alone(text: str) -> None:
    assert said(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "the last week of May", "the last week of 2023", "the week before last week", "the year before last year",
        "two days before yesterday", "two days after tomorrow", "on 12 March '23", "a month ago today",
    ],
)  # fmt: skip
def test_what_the_words_around_an_expression_move_elsewhere_is_left_out(text: str) -> None:
    assert said(text) == []


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("the second week of May 2021", "2021-05-08", "2021-05-14"),
        ("first week of May, 2021", "2021-05-01", "2021-05-07"),
        ("from 3 to 5 May", "2024-05-03", "2024-05-05"),
        ("on 3-5 May", "2024-05-03", "2024-05-05"),
        ("May 3-5", "2024-05-03", "2024-05-05"),
        ("a year ago today", "2023-05-08", "2023-05-08"),
        ("three weeks ago today", "2024-04-17", "2024-04-17"),
    ],
)
def test_years_ranges_and_days_beside_an_expression_belong_to_it(text: str, first: str, last: str) -> None:
    assert [(str(each.first), str(each.last)) for each in resolve_times(text, SPOKEN)] == [(first, last)]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("March 3-9, 2021", "2021-03-03", "2021-03-09"),
        ("From March 3 to March 9, 2021", "2021-03-03", "2021-03-09"),
        ("April 12 and 13, 2019", "2019-04-12", "2019-04-13"),
        ("the 3rd to 9th of March 2021", "2021-03-03", "2021-03-09"),
        ("from 3 March until 9 April 2021", "2021-03-03", "2021-04-09"),
        ("from December 30 to January 2, 2021", "2020-12-30", "2021-01-02"),
        ("in March and April 2021", "2021-03-01", "2021-04-30"),
    ],
)
def test_the_year_after_several_days_belongs_to_all_of_them(text: str, first: str, last: str) -> None:
    assert said(text) == said(text.lower()) == days(text, None) == [(first, last)]


def test_days_in_the_wrong_order_give_nothing() -> None:
    assert said("March 9-3, 2021") == []


@pytest.mark.parametrize(
    "clause", ["I finished the Spanish course", "I haven't slept", "It was done", "The best film I've seen"]
)
@pytest.mark.parametrize("span", ["two weeks", "3 days", "a month"])
def test_a_span_after_a_verb_in_the_past_is_a_duration_and_no_time(clause: str, span: str) -> None:
    assert said(f"{clause} in {span}.") == []


def test_a_span_after_any_other_verb_lies_ahead() -> None:
    assert said("I told her I'll be back in two weeks") == said("I move in two weeks") == [("2024-10-28", "2024-11-03")]


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
        (
            "What happened between December 2022 and January 2023?",
            [CalendarPart(2022, 12), CalendarPart(2023, 1)],
        ),
        ("What happened on 12 and 13 May?", [CalendarPart(None, 5, 12), CalendarPart(None, 5, 13)]),
        ("Was it May 30 or 14?", [CalendarPart(None, 5, 30), CalendarPart(None, 5, 14)]),
        ("What happened on May 4 at 10?", [CalendarPart(None, 5, 4)]),
        ("Was it on the 30th or 31st of May?", [CalendarPart(None, 5, 30), CalendarPart(None, 5, 31)]),
        ("What happened in June 12:30?", [CalendarPart(None, 6)]),
        ("In May 2020, in 2021 or in July?", [CalendarPart(2020, 5), CalendarPart(2021, 7)]),
        ("What may Ann like?", []),
        ("May I ask who Ann is?", []),
        ("Who is Ann?", []),
    ],
)
def test_a_question_names_the_parts_of_a_date(question: str, expected: list[CalendarPart]) -> None:
    assert calendar_parts(question) == expected


def test_relative_words_of_a_question_count_when_they_name_days_of_a_week_months_or_a_year() -> None:
    assert calendar_parts("What did I buy yesterday?", SPOKEN) == [CalendarPart(2024, 5, 7)]
    assert len(calendar_parts("What did I buy last week?", SPOKEN)) == 7
    assert calendar_parts("What did I buy last month?", SPOKEN) == [CalendarPart(2024, 4)]
    assert calendar_parts("What did I buy last year?", SPOKEN) == [CalendarPart(2023)]
    assert calendar_parts("What did I buy in the last six months?", SPOKEN) == []
    assert calendar_parts("What did I buy yesterday?") == []


@pytest.mark.parametrize(
    ("text", "spoken_on", "day"),
    [
        ("I moved on Feb 29", "2024-03-01", "2024-02-29"), ("Jan 2 we leave", "2024-12-30", "2025-01-02"),
        ("We left 3 Sept.", "2024-10-01", "2024-09-03"), ("I fell last Tue", "2021-05-18", "2021-05-11"),
        ("I'm flying to Rome next Fri", "2021-05-18", "2021-05-21"), ("I bought it Monday", "2025-01-03", "2024-12-30"),
        ("I will sell it Monday.", "2025-01-03", "2025-01-06"), ("We went Sunday evening", "2025-01-03", "2024-12-29"),
        ("The wedding was 25/12/2024", "2025-01-03", "2024-12-25"),
        ("It was 12/25/2024", "2025-01-03", "2024-12-25"),
        ("Das war am 3.9.2024.", "2025-01-03", "2024-09-03"), ("See you May 2!", "2024-04-20", "2024-05-02"),
        ("The March 12 meeting", "2024-03-01", "2024-03-12"),
        ("I broke my leg on 5 May last year", "2024-03-02", "2023-05-05"),
        ("We leave on May 5th of next year", "2024-03-02", "2025-05-05"),
        ("Last year, on 5 May, I fell", "2024-03-02", "2023-05-05"),
        ("We broke up on 20 June", "2024-01-10", "2023-06-20"),
        ("I booked a flight on 20 June", "2024-01-10", "2024-06-20"),
        ("I will fly on 20 May", "2024-11-10", "2025-05-20"),
        ("I'll never forget the concert on 3 May", "2024-05-10", "2024-05-03"),
        ("The vet gave us an appointment on 3 July", "2024-02-10", "2024-07-03"),
        ("On Friday I'm flying to Rome", "2024-01-02", "2024-01-05"),
        ("The concert on Friday will be great", "2024-01-02", "2024-01-05"),
        ("On Friday I told Tom I will come", "2024-01-02", "2023-12-29"),
        ("We were born March 3rd in Rome", "2024-03-01", "2024-03-03"),
        ("The wedding has been moved to 12 June", "2024-01-10", "2024-06-12"),
        ("The exam is at school on 10 September", "2024-01-11", "2024-09-10"),
        ("I moved in two days ago", "2024-01-11", "2024-01-09"),
    ],
)  # fmt: skip
def test_short_names_bare_weekdays_and_dates_in_numbers_are_read(text: str, spoken_on: str, day: str) -> None:
    (found,) = resolve_times(text, date.fromisoformat(spoken_on))
    assert found.first == found.last == date.fromisoformat(day)


@pytest.mark.parametrize(
    ("text", "spoken_on", "month"),
    [
        ("In May last year I broke my leg", "2024-01-02", "2023-05"),
        ("We are moving in May next year", "2024-03-02", "2025-05"),
        ("Last year in May I fell", "2024-03-02", "2023-05"),
        ("I graduated in June", "2024-01-10", "2023-06"),
        ("I graduated in March", "2024-01-10", "2024-03"),  # too near to be sure
        ("We will move to Rome in May", "2024-11-20", "2025-05"),
        ("We planned to move in June", "2024-01-10", "2024-06"),
        ("I'm living here since October", "2024-05-10", "2023-10"),
        ("I'm living here since March", "2024-05-10", "2024-03"),
    ],
)
def test_a_month_has_the_year_that_is_named_or_that_of_the_tense(text: str, spoken_on: str, month: str) -> None:
    (found,) = resolve_times(text, date.fromisoformat(spoken_on))
    assert found.first == date.fromisoformat(f"{month}-01")
    assert found.last.isoformat().startswith(month)


@pytest.mark.parametrize(
    "text",
    [
        "They made us march 12 miles in the rain.", "You may 2 or 3 times a week skip it.", "We march 3 abreast.",
        "Only 2 may enter the room.", "It was 3/4/2024 or so", "Every Monday I swam", "I swam every Monday.",
        "Monday is my day off.", "I worked every other Friday.", "He left the following Monday.",
        "I counted them: 12 may be missing.", "Of the guests, 3 may not come.", "A loan at 4.9 APR.",
        "I met Jan 3 times.", "The sun was hot", "I like Fri", "It cost 1.5.2 or so", "version 10.11.20205",
        "I paid a deposit of 2000 euros.", "a crowd of 2000 people", "It depends on sun and rain.", "on sun protection",
        "I last sat for an exam", "Coming in late may annoy my boss.", "early may help", "The cake was made by April.",
        "We play tennis on Friday nights.",
    ],
)  # fmt: skip
def test_verbs_numbers_and_days_of_every_week_are_no_dates(text: str) -> None:
    assert resolve_times(text, date(2024, 8, 20)) == []


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("What was lunch like on Sept 3?", "What was lunch like on September 3?"),
        ("When did Ann have lunch in Feb 2024?", "When did Ann have lunch in February 2024?"),
        ("What happened on 2024-09-03?", "What happened on 3 September 2024?"),
        ("What happened on 3.9.2024?", "What happened on 3 September 2024?"),
        ("And on 25/12/2024?", "And on 25 December 2024?"), ("What did she do in Jan.?", "What did she do in January?"),
        ("And on the 5th Oct?", "And on the 5th October?"),
    ],
)  # fmt: skip
def test_a_question_may_write_a_date_in_short(short: str, full: str) -> None:
    assert calendar_parts(short) == calendar_parts(full) != []


def test_short_names_of_people_in_a_question_are_no_months() -> None:
    assert calendar_parts("Did Jan tell Mar about Dec?") == []


@pytest.mark.parametrize(
    "question",
    [
        "What did June say about the trip?", "What did April buy?", "What does Tom think this may cost?",
        "Where did they march?", "How late may I call?",
    ],
)  # fmt: skip
def test_people_and_verbs_that_are_called_like_months_are_none_in_a_question(question: str) -> None:
    assert calendar_parts(question) == []


@pytest.mark.parametrize(
    ("question", "months"),
    [
        ("What happened in June?", [6]), ("What did she do on June 9?", [6]), ("Who led the April workshop?", [4]),
        ("What did Ana do last August?", [8]), ("What happened between March and May?", [3, 5]),
        ("June or July?", [6, 7]), ("What did they do on 3 March?", [3]), ("What about May 2023?", [5]),
        ("What did she say in early March?", [3]), ("Did it end before April?", [4]),
        ("What did Ann plan for June?", [6]), ("Who visited around March?", [3]), ("From June onwards, what?", [6]),
        ("Was machte Anna im August?", [8]), ("What did Ann say in May she wanted?", [5]), ("Whose June trip?", [6]),
        ("Why did a day in May have to be moved?", [5]), ("What is your March estimate?", [3]),
    ],
)  # fmt: skip
def test_months_that_are_also_names_are_months_beside_words_for_times(question: str, months: list[int]) -> None:
    assert [part.month for part in calendar_parts(question)] == months


def test_a_year_after_of_is_one_where_it_is_no_sum() -> None:
    for text in ("The summer of 2010 was hot.", "the class of 2010", "the flood of 2010", "the start of 2010"):
        assert [(each.first, each.last) for each in resolve_times(text, None)] == [
            (date(2010, 1, 1), date(2010, 12, 31))
        ]
    assert len(resolve_times("the Olympics of 2000 were great", None)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "We met on Sat at noon.", "I saw Ann last Wed for lunch.", "We fly next Mon to Oslo.", "Last Sat was great",
        "We moved in May just before the baby", "In May work was hard", "On 3 May work was hard",
        "We met on 12 May just before noon.",
    ],
)  # fmt: skip
def test_days_and_months_in_short_are_read_whatever_follows(text: str) -> None:
    assert len(resolve_times(text, date(2024, 5, 15))) == 1


@pytest.mark.parametrize("word", ["launched", "rewas", "unwent", "overate"])
def test_a_word_that_is_cut_where_looking_for_the_tense_ends_does_no_harm(word: str) -> None:
    for padding in range(130):
        found = resolve_times(f"{word} {'a' * padding} x on 3 May", date(2024, 10, 1))
        assert [each.text for each in found] == ["3 May"]
