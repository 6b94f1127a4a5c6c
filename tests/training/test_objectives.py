from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from locigraph.gnn.encoders import GRAPH_ENCODERS, GraphEncoder, TurnVectors
from locigraph.gnn.features import GraphInputs
from locigraph.kg.registry import UnknownNameError
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import SpaceId
from locigraph.kg.views import Views
from locigraph.training.checkpoint import new_network
from locigraph.training.examples import SpaceExample, read_space
from locigraph.training.objectives import (
    LOSSES,
    Loss,
    Scorer,
    link_prediction_loss,
    pseudo_question_loss,
    two_views_loss,
)
from locigraph.training.pseudo_questions import RULES
from locigraph.training.snapshots import TrainingGraph, TrainingSet
from tests.fakes import FakeEncoder, UnusedEncoder, make_turns
from tests.fakes_graph import SMALL_MODEL, TEXT_DIM, Extra, make_snapshot, small_settings
from tests.training.planted import QUESTIONS, made_of

WORDS = ("canoe", "kite", "drum", "violin", "otter", "pear", "rocket", "sofa", "tulip", "wagon", "zebra", "lamp")
TURNS = len(WORDS)
# Sessions of three turns, so that most turns are no neighbours. Each turn has a fact, every third an event of its own
# and of the next turn, every second a topic.
EXTRAS = [
    *(Extra("knowledge_node", f"Ann owned the {word} of {word}s", (i,)) for i, word in enumerate(WORDS)),
    *(Extra("event_node", f"Ann met the {WORDS[i]} man", (i, i + 1)) for i in range(0, TURNS - 1, 3)),
    *(Extra("concept", f"{WORDS[i]} things", (i,)) for i in range(0, TURNS, 2)),
]
EDGES = [
    (TURNS + i, "DERIVED_FROM", turn)
    for i, extra in enumerate(EXTRAS)
    if extra.type != "concept"
    for turn in extra.turns
]
EDGES += [(extra.turns[0], "HAS_CONCEPT", TURNS + i) for i, extra in enumerate(EXTRAS) if extra.type == "concept"]


def example(lines: Sequence[str] | None = None) -> SpaceExample:
    lines = lines or [f"I kept the {word} and that one again" for word in WORDS]
    turns = make_turns(*(lines[i : i + 3] for i in range(0, len(lines), 3)))
    snapshot = make_snapshot(turns, EXTRAS, EDGES) if len(lines) == TURNS else make_snapshot(turns)
    return read_space(
        TrainingGraph("space", lambda: snapshot, (), True),
        model=SMALL_MODEL,
        encoder=FakeEncoder(TEXT_DIM),
        writer=RULES,
    ).whole()


EXAMPLE = example()


class Watch:
    """A scorer over a model with moved weights, and what the encoder and the ranking were given."""

    def __init__(self, encoder: str = "hgt", *, seed: int = 0, moved: float = 0.1) -> None:
        torch.manual_seed(0)
        self.network = new_network(replace(SMALL_MODEL, encoder=encoder), TEXT_DIM)
        with torch.no_grad():
            for parameter in self.network.parameters():
                parameter.add_(moved * torch.randn_like(parameter))
        self.seen: list[GraphInputs] = []
        self.made: list[TurnVectors] = []
        self.network.nodes.register_forward_hook(self._note)
        self.scorer = Scorer(self.network.nodes, self._rank, torch.Generator().manual_seed(seed))

    def _note(self, _: Any, given: tuple[GraphInputs], made: TurnVectors) -> None:
        self.seen.append(given[0])
        self.made.append(made)
        if made.text.requires_grad:
            made.text.retain_grad()

    def _rank(self, questions: Tensor, vectors: TurnVectors) -> Tensor:
        scores: Tensor = self.network.queries(questions) @ vectors.joined().T
        return scores


def edges_of(inputs: GraphInputs) -> set[tuple[int, int, int]]:
    return set(zip(inputs.source.tolist(), inputs.target.tolist(), inputs.relation.tolist(), strict=True))


