from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from locigraph.gnn.sketch import HashedFeatures
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import Question, TurnId
from locigraph.training.checkpoint import hashed_features
from locigraph.training.config import ModelConfig
from locigraph.training.examples import SpaceExample, make_example
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
    return TrainingGraph("a space", snapshot, questions, is_training)


def example(*questions: Question, **options: Any) -> SpaceExample:
    return make_example(graph(*questions), model=SMALL_MODEL, encoder=ENCODER, **options)


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
    made = make_example(asked, model=SMALL_MODEL, encoder=ENCODER)
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
    held_back = make_example(graph(is_training=False), model=SMALL_MODEL, encoder=ENCODER, writer=RULES)
    assert held_back.pseudo is None


def test_every_tensor_of_an_example_goes_to_the_device() -> None:
    moved = example(question("a", "t0"), writer=RULES).to("meta")
    assert moved.questions is not None
    assert moved.pseudo is not None
    held = [moved.inputs, moved]
    tensors = [value for each in held for value in vars(each).values() if isinstance(value, torch.Tensor)]
    assert len(tensors) == 11 + 4
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_relations_that_the_model_excludes_are_no_edges() -> None:
    whole, bare = (
        make_example(graph(), model=replace(SMALL_MODEL, excluded_relations=excluded), encoder=ENCODER)
        for excluded in ([], ["NEXT", "fact"])
    )
    assert len(whole.inputs.source) > len(bare.inputs.source) == 1


def test_the_features_have_the_widths_of_the_model() -> None:
    assert hashed_features(SMALL_MODEL) == HashedFeatures(64, 8, 16)
    bare = make_example(graph(), model=ModelConfig(lexical_dim=5, speaker_dim=0, date_dim=0), encoder=ENCODER)
    assert (bare.inputs.lexical.shape[1], bare.inputs.context.shape[1]) == (5, 0)
