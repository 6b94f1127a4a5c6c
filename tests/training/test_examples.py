from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader

from locigraph.kg.types import Question, TurnId
from locigraph.training.config import ModelConfig
from locigraph.training.examples import EpochDataModule, SpaceExample, make_example, make_sketch
from locigraph.training.errors import TrainingDataError
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.fakes_graph import CONTEXT, SKETCH, TEXT_DIM, Extra, make_snapshot, planted_space

EMBED = FakeEncoder(TEXT_DIM).encode
TURNS = make_turns(["I have a canoe", "What colour?", "Red"])
SNAPSHOT = make_snapshot(
    TURNS,
    [Extra("knowledge_node", "Ann has a red canoe", (0, 2)), Extra("event_node", "Ben asked something", (1,))],
    [(3, "DERIVED_FROM", 0), (3, "DERIVED_FROM", 2), (4, "DERIVED_FROM", 1)],
)


def question(name: str, *evidence: str) -> Question:
    return Question(SPACE, name, f"What of {name}?", "1", tuple(TurnId(turn) for turn in evidence))


def named(name: str) -> SpaceExample:
    made = make_example(SNAPSHOT, [question("q", "t0")], sketch=SKETCH, context=CONTEXT, embed=EMBED)
    return replace(made, name=name)


def test_each_question_is_joined_with_the_turns_that_answer_it() -> None:
    asked = [question("a", "t0", "t2"), question("unanswerable", "t99"), question("b", "t1", "t99"), question("none")]
    made = make_example(SNAPSHOT, asked, sketch=SKETCH, context=CONTEXT, embed=EMBED)
    assert made.positive.tolist() == [[True, False, True], [False, True, False]]
    assert made.questions is not None
    assert len(made.questions) == 2
    assert made.episodes.tolist() == [0, 1, 2]
    assert made.pseudo == {}
    assert made.name == SPACE


def test_pseudo_queries_go_with_the_example_and_to_its_device() -> None:
    made = make_example(SNAPSHOT, [], sketch=SKETCH, context=CONTEXT, embed=EMBED, pseudo=("facts", "fact_questions"))
    assert made.questions is None
    assert made.positive.shape == (0, 3)
    assert made.to("cpu").pseudo.keys() == {"facts", "fact_questions"}


def test_frequent_stems_of_turns_and_facts_get_buckets_of_their_own() -> None:
    sketch = make_sketch([SNAPSHOT], ModelConfig(lexical_dim=16, dedicated_terms=2))
    # Ann speaks twice and has a fact; of "cano" and "red", in two documents each, the first by name.
    assert sketch.dedicated == ("ann", "cano")
    assert make_sketch([SNAPSHOT], ModelConfig(lexical_dim=16, dedicated_terms=0)).dedicated == ()


def test_the_sketch_weighs_terms_as_the_model_says() -> None:
    model = ModelConfig(lexical_dim=16, dedicated_terms=2, idf_of=["concept"], saturation=0.5, length_norm=0.25)
    sketch = make_sketch([SNAPSHOT], model)
    assert (sketch.idf_of, sketch.saturation, sketch.length_norm) == (("concept",), 0.5, 0.25)


def test_a_model_without_lexical_part_needs_no_stems() -> None:
    assert make_sketch([SNAPSHOT], ModelConfig(lexical_dim=0, dedicated_terms=1024)).dedicated == ()


def test_a_space_on_both_sides_is_refused() -> None:
    with pytest.raises(TrainingDataError, match="space 'b' is among the training and the validation spaces"):
        EpochDataModule([named("a"), named("b")], [named("b")], seed=0)
    with pytest.raises(TrainingDataError, match="no space to train on"):
        EpochDataModule([], [named("b")], seed=0)


def test_every_training_space_is_dealt_once_an_epoch_in_an_order_of_the_seed() -> None:
    names = [f"s{i}" for i in range(8)]
    orders = []
    for seed in (0, 0, 1):
        data = EpochDataModule([named(name) for name in names], [], seed=seed)
        orders.append([example.name for example in data.train_dataloader()])
    assert sorted(orders[0]) == names
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_validation_spaces_come_in_order_and_none_means_no_loader() -> None:
    loader = EpochDataModule([named("a")], [named("z"), named("b")], seed=0).val_dataloader()
    assert isinstance(loader, DataLoader)
    assert [example.name for example in loader] == ["z", "b"]
    assert EpochDataModule([named("a")], [], seed=0).val_dataloader() == []


def test_a_planted_space_becomes_tensors_of_fitting_sizes() -> None:
    snapshot, questions = planted_space(1)
    made = make_example(snapshot, questions, sketch=SKETCH, context=CONTEXT, embed=EMBED)
    assert made.questions is not None
    assert made.questions.text.shape == (6, TEXT_DIM)
    assert torch.equal(made.positive, torch.eye(6, dtype=torch.bool))
