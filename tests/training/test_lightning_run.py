from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from locigraph.gnn.encoder import EncoderConfig, NodeEncoder
from locigraph.gnn.hetero import METADATA
from locigraph.gnn.losses import link_loss
from locigraph.gnn.packed import EdgeType
from locigraph.gnn.sampling import split_supervision
from locigraph.kg.types import Question, TurnId
from locigraph.training.callbacks import remove_resume_points
from locigraph.training.config import ModelConfig, StageConfig, Settings, changed
from locigraph.training.examples import SpaceExample, make_example
from locigraph.training.errors import TrainingDataError, TrainingError
from locigraph.training.fit import FitResult, fit
from locigraph.training.module import GraphRetrieval, RetrievalModule, encoder_config
from locigraph.training.pseudo_queries import KINDS
from tests.fakes import FakeEncoder, make_turns
from tests.fakes_graph import (
    CONTEXT,
    CPU,
    SKETCH,
    SMALL_MODEL,
    TEXT_DIM,
    Extra,
    make_inputs,
    make_snapshot,
    planted_space,
    small_settings,
)

FACT: EdgeType = ("knowledge_node", "DERIVED_FROM", "episode")


class PowerCut(BaseException):
    """What nothing in between may catch."""


@dataclass(frozen=True, eq=False)
class FusedExample(SpaceExample):
    """An example that cuts the power when it was dealt out often enough."""

    fuse: list[int]

    def to(self, device: torch.device | str) -> SpaceExample:
        self.fuse[0] -= 1
        if self.fuse[0] == 0:
            raise PowerCut
        return super().to(device)


def example(number: int, *, things: int = 6) -> SpaceExample:
    snapshot, questions = planted_space(number, things=things)
    embed = FakeEncoder(TEXT_DIM).encode
    return make_example(snapshot, questions, sketch=SKETCH, context=CONTEXT, embed=embed, pseudo=KINDS)


def network() -> GraphRetrieval:
    torch.manual_seed(7)
    return GraphRetrieval(SMALL_MODEL, text_dim=TEXT_DIM)


def run(
    folder: Path, config: Settings, train: Sequence[SpaceExample] | None = None, *, validate: bool = True
) -> tuple[GraphRetrieval, FitResult]:
    torch.manual_seed(torch.seed() % 1000)  # no result may depend on what ran before
    trained = network()
    validation = [example(3)] if validate else []
    result = fit(trained, train or [example(1), example(2)], validation, config, CPU, folder=folder, seed=1)
    return trained, result


def run_until_cut(folder: Path, config: Settings, *, steps: int) -> None:
    """Train until example 1 is dealt out for the given time."""
    first = example(1)
    fused = FusedExample(**{f.name: getattr(first, f.name) for f in fields(first)}, fuse=[steps])
    with pytest.raises(PowerCut):
        run(folder, config, [fused, example(2)])


def assert_same(first: GraphRetrieval, second: GraphRetrieval) -> None:
    for (name, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_a_model_by_default_is_an_encoder_by_default() -> None:
    assert encoder_config(ModelConfig(), EncoderConfig().text_dim) == EncoderConfig()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[GraphRetrieval, FitResult]:
    return run(tmp_path_factory.mktemp("whole"), small_settings(pretrain=2, finetune=3))


# Within the first epoch, the second, the first of fine-tuning, and its last.
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_an_interrupted_run_taken_up_again_equals_an_uninterrupted_one(
    steps: int, uninterrupted: tuple[GraphRetrieval, FitResult], tmp_path: Path
) -> None:
    config = small_settings(pretrain=2, finetune=3)
    run_until_cut(tmp_path, config, steps=steps)
    assert bool(list(tmp_path.glob("*.ckpt"))) == (steps > 1)
    resumed, result = run(tmp_path, config)
    assert_same(resumed, uninterrupted[0])
    assert result == uninterrupted[1]


def test_a_finished_run_asked_for_again_gives_the_same(
    uninterrupted: tuple[GraphRetrieval, FitResult], tmp_path: Path
) -> None:
    config = small_settings(pretrain=2, finetune=3)
    for _ in range(2):
        again, result = run(tmp_path, config)
        assert_same(again, uninterrupted[0])
        assert result == uninterrupted[1]


def test_a_stage_that_stopped_early_is_not_trained_further_when_taken_up(tmp_path: Path) -> None:
    # A rate of 0 scores the same in every epoch, so each stage stops after its second.
    config = small_settings(pretrain=6, finetune=6, patience=1)
    still = replace(config.optimiser, lr=0.0, scalar_lr=0.0, term_lr=0.0, edge_lr=0.0)
    config = replace(config, optimiser=still)
    whole, result = run(tmp_path / "whole", config)
    assert result.stages["pretrain"]["best_epoch"] == 0
    points = {path.name: torch.load(path, weights_only=True) for path in (tmp_path / "whole").glob("*.ckpt")}
    assert {point["epoch"] for point in points.values()} == {1}
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "whole").glob("*.ckpt")}
    again, repeated = run(tmp_path / "whole", config)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "whole").glob("*.ckpt")} == before
    assert_same(again, whole)
    assert repeated == result


