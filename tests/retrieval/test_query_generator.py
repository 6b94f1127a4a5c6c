from __future__ import annotations

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
    assert generate_queries(question) == queries


@given(st.text(max_size=60))
def test_the_first_query_is_the_question_as_it_stands(question: str) -> None:
    first, *others = generate_queries(question)
    assert first == question
    assert all(query.strip() for query in others)


def test_no_question_becomes_more_queries_than_a_search_can_bear() -> None:
    question = " and ".join(f"where is number {i}" for i in range(500))
    queries = generate_queries(question)
    assert queries[0] == question
    assert queries[1:] == [f"where is number {i}" for i in range(MAX_CLAUSES)]
