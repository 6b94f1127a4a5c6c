from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.pseudo_questions import pseudo_questions


@pytest.mark.parametrize(
    ("statement", "questions"),
    [
        (
            "Ann bought a red canoe (7 May 2023)",
            ["What did Ann say about bought a red canoe?", "When did Ann mention a red canoe?"],
        ),
        ("Ben is tall.", ["Why is Ben tall?", "What do we know about Ben and tall?"]),
        ("Ann and Ben went home!", ["What did Ann and Ben say about went home?", "When did Ann and Ben mention home?"]),
        ("nobody knows", []),
        ("Ann", []),
        ("", []),
    ],
)  # fmt: skip
def test_a_statement_becomes_the_questions_that_it_answers(statement: str, questions: list[str]) -> None:
    assert pseudo_questions(statement) == questions


@given(st.text(max_size=80))
def test_any_text_gives_questions_or_none(text: str) -> None:
    found = pseudo_questions(text)
    assert len(found) in (0, 2)
    assert all(question.endswith("?") and question[0].isupper() for question in found)
