from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from locigraph.kg.types import Question, TurnId
from locigraph.training.checkpoint import features_of
from locigraph.training.config import ModelConfig
from locigraph.training.examples import EpochDataModule, SpaceExample, make_example
from locigraph.training.pseudo_questions import RULES
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


def example(*questions: Question, **options: Any) -> SpaceExample:
    return make_example(SNAPSHOT, questions, model=SMALL_MODEL, encoder=ENCODER, **options)


def named(name: str) -> SpaceExample:
    return example(question("q", "t0"), name=name)


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
    assert made.name == SPACE


def test_a_turn_that_is_archived_answers_nothing() -> None:
    active = SNAPSHOT.active.copy()
    active[0] = False
    archived = replace(SNAPSHOT, active=active)
    made = make_example(archived, [question("a", "t0"), question("b", "t0", "t2")], model=SMALL_MODEL, encoder=ENCODER)
    assert made.positive.tolist() == [[False, True]]


def test_dates_in_a_question_are_read_from_when_it_was_asked() -> None:
    asked = [replace(question("a", "t0"), text="Who called yesterday?", asked_at=time) for time in (None, MONDAY)]
    made = example(*asked).questions
    assert made is not None
    assert not torch.equal(made[0, TEXT_DIM + SMALL_MODEL.lexical_dim :], made[1, TEXT_DIM + SMALL_MODEL.lexical_dim :])


def test_pseudo_questions_are_made_where_a_writer_is_given() -> None:
    made = example(writer=RULES)
    assert made.questions is None
    assert made.positive.shape == (0, 3)
    assert made.pseudo is not None
    assert len(made.pseudo) == 4
    assert made.pseudo_positive.tolist() == 2 * [[True, False, True]] + 2 * [[False, True, False]]


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
        make_example(SNAPSHOT, [], model=replace(SMALL_MODEL, excluded_relations=excluded), encoder=ENCODER)
        for excluded in ([], ["NEXT", "fact"])
    )
    assert len(whole.inputs.source) > len(bare.inputs.source) == 1


def test_the_features_have_the_widths_of_the_model() -> None:
    assert [each.dim for each in features_of(SMALL_MODEL)] == [64, 24]
    bare = make_example(SNAPSHOT, [], model=ModelConfig(lexical_dim=5, speaker_dim=0, date_dim=0), encoder=ENCODER)
    assert (bare.inputs.lexical.shape[1], bare.inputs.context.shape[1]) == (5, 0)


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


def test_processes_share_out_the_training_spaces_and_each_validates_on_all() -> None:
    train = [named(f"t{i}") for i in range(5)]
    held = [named(f"v{i}") for i in range(3)]
    dealt = []
    for rank in range(2):
        data = EpochDataModule(train, held, seed=3)
        progress = SimpleNamespace(epoch_progress=SimpleNamespace(current=SimpleNamespace(processed=0)))
        data.trainer = SimpleNamespace(global_rank=rank, world_size=2, fit_loop=progress)  # type: ignore[assignment]
        loader = data.train_dataloader()
        dealt.append([each.name for each in loader])
        assert len(dealt[-1]) == len(loader) == 3  # the processes take as many steps
        checked: Any = data.val_dataloader()
        assert [each.name for each in checked] == ["v0", "v1", "v2"]
    assert {*dealt[0], *dealt[1]} == {f"t{i}" for i in range(5)}


def test_dealing_out_takes_no_number_from_torchs_own_generator() -> None:
    data = EpochDataModule([named("a"), named("b")], [named("c")], seed=0)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    validation: Any = data.val_dataloader()
    list(data.train_dataloader()), list(validation)
    assert torch.equal(torch.rand(1), expected)
