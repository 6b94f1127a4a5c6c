from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.training.pseudo_questions import RULES, pseudo_questions, questions_about
from tests.fakes import make_turns
from tests.fakes_graph import Extra, make_snapshot

SNAPSHOT = make_snapshot(
    make_turns(["I bought a red canoe", "What colour?", "Red"]),
    [
        Extra("knowledge_node", "Ann has a red canoe", (0, 2)),
        Extra("event_node", "Ben asked something", (1,)),
        Extra("concept", "Ann has hobbies", (0,)),
        Extra("knowledge_node", "Ann has no known source"),
    ],
    [(3, "DERIVED_FROM", 0), (3, "DERIVED_FROM", 2), (4, "DERIVED_FROM", 1)],
)


class Echo:
    """Asks once about every statement but those of Ben, and remembers what it was given."""

    name = "echo"

    def __init__(self) -> None:
        self.given: list[str] = []

    def write(self, statements: Sequence[str]) -> list[list[str]]:
        self.given += statements
        return [[] if text.startswith("Ben") else [f"{text}?"] for text in statements]


@pytest.mark.parametrize(
    ("statement", "questions"),
    [
        (
            "Ann bought a red canoe (7 May 2023)",
            ["What did Ann say about bought a red canoe?", "When did Ann mention a red canoe?"],
        ),
        ("Ben is tall.", ["Why is Ben tall?", "What do we know about Ben and tall?"]),
        ("Ann and Ben went home!", ["What did Ann and Ben say about went home?", "When did Ann and Ben mention home?"]),
        ("Ann: the kite", ["What did Ann say about the kite?", "When did Ann mention the kite?"]),
        ("nobody knows", []),
        ("Ann", []),
        ("", []),
    ],
)
def test_a_statement_becomes_the_questions_that_it_answers(statement: str, questions: list[str]) -> None:
    assert questions_about(statement) == questions


@given(st.text(max_size=80))
def test_any_text_gives_questions_or_none(text: str) -> None:
    found = questions_about(text)
    assert len(found) in (0, 2)
    assert all(question.endswith("?") and question[0].isupper() for question in found)


def test_questions_about_facts_and_events_ask_for_the_turns_they_came_from() -> None:
    found = pseudo_questions(SNAPSHOT, RULES)
    assert [turns for _, turns in found] == 2 * [("t0", "t2")] + 2 * [("t1",)]
    assert found[0][0] == "What has Ann a red canoe?"


def test_a_writer_is_given_what_came_from_a_turn_and_may_ask_nothing() -> None:
    echo = Echo()
    assert pseudo_questions(SNAPSHOT, echo) == [("Ann has a red canoe?", ("t0", "t2"))]
    assert echo.given == ["Ann has a red canoe", "Ben asked something"]


def test_an_archived_fact_is_not_asked_about() -> None:
    active = SNAPSHOT.active.copy()
    active[3] = False
    assert pseudo_questions(replace(SNAPSHOT, active=active), Echo()) == []