def test_resume_points_of_another_configuration_are_not_taken_up(tmp_path: Path) -> None:
    run_until_cut(tmp_path / "a", small_settings(finetune=3), steps=3)
    other = small_settings(finetune=2)
    resumed, _ = run(tmp_path / "a", other)
    fresh, _ = run(tmp_path / "b", other)
    assert_same(resumed, fresh)


def test_a_run_depends_on_its_seed(tmp_path: Path) -> None:
    config, ran = small_settings(finetune=1), []
    for seed in (1, 2):
        trained = network()
        fit(trained, [example(1)], [], config, CPU, folder=tmp_path / str(seed), seed=seed)
        ran.append(trained.queries.term_weight.detach().clone())
    assert not torch.equal(*ran)


def test_fast_dev_run_takes_a_step_of_everything_and_leaves_no_resume_point(tmp_path: Path) -> None:
    trained = network()
    trainer = replace(CPU, fast_dev_run=True)
    fit(trained, [example(1)], [example(3)], small_settings(pretrain=2, finetune=2), trainer, folder=tmp_path, seed=1)
    assert [path for path in tmp_path.rglob("*") if path.suffix in (".ckpt", ".safetensors", ".part")] == []


def test_nothing_to_train_on_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrainingDataError, match="no space to train on"):
        fit(network(), [], [], small_settings(), CPU, folder=tmp_path, seed=0)


# --- learning --------------------------------------------------------------------------------------------------


def share_found(trained: GraphRetrieval, held: SpaceExample) -> float:
    """Share of the questions whose turn is ranked first."""
    assert held.questions is not None
    trained.eval()
    with torch.inference_mode():
        scores = trained.queries(held.questions) @ trained.nodes(held.inputs).joined()[held.episodes].T
    return float(held.positive.gather(1, scores.argmax(1, keepdim=True)).float().mean())


def test_training_learns_to_read_facts_and_does_so_on_a_space_it_never_saw(tmp_path: Path) -> None:
    trained = network()
    with torch.no_grad():
        # Nothing but the facts tells the turns apart, and at the start they are not read.
        for weights in (trained.nodes.text_weight, trained.nodes.lexical_weight):
            weights.zero_()
    train, unseen = [example(n, things=8) for n in (1, 2, 4)], example(5, things=8)
    assert share_found(trained, unseen) <= 0.5
    config = small_settings(finetune=25)
    config = replace(config, optimiser=replace(config.optimiser, scalar_lr=0.05))
    fit(trained, train, [], config, CPU, folder=tmp_path, seed=0)
    assert share_found(trained, train[0]) == 1
    assert share_found(trained, unseen) >= 0.75


