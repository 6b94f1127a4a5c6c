from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthetic import synthetic_space
from locigraph.gnn.sketch import HashedFeatures
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import Question, TurnId
from locigraph.training.checkpoint import hashed_features
from locigraph.training.config import ModelConfig
from locigraph.training.examples import Examples, SpaceExample, TrainingSpace, read_space
from locigraph.training.pseudo_questions import RULES
from locigraph.training.snapshots import TrainingGraph
from tests.fakes import MONDAY, SPACE, FakeEncoder, make_turns
from tests.fakes_graph import SMALL_MODEL, TEXT_DIM, Extra, make_snapshot

ENCODER = FakeEncoder(TEXT_DIM)
TURNS = make_turns(["I have a canoe", "What colour?", "Red"])
SNAPSHOT = make_snapshot(
    TURNS,
    [Extra("knowledge_node", "Ann has a red canoe", (0, 2)), Extra("event_node", "Ben asked something", (1,))],
    [(3, "DERIVED_FROM", 0), (3, "DERIVED_FROM", 2), (4, "DERIVED_FROM", 1)],
)


def question(name: str, *evidence: str) -> Question:
    return Question(SPACE, name, f"What of {name}?", "1", tuple(TurnId(turn) for turn in evidence))


def graph(*questions: Question, snapshot: Snapshot = SNAPSHOT, is_training: bool = True) -> TrainingGraph:
    return TrainingGraph("a space", lambda: snapshot, questions, is_training)


def example(*questions: Question, **options: Any) -> SpaceExample:
    return read_space(graph(*questions), model=SMALL_MODEL, encoder=ENCODER, **options).whole()


def test_each_question_is_joined_with_the_turns_that_answer_it() -> None:
    made = example(
        question("a", "t0", "t2"), question("unanswerable", "t99"), question("b", "t1", "t99"), question("c")
    )
    assert made.positive.tolist() == [[True, False, True], [False, True, False]]
    assert made.questions is not None
    assert len(made.questions) == 2
    np.testing.assert_array_equal(made.questions[:, :TEXT_DIM], ENCODER.encode(["What of a?", "What of b?"]))
    assert made.inputs.rows[: made.inputs.num_turns].tolist() == [0, 1, 2]
    assert made.pseudo is None
    assert made.name == "a space"


def test_a_turn_that_is_archived_answers_nothing() -> None:
    active = SNAPSHOT.active.copy()
    active[0] = False
    archived = replace(SNAPSHOT, active=active)
    asked = graph(question("a", "t0"), question("b", "t0", "t2"), snapshot=archived)
    made = read_space(asked, model=SMALL_MODEL, encoder=ENCODER).whole()
    assert made.positive.tolist() == [[False, True]]


def test_dates_in_a_question_are_read_from_when_it_was_asked() -> None:
    asked = [replace(question("a", "t0"), text="Who called yesterday?", asked_at=time) for time in (None, MONDAY)]
    made = example(*asked).questions
    assert made is not None
    assert not torch.equal(made[0, TEXT_DIM + SMALL_MODEL.lexical_dim :], made[1, TEXT_DIM + SMALL_MODEL.lexical_dim :])


def test_pseudo_questions_are_made_of_training_spaces_where_a_writer_is_given() -> None:
    made = example(writer=RULES)
    assert made.questions is None
    assert made.positive.shape == (0, 3)
    assert made.pseudo is not None
    assert len(made.pseudo) == 4
    assert made.pseudo_positive.tolist() == 2 * [[True, False, True]] + 2 * [[False, True, False]]
    held_back = read_space(graph(is_training=False), model=SMALL_MODEL, encoder=ENCODER, writer=RULES).whole()
    assert held_back.pseudo is None


def test_features_go_to_the_device_and_answers_stay_on_the_cpu() -> None:
    made = replace(example(question("a", "t0"), writer=RULES), correction=torch.zeros(3))
    moved = made.to("meta")
    on = {name: value.device.type for name, value in vars(moved).items() if isinstance(value, torch.Tensor)}
    assert on == {
        "questions": "meta",
        "positive": "cpu",
        "pseudo": "meta",
        "pseudo_positive": "cpu",
        "correction": "meta",
    }
    assert moved.inputs.text.device.type == "meta"
    assert made.nbytes > made.inputs.lexical.nbytes + made.inputs.text.nbytes


# --- large spaces -------------------------------------------------------------------------------------------------


