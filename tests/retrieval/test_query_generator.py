from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.retrieval.query_generator import RuleQueryGenerator


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
    made = RuleQueryGenerator().generate(question, asked_at=None)
    assert [query.text for query in made] == queries
    assert all(query.types is None for query in made)


@given(st.text(max_size=60))
def test_the_first_query_is_the_question_as_it_stands(question: str) -> None:
    made = RuleQueryGenerator().generate(question, asked_at=None)
    assert made[0].text == question
    assert all(query.text.strip() for query in made[1:])