def backward(loss: Tensor | None) -> None:
    assert loss is not None
    loss.backward()  # type: ignore[no-untyped-call]  # torch does not type it


# --- leaks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", list(GRAPH_ENCODERS))
@pytest.mark.parametrize("seed", range(3))
def test_a_ranked_turn_holds_nothing_of_its_facts_and_events_in_the_pseudo_question_loss(
    encoder: str, seed: int
) -> None:
    watch = Watch(encoder, seed=seed)
    backward(pseudo_question_loss(watch.scorer, EXAMPLE))
    (message,), (made,) = watch.seen, watch.made
    assert made.text.grad is not None
    ranked = set(made.text.grad.any(1).nonzero().flatten().tolist())
    telling = {i for i, r in enumerate(watch.network.nodes.relations) if r.name in ("fact", "event")}
    told = {target for _, target, relation in edges_of(message) if relation in telling}
    assert ranked == set(range(TURNS)) - told  # a turn is ranked, or its facts are read
    assert 2 <= len(ranked) < TURNS
    hidden = edges_of(EXAMPLE.inputs) - edges_of(message)
    assert {target for _, target, _ in hidden} == ranked
    assert {relation for _, _, relation in hidden} == telling  # topics and neighbouring turns stay
    # And so no embedding of a hidden fact or event reaches its turn by any other way.
    rows = torch.tensor(sorted({source for source, _, _ in hidden}))
    text, lexical = EXAMPLE.inputs.text.clone(), EXAMPLE.inputs.lexical.clone()
    text[rows], lexical[rows] = text[rows].flip(1), lexical[rows] + 1.0
    again = Watch(encoder, seed=seed)
    pseudo_question_loss(again.scorer, replace(EXAMPLE, inputs=replace(EXAMPLE.inputs, text=text, lexical=lexical)))
    before, after = watch.made[0].joined(), again.made[0].joined()
    assert torch.equal(before[list(ranked)], after[list(ranked)])


@pytest.mark.parametrize("encoder", list(GRAPH_ENCODERS))
@pytest.mark.parametrize("seed", range(3))
def test_no_hidden_link_is_among_the_message_edges_nor_reaches_its_turn(encoder: str, seed: int) -> None:
    watch = Watch(encoder, seed=seed)
    # Every two nodes that are joined are joined by two relations; in ``hgtconv``, whose relations join nodes of their
    # own types only, where there are two.
    inputs, relations = EXAMPLE.inputs, watch.network.nodes.relations
    other = [(at + 1) % len(relations) for at in range(len(relations))]
    if encoder == "hgtconv":
        alike = [[i for i, row in enumerate(relations) if row.source == each.source] for each in relations]
        other = [of_type[(of_type.index(at) + 1) % len(of_type)] for at, of_type in enumerate(alike)]
    both = torch.stack([inputs.relation, torch.tensor(other)[inputs.relation]], dim=1).flatten()
    inputs = replace(
        inputs, source=inputs.source.repeat_interleave(2), target=inputs.target.repeat_interleave(2), relation=both
    )
    backward(link_prediction_loss(watch.scorer, replace(EXAMPLE, inputs=inputs)))
    (message,) = watch.seen
    hidden = edges_of(inputs) - edges_of(message)
    assert 0.1 < len(hidden) / len(edges_of(inputs)) < 0.6
    pairs = {(source, target) for source, target, _ in hidden}
    assert pairs.isdisjoint((source, target) for source, target, _ in edges_of(message))
    with torch.no_grad():
        before = watch.network.nodes(message).joined()
        for source, target in pairs:
            text = inputs.text.clone()
            text[source] = text[source].flip(0)
            after = watch.network.nodes(replace(message, text=text)).joined()
            assert torch.equal(before[target], after[target])


