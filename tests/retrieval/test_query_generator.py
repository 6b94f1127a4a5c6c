from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.errors import LocigraphError
from locigraph.retrieval import query_generator
from locigraph.retrieval.query_generator import (
    MAX_CLAUSES,
    OPEN_WINDOW,
    SearchQuery,
    WrittenQueries,
    generate_queries,
    named_window,
)


@pytest.mark.parametrize(
    ("question", "queries"),
    [
        ("Where does Ann live?", ["Where does Ann live?"]),
        ("What did Ann and Ben buy?", ["What did Ann and Ben buy?"]),
        (
            "Where does Ann live, and when did she move?",
            ["Where does Ann live, and when did she move?", "Where does Ann live", "when did she move?"],
        ),
        (
            "Who sang or who danced AND why did it stop",
            ["Who sang or who danced AND why did it stop", "Who sang", "who danced", "why did it stop"],
        ),
        ("", [""]),
    ],
)
def test_a_question_that_asks_several_things_becomes_several_queries(question: str, queries: list[str]) -> None:
    assert [query.text for query in generate_queries(question)] == queries


@given(st.text(max_size=60))
def test_the_first_query_is_the_question_as_it_stands(question: str) -> None:
    first, *others = generate_queries(question)
    assert first.text == question
    assert all(query.text.strip() for query in others)


def test_no_question_becomes_more_queries_than_a_search_can_bear() -> None:
    question = " and ".join(f"where is number {i}" for i in range(500))
    queries = [query.text for query in generate_queries(question)]
    assert queries[0] == question
    assert queries[1:] == [f"where is number {i}" for i in range(MAX_CLAUSES)]


def test_times_are_resolved_from_the_day_of_the_question_and_belong_to_the_clause_that_names_them() -> None:
    asked_on = date(2024, 5, 10)
    whole, first, second = generate_queries("What did Ann buy in March 2024 and where was Ben yesterday?", asked_on)
    assert first.window == seconds(date(2024, 3, 1), date(2024, 3, 31))
    assert second.window == seconds(date(2024, 5, 9), date(2024, 5, 9))
    assert whole.window == seconds(date(2024, 3, 1), date(2024, 5, 9))
    assert generate_queries("Where was Ben yesterday?")[0].window is None


def test_a_window_that_is_open_to_one_side_reaches_to_the_first_or_last_second_there_is() -> None:
    asked_on = date(2023, 8, 17)
    first, last = OPEN_WINDOW
    assert named_window("What did Ann do before May 2023?", asked_on) == (
        first, seconds(date(2023, 4, 30), date(2023, 4, 30))[1],
    )  # fmt: skip
    assert named_window("after May 2023", asked_on) == (seconds(date(2023, 6, 1), date(2023, 6, 1))[0], last)
    assert named_window("since June 2023", asked_on) == seconds(date(2023, 6, 1), asked_on)


def seconds(first: date, last: date) -> tuple[int, int]:
    """The first second of the one day and the last of the other."""
    midnight = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in (first, last + timedelta(days=1))]
    return int(midnight[0].timestamp()), int(midnight[1].timestamp()) - 1


@dataclass(frozen=True)
class Words:
    text: str
    types: tuple[str, ...] = ()
    time: str | None = None
    intent: str | None = None


class Writer:
    """Writes what it holds by question, and fails where it holds nothing."""

    name = "writer 1"

    def __init__(self, **written: Sequence[Words]) -> None:
        self.written = written
        self.asked: list[str] = []

    def __call__(self, question: str, asked_on: date | None) -> Sequence[Words]:
        self.asked.append(question)
        if question not in self.written:
            raise LocigraphError(f"nothing is written about {question}")
        return self.written[question]


ASKED_ON = date(2024, 5, 10)  # a Friday


def test_written_queries_follow_the_question_and_their_times_are_resolved_from_the_day_of_the_question() -> None:
    queries = WrittenQueries(
        Writer(sea=[Words("Ann swam", ("event_node",), "last week"), Words("Ann at the sea", time="yesterday")])
    )
    last_week = seconds(date(2024, 4, 29), date(2024, 5, 5))
    yesterday = seconds(date(2024, 5, 9), date(2024, 5, 9))
    assert queries("sea", ASKED_ON) == (
        SearchQuery("sea", None, (last_week[0], yesterday[1])),
        SearchQuery("Ann swam", ("event_node",), last_week),
        SearchQuery("Ann at the sea", None, yesterday),
    )
    assert [query.window for query in queries("sea")] == [None, None, None]
    assert queries.notes == []


