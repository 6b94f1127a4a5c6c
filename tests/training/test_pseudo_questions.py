from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.gnn.hetero import GraphInputs
from locigraph.training.pseudo_queries import (
    KINDS,
    RULES,
    Kind,
    PseudoQueries,
    cut_span,
    make_pseudo_queries,
    pseudo_questions,
)
from tests.fakes import FakeEncoder, make_turns
from tests.fakes_graph import CONTEXT, SKETCH, TEXT_DIM, Extra, make_inputs, make_snapshot

EMBED = FakeEncoder(TEXT_DIM).encode
LONG = "I bought a red canoe at the lake from my uncle"
SNAPSHOT = make_snapshot(
    make_turns([LONG, "What colour?", "Red"]),
    [Extra("knowledge_node", "Ann has a red canoe", (0, 2)), Extra("event_node", "Ben asked something", (1,))],
    [(3, "DERIVED_FROM", 0), (3, "DERIVED_FROM", 2), (4, "DERIVED_FROM", 1)],
)
CANDIDATES = {"t0": 0, "t1": 1, "t2": 2}


def made(*kinds: Kind) -> dict[Kind, PseudoQueries]:
    return make_pseudo_queries(kinds, SNAPSHOT, CANDIDATES, sketch=SKETCH, context=CONTEXT, embed=EMBED, writer=RULES)


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


def test_facts_and_their_questions_ask_for_the_turns_they_came_from() -> None:
    found = made("facts", "fact_questions")
    assert found["facts"].positive.tolist() == [[True, False, True], [False, True, False]]
    assert found["fact_questions"].positive.tolist() == 2 * [[True, False, True]] + 2 * [[False, True, False]]
    assert found["facts"].masked is None


def test_a_span_asks_for_its_turn_which_is_shown_without_it() -> None:
    spans = made("spans")["spans"]
    assert spans.positive.tolist() == [[True, False, False]]  # the other turns are too short
    cut = cut_span(SNAPSHOT.descriptions[0])
    assert cut is not None
    assert spans.queries.text[0].tolist() == pytest.approx(EMBED([cut[0]])[0].tolist())
    whole, masked = make_inputs(SNAPSHOT), spans.masked
    assert isinstance(masked, GraphInputs)
    assert masked.text[0].tolist() == pytest.approx(EMBED([cut[1]])[0].tolist())
    assert masked.text[1:].equal(whole.text[1:])
    assert masked.graph.source.equal(whole.graph.source)
    assert masked.rows.equal(whole.rows)
    # Half as many words; the turns that keep theirs count them as before.
    assert masked.traits[0, 0] < whole.traits[0, 0]
    assert masked.traits[1:].equal(whole.traits[1:])


def test_kinds_of_which_a_space_gives_nothing_are_left_out() -> None:
    short = make_snapshot(make_turns(["Hi", "Hello"]), [], [])
    assert (
        make_pseudo_queries(KINDS, short, CANDIDATES, sketch=SKETCH, context=CONTEXT, embed=EMBED, writer=RULES) == {}
    )


def test_queries_go_to_a_device_with_their_masked_graph() -> None:
    moved = made("spans")["spans"].to("meta")
    assert moved.masked is not None
    assert {moved.queries.text.device.type, moved.positive.device.type, moved.masked.text.device.type} == {"meta"}


@given(st.lists(st.sampled_from(["ann", "red", "a", "of", "Ben:"]), max_size=20))
def test_a_span_and_the_rest_hold_all_words_of_the_turn_once(words: list[str]) -> None:
    cut = cut_span("Ann: " + " ".join(words))
    if cut is None:
        assert len(words) < 8
    else:
        span, rest = cut
        assert rest.startswith("Ann: ")
        assert sorted(span.split() + rest.removeprefix("Ann: ").split()) == sorted(words)
        assert len(span.split()) == len(words) // 2
        assert " " + span + " " in " " + " ".join(words) + " "
