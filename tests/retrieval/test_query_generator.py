from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.retrieval.query_generator import MAX_CLAUSES, generate_queries


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


def seconds(first: date, last: date) -> tuple[int, int]:
    """The first second of the one day and the last of the other."""
    midnight = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in (first, last + timedelta(days=1))]
    return int(midnight[0].timestamp()), int(midnight[1].timestamp()) - 1