@pytest.mark.parametrize(
    ("time", "first", "last"),
    [
        ("2022", date(2022, 1, 1), date(2022, 12, 31)),
        ("March", date(2024, 3, 1), date(2024, 3, 31)),
        ("on 7 May 2023", date(2023, 5, 7), date(2023, 5, 7)),
    ],
)
def test_a_time_is_read_with_and_without_a_preposition(time: str, first: date, last: date) -> None:
    assert WrittenQueries(Writer(q=[Words("x", time=time)]))("q", ASKED_ON)[1].window == seconds(first, last)


def test_words_that_name_no_time_make_no_window_and_the_question_keeps_its_own() -> None:
    whole, written = WrittenQueries(
        Writer(**{"Who sang in May 2023?": [Words("a song", time="when the moon was blue")]})
    )("Who sang in May 2023?", ASKED_ON)
    assert whole.window == seconds(date(2023, 5, 1), date(2023, 5, 31))
    assert written.window is None


def test_written_times_that_exclude_nothing_together_make_no_window_of_the_question() -> None:
    queries = WrittenQueries(Writer(q=[Words("x", time="before May 2023"), Words("y", time="after July 2023")]))
    whole, before, after = queries("q", ASKED_ON)
    assert whole.window is None
    assert (before.window, after.window) == (
        named_window("before May 2023", None),
        named_window("after July 2023", None),
    )


def test_a_query_that_says_the_question_again_is_not_searched_for_twice() -> None:
    assert WrittenQueries(Writer(sea=[Words("sea"), Words("waves"), Words("waves")]))("sea") == (
        SearchQuery("sea"),
        SearchQuery("waves"),
    )


def test_where_the_writer_fails_rules_make_the_queries_which_is_said_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer = Writer(sea=[Words("waves")])
    queries = WrittenQueries(writer)
    asked = "Where is Ann and where was Ben yesterday?"
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert queries(asked, ASKED_ON) == generate_queries(asked, ASKED_ON)
        queries("hill")
        assert [query.text for query in queries("sea")] == ["sea", "waves"]
    assert [record.message for record in caplog.records] == [
        f"the query writer failed, so queries are made by rules: nothing is written about {asked}"
    ]
    assert queries.notes == [
        "the query writer failed, so the queries of 2 questions were made by rules; first error: nothing is written "
        f"about {asked}"
    ]


def test_what_is_written_is_asked_for_once_and_a_failure_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5.0
    monkeypatch.setattr("locigraph.retrieval.query_generator.time.monotonic", lambda: now)
    writer = Writer(sea=[Words("waves")])
    queries = WrittenQueries(writer)
    for question in ("sea", "sea", "hill", "hill"):
        queries(question)
    assert writer.asked == ["sea", "hill"]
    writer.written["hill"] = [Words("up")]
    now += 59.9
    assert len(queries("hill")) == 1
    now += 0.1
    assert len(queries("hill")) == 2
    assert writer.asked == ["sea", "hill", "hill"]


def test_what_is_kept_of_questions_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_generator, "_KEPT", 5)
    queries = WrittenQueries(Writer(**{f"q{i}": [Words(f"q{i}", intent="why")] for i in range(20)}))
    for i in range(40):  # the last twenty fail
        queries(f"q{i}")
    assert [i for i in range(20) if queries.intent_of(f"q{i}")] == [15, 16, 17, 18, 19]
    assert queries.notes[0].startswith("the query writer failed, so the queries of 5 questions were made by rules")


def test_what_is_asked_for_is_known_of_the_question_and_of_each_query_that_was_written() -> None:
    queries = WrittenQueries(Writer(q=[Words("one"), Words("two", intent="when"), Words("three", intent="why")]))
    assert queries.intent_of("q") is None
    assert [query.intent for query in queries("q")] == ["when", None, "when", "why"]
    assert [queries.intent_of(text) for text in ("q", "one", "two", "three")] == ["when", None, "when", "why"]