class Oracle(GraphEncoder):
    """Knows all edges: its logit of a pair is high where the pair is one, and low elsewhere."""

    def __init__(self, inputs: GraphInputs, *, is_right: bool = True) -> None:
        made = GRAPH_ENCODERS["mixing"](Watch().network.nodes.config)
        super().__init__(made.config)
        known = zip(inputs.source.tolist(), inputs.target.tolist(), strict=True)
        self.pairs = {*known, *((i, i) for i in range(inputs.num_turns))}
        self.sign = 1.0 if is_right else -1.0

    def edge_logits(self, inputs: GraphInputs, traits: Tensor) -> Tensor:
        asked = zip(inputs.source.tolist(), inputs.target.tolist(), strict=True)
        is_edge = torch.tensor([pair in self.pairs for pair in asked])
        return self.sign * torch.where(is_edge, 100.0, -100.0)[:, None].expand(-1, 3)

    def edge_weights(self, inputs: GraphInputs, logits: Tensor) -> Tensor:
        return torch.zeros_like(logits)


def test_a_non_edge_is_never_an_edge_and_an_edge_is_scored_above_it() -> None:
    for seed in range(20):
        losses = []
        for is_right in (True, False):
            oracle = Oracle(EXAMPLE.inputs, is_right=is_right)
            scorer = Scorer(oracle, lambda questions, vectors: vectors.text, torch.Generator().manual_seed(seed))
            losses.append(link_prediction_loss(scorer, EXAMPLE))
        right, wrong = losses
        assert right is not None
        assert wrong is not None
        assert right.item() < 1e-6
        assert wrong.item() > 90


def test_the_two_views_leave_out_different_edges_and_nothing_else() -> None:
    watch = Watch()
    backward(two_views_loss(watch.scorer, EXAMPLE))
    first, second = (edges_of(inputs) for inputs in watch.seen)
    whole = edges_of(EXAMPLE.inputs)
    assert first < whole
    assert second < whole
    assert first != second
    assert 0.6 < len(first) / len(whole) < 1.0
    for inputs in watch.seen:
        assert torch.equal(inputs.text, EXAMPLE.inputs.text)


def test_what_is_hidden_depends_on_the_generator_and_on_nothing_else() -> None:
    for loss in LOSSES.values():
        values = []
        for seed, before in ((0, 1), (0, 2), (1, 1)):
            watch = Watch(seed=seed)
            torch.manual_seed(before)
            found = loss.compute(watch.scorer, EXAMPLE)
            assert found is not None
            values.append(found.item())
        assert values[0] == values[1] != values[2], loss.name


# --- where a loss does not apply -----------------------------------------------------------------------------------


def test_a_loss_that_does_not_apply_to_a_space_gives_none() -> None:
    alone = example(["I kept the canoe"])
    unconnected = replace(EXAMPLE, inputs=EXAMPLE.inputs.with_edges(torch.zeros(len(EXAMPLE.inputs.source)) > 0))
    none = {
        "no pseudo-questions": (pseudo_question_loss, replace(EXAMPLE, pseudo=None)),
        "no facts": (pseudo_question_loss, unconnected),
        "one turn alone has no pairs": (link_prediction_loss, alone),
        "no edges": (link_prediction_loss, unconnected),
        "one turn has no other to differ from": (two_views_loss, alone),
    }
    for name, (loss, space) in none.items():
        assert loss(Watch().scorer, space) is None, name


def test_only_non_edges_left_over_make_a_link_loss() -> None:
    # Each of two turns is the other's neighbour: no pair is left that is none.
    pair = example(["I kept the canoe", "I kept the kite"])
    assert all(link_prediction_loss(Watch(seed=seed).scorer, pair) is None for seed in range(20))


# --- learning ----------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("encoder", list(GRAPH_ENCODERS))
@pytest.mark.parametrize("name", list(LOSSES))
def test_each_loss_is_learnt_by_heart_from_one_space(name: str, encoder: str) -> None:
    watch = Watch(encoder)
    optimiser = torch.optim.Adam(watch.network.parameters(), lr=1e-2)
    values = []
    for _ in range(60):
        watch.scorer.generator.manual_seed(0)
        loss = LOSSES[name].compute(watch.scorer, EXAMPLE)
        assert loss is not None
        values.append(loss.item())
        optimiser.zero_grad()
        backward(loss)
        optimiser.step()
    assert np.isfinite(values).all()
    assert values[-1] < {"link": 0.5, "pseudo_questions": 0.8, "views": 0.9}[name] * values[0]