def test_hidden_links_of_a_planted_graph_are_found_better_than_chance() -> None:
    words = ["canoe", "kite", "drum", "violin", "otter", "pear", "rocket", "sofa", "tulip", "wagon", "zebra", "lamp"]
    extras = [Extra("knowledge_node", f"{word} {word} owned", (i,)) for i, word in enumerate(words)]
    links = [(len(words) + i, "DERIVED_FROM", i) for i in range(len(words))]
    inputs = make_inputs(make_snapshot(make_turns([f"my {word} {word}" for word in words]), extras, links))
    torch.manual_seed(0)
    encoder = NodeEncoder(
        EncoderConfig(TEXT_DIM, SKETCH.dim, CONTEXT.dim, hidden_dim=16, layers=1, heads=2, free_dim=4, dropout=0.0)
    )
    diagonal = torch.nn.Parameter(torch.ones(len(METADATA.edge_types), 16) / 4)
    optimiser = torch.optim.Adam([*encoder.parameters(), diagonal], lr=1e-2)
    weight = diagonal[METADATA.edge_index(FACT)]

    def scores(seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        graph, (edges,) = split_supervision(inputs.graph, [FACT], share=0.5, generator=generator)
        states = encoder(inputs.with_graph(graph)).states
        source = states[edges.source] * diagonal[METADATA.edge_index(FACT)]
        return (source * states[edges.target]).sum(1), (source * states[edges.negative]).sum(1)

    def share_right() -> float:
        with torch.inference_mode():
            drawn = [scores(1000 + seed) for seed in range(20)]
        return float(torch.cat([positive > negative for positive, negative in drawn]).float().mean())

    assert weight.requires_grad
    for step in range(60):
        optimiser.zero_grad()
        link_loss(*scores(step)).backward()  # type: ignore[no-untyped-call]  # torch does not type it
        optimiser.step()
    assert share_right() > 0.85


def test_a_model_without_states_is_pretrained_by_what_does_not_need_them(tmp_path: Path) -> None:
    config = small_settings(pretrain=1, finetune=1)
    model = replace(config.model, state_gate=False, free_dim=0, layers=0)
    bare = GraphRetrieval(model, text_dim=TEXT_DIM)
    result = fit(bare, [example(1)], [example(2)], replace(config, model=model), CPU, folder=tmp_path, seed=0)
    assert set(result.stages) == {"pretrain", "finetune"}


def test_a_resume_point_of_another_identity_is_not_taken_up(tmp_path: Path) -> None:
    steps: list[int] = []
    for identity in ("old code", "old code", "new code"):
        first = example(1)
        fused = FusedExample(**{f.name: getattr(first, f.name) for f in fields(first)}, fuse=[10**6])
        fit(network(), [fused], [], small_settings(finetune=2), CPU, folder=tmp_path, seed=1, identity=identity)
        steps.append(10**6 - fused.fuse[0])
    assert steps[0] > steps[1]
    assert steps[2] == steps[0]


def test_every_kind_of_pseudo_query_has_a_switch_that_changes_what_is_learnt(tmp_path: Path) -> None:
    words = ("canoe", "kite", "drum", "otter")
    lines = [f"I keep the {word} and that one again in number {i} of mine" for i, word in enumerate(words)]
    facts = [Extra("knowledge_node", f"Ann keeps a {word}", (i,)) for i, word in enumerate(words)]
    snapshot = make_snapshot(make_turns(lines), facts, [(4 + i, "DERIVED_FROM", i) for i in range(4)])
    made = make_example(snapshot, [], sketch=SKETCH, context=CONTEXT, embed=FakeEncoder(TEXT_DIM).encode, pseudo=KINDS)
    assert set(made.pseudo) == set(KINDS)
    learnt = []
    for kind in KINDS:
        config = changed(
            small_settings(pretrain=2, finetune=0),
            {"pretrain.link": 0.0, "pretrain.views": 0.0, "pretrain.fact_questions": 0.0, f"pretrain.{kind}": 1.0},
        )
        trained = network()
        fit(trained, [made], [], config, CPU, folder=tmp_path / kind, seed=0)
        learnt.append(trained.queries.term_weight.detach().clone())
        assert not torch.equal(learnt[-1], network().queries.term_weight)
    assert len({tuple(weights.tolist()) for weights in learnt}) == len(KINDS)


def test_a_turn_that_says_what_the_answer_says_is_no_negative_when_likely_answers_are_left_out(tmp_path: Path) -> None:
    # Turns 0 and 1 say the same, and only one is marked: as a negative the other would be pushed away.
    snapshot = make_snapshot(make_turns(["my red canoe", "my red canoe", "a kite"]), [], [])
    asked = [Question(snapshot.space, "q", "What of the canoe?", "1", (TurnId("t0"),))]
    made = make_example(snapshot, asked, sketch=SKETCH, context=CONTEXT, embed=FakeEncoder(TEXT_DIM).encode)
    module = RetrievalModule(
        network().eval(), StageConfig(epochs=1, ranking=1.0, false_negative=0.8), small_settings().optimiser, seed=0
    )
    logits = torch.tensor([[2.0, 5.0, 1.0]])
    text = made.inputs.text[made.episodes]
    assert float(text[0] @ text[1]) > 0.8 > float(text[0] @ text[2])
    assert module._ranked(logits, made.positive, text).item() == pytest.approx(math.log(1 + math.exp(-1)))
    module.stage = replace(module.stage, false_negative=1.0)
    assert module._ranked(logits, made.positive, text).item() > 3


def test_a_cosine_out_of_range_is_refused() -> None:
    with pytest.raises(TrainingError, match="false_negative is 0; expected a cosine above 0, at most 1"):
        StageConfig(epochs=1, false_negative=0)


def test_gradients_are_clipped_before_they_move_the_weights(tmp_path: Path) -> None:
    moved = []
    for clip in (1.0, 1e-12):
        config = changed(small_settings(finetune=2), {"optimiser.gradient_clip": clip, "optimiser.average": 0.0})
        trained = network()
        fit(trained, [example(1)], [], config, CPU, folder=tmp_path / str(clip), seed=0)
        moved.append(float(trained.queries.term_weight.detach().abs().max()))
    # Far below Adam's epsilon a gradient moves next to nothing; term weights do not decay.
    assert moved[0] > 1e-3
    assert moved[1] < 1e-5


def test_only_resume_points_of_the_same_stage_are_removed(tmp_path: Path) -> None:
    names = [
        "finetune-aaa.ckpt",
        "finetune-bbb.ckpt",
        "pretrain-ccc.ckpt",
        "adapt-ddd.ckpt",
        "mine.ckpt",
        "finetune.txt",
    ]
    for name in names:
        (tmp_path / name).touch()
    remove_resume_points(tmp_path / "finetune-aaa", others_only=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(set(names) - {"finetune-bbb.ckpt"})
    remove_resume_points(tmp_path / "finetune-aaa")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[2:])