def large(*, turns: int, step_turns: int) -> TrainingSpace:
    snapshot, questions = synthetic_space(2, turns=turns, dim=TEXT_DIM)
    graph = TrainingGraph("large", lambda: snapshot, tuple(questions), is_training=True)
    return read_space(graph, model=SMALL_MODEL, encoder=ENCODER, step_turns=step_turns)


@settings(max_examples=20, deadline=None)
@given(st.integers(8, 300), st.integers(0, 1_000))
def test_a_step_takes_answers_and_random_turns_that_stand_for_the_others(step_turns: int, seed: int) -> None:
    space = large(turns=200, step_turns=step_turns)
    taken = space.step(torch.Generator().manual_seed(seed))
    assert taken.inputs.num_turns == min(200, step_turns)
    assert taken.positive.any(1).all()
    assert taken.correction is not None
    assert taken.correction.exp().sum().item() == pytest.approx(200, rel=1e-4)
    answers = taken.positive.any(0)
    assert (taken.correction[answers] == 0).all()
    assert int(answers.sum()) <= max(1, step_turns // 4)
    assert (step_turns < 200) == bool(taken.correction.any())


def test_a_question_with_more_answers_than_a_step_takes_leaves_no_room_for_other_turns() -> None:
    space = large(turns=100, step_turns=8)
    asked = replace(space.questions.some([0]), answers=(np.arange(12),))
    space = replace(space, questions=asked, pseudo=asked.some([]))
    taken = space.step(torch.Generator().manual_seed(0))
    assert taken.inputs.num_turns == 12
    assert taken.correction is not None
    assert taken.correction.tolist() == [0.0] * 12


def test_each_step_takes_another_part() -> None:
    space, generator = large(turns=200, step_turns=40), torch.Generator().manual_seed(0)
    parts = [space.step(generator) for _ in range(2)]
    assert parts[0].inputs.rows.tolist() != parts[1].inputs.rows.tolist()


def test_validation_reads_all_turns_and_all_questions_of_a_large_space_in_blocks() -> None:
    space = large(turns=100, step_turns=30)
    whole = space.whole()
    assert [block.num_turns for block in space.blocks()] == [30, 30, 30, 10]
    (asked,) = space.asked()
    assert torch.equal(asked[0], whole.questions)  # type: ignore[arg-type]  # there are questions
    assert torch.equal(asked[1], whole.positive)


def test_a_space_is_prepared_whole_if_it_fits_into_a_step() -> None:
    assert isinstance(large(turns=100, step_turns=100).prepared(), SpaceExample)
    assert isinstance(large(turns=101, step_turns=100).prepared(), TrainingSpace)


def test_examples_hold_no_more_than_their_budget_and_the_one_in_use() -> None:
    names = [f"space {i}" for i in range(6)]
    graphs = [TrainingGraph(name, lambda: SNAPSHOT, (), True) for name in names]
    made: list[weakref.ref[SpaceExample]] = []

    def make(graph: TrainingGraph) -> SpaceExample:
        one = read_space(graph, model=SMALL_MODEL, encoder=ENCODER).whole()
        made.append(weakref.ref(one))
        return one

    size = make(graphs[0]).nbytes
    examples = Examples(graphs, make, keep=2 * size)
    for _ in range(2):
        for place, name in enumerate(names):
            assert examples[place].name == name
            assert sum(one() is not None for one in made) <= 3
    assert examples[5] is examples[5]


@pytest.mark.long
def test_a_step_on_a_large_space_needs_memory_for_the_step_and_not_for_the_space() -> None:
    space, generator = large(turns=20_000, step_turns=100), torch.Generator().manual_seed(0)
    assert space.step(generator).nbytes < 0.02 * space.whole().nbytes


def test_relations_that_the_model_excludes_are_no_edges() -> None:
    whole, bare = (
        read_space(graph(), model=replace(SMALL_MODEL, excluded_relations=excluded), encoder=ENCODER).whole()
        for excluded in ([], ["NEXT", "fact"])
    )
    assert len(whole.inputs.source) > len(bare.inputs.source) == 1


def test_the_features_have_the_widths_of_the_model() -> None:
    assert hashed_features(SMALL_MODEL) == HashedFeatures(64, 8, 16)
    bare = read_space(graph(), model=ModelConfig(lexical_dim=5, speaker_dim=0, date_dim=0), encoder=ENCODER).whole()
    assert (bare.inputs.lexical.shape[1], bare.inputs.context.shape[1]) == (5, 0)