@pytest.mark.parametrize("encoder", list(GRAPH_ENCODERS))
def test_hidden_links_are_found_better_than_chance_after_learning_others(encoder: str) -> None:
    watch = Watch(encoder)
    optimiser = torch.optim.Adam(watch.network.parameters(), lr=1e-2)

    def loss(seed: int) -> Tensor:
        watch.scorer.generator.manual_seed(seed)
        found = link_prediction_loss(watch.scorer, EXAMPLE)
        assert found is not None
        return found

    for step in range(60):
        optimiser.zero_grad()
        backward(loss(step))
        optimiser.step()
    with torch.no_grad():
        unseen = torch.stack([loss(1000 + seed) for seed in range(20)]).mean()
    assert float(unseen) < 0.8 * float(torch.tensor(2.0).log())  # what guessing costs


# --- the table -----------------------------------------------------------------------------------------------------


@pytest.fixture
def toy() -> Iterator[list[str]]:
    """A loss of the user's own, and the spaces that it was computed on."""
    spaces: list[str] = []

    def compute(scorer: Scorer, space: SpaceExample) -> Tensor:
        spaces.append(space.name)
        return scorer.encoder.prior.square().sum()  # away with all neighbours

    LOSSES.add(Loss("toy", compute, "toy"))
    yield spaces
    LOSSES.remove("toy")


@pytest.mark.parametrize("asks", [True, False])
def test_pseudo_questions_are_written_for_the_losses_that_need_some(asks: bool, tmp_path: Path) -> None:
    given: list[bool] = []

    def compute(scorer: Scorer, space: SpaceExample) -> Tensor:
        given.append(space.pseudo is not None)
        return scorer.encoder.prior.square().sum()

    LOSSES.add(Loss("toy", compute, "toy", asks=asks))
    try:
        settings = small_settings(pretrain=1, finetune=0)
        settings = replace(settings, training=replace(settings.training, pretrain_losses={"toy": 1.0}))
        made = made_of(tmp_path, settings=settings)
    finally:
        LOSSES.remove("toy")
    assert given == [asks]
    assert made.details["identity"]["writer"] == ("rules" if asks else None)


def test_a_row_added_to_the_table_is_trained_by(toy: list[str], tmp_path: Path) -> None:
    def prior(weight: float) -> float:
        settings = small_settings(pretrain=6, finetune=0)
        settings = replace(settings, training=replace(settings.training, pretrain_losses={"toy": weight}))
        made = made_of(tmp_path / str(weight), settings=settings)
        return float(made.network.nodes.prior.detach().square().sum())

    untouched = prior(0.0)
    assert toy == []
    assert prior(1.0) < 0.9 * untouched
    assert toy == ["planted1"] * 6


def test_an_unknown_loss_is_refused_with_the_known_names_before_any_work(tmp_path: Path) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("work was done")

    load: Callable[[SpaceId, datetime | None], Snapshot] = never
    settings = small_settings(pretrain=0)  # also of a stage that is left out
    settings = replace(settings, training=replace(settings.training, pretrain_losses={"lnik": 0.0}))
    with pytest.raises(UnknownNameError, match="loss 'lnik' is not known; nearest is 'link'; known: link, pseudo_q"):
        made_of(
            tmp_path / "run",
            TrainingSet(QUESTIONS, ("planted1",), (), Views(load, {})),
            settings=settings,
            encoder=UnusedEncoder(),
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("names", list(itertools.permutations(LOSSES))[1:3])
def test_the_order_in_which_losses_are_written_changes_nothing(names: Sequence[str], tmp_path: Path) -> None:
    # Settings that differ in it alone are the same training: an equal identity may not come to other weights.
    versions = set()
    for order in (list(LOSSES), names):
        settings = small_settings(pretrain=2, finetune=0)
        settings = replace(settings, training=replace(settings.training, pretrain_losses=dict.fromkeys(order, 0.5)))
        versions.add(made_of(tmp_path / "-".join(order), settings=settings).version)
    assert len(versions) == 1
