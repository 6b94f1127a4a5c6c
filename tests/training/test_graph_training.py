from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.synthetic import synthetic_space
from locigraph.gnn.encoders import GRAPH_ENCODERS, GraphRetrieval
from locigraph.gnn.errors import GraphError
from locigraph.kg.registry import UnknownNameError
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import Question, SpaceId, TurnId
from locigraph.kg.views import Views
from locigraph.training import graph_training
from locigraph.training.checkpoint import Checkpoint, load_checkpoint, new_network
from locigraph.training.config import Settings, TrainingConfig, changed
from locigraph.training.errors import TrainingDataError, TrainingError
from locigraph.training.examples import SpaceExample, read_space
from locigraph.training.fusion import DETAIL, SignalReader, fusion_of, learn_fusion
from locigraph.training.graph_training import GraphTraining
from locigraph.training.identity import TrainingRun
from locigraph.training.inference import encode_graph
from locigraph.training.lightning_run import run_lightning
from locigraph.training.objectives import LOSSES
from locigraph.training.pseudo_questions import RULES
from locigraph.training.snapshots import TrainingGraph, TrainingSet
from tests.fakes import FakeEncoder, UnusedEncoder, make_turns
from tests.fakes_graph import CPU, SMALL_MODEL, TEXT_DIM, make_snapshot, planted_space, small_settings
from tests.training.planted import ENCODER, IDENTITY, QUESTIONS, VIEWS, made_of

BOTH_SIDES = TrainingSet(QUESTIONS, ("planted1", "planted2"), ("planted3",), VIEWS)


def example(number: int = 1, *, things: int = 6) -> SpaceExample:
    snapshot, questions = planted_space(number, things=things)
    graph = TrainingGraph(f"space {number}", lambda: snapshot, tuple(questions), is_training=True)
    return read_space(graph, model=SMALL_MODEL, encoder=FakeEncoder(TEXT_DIM), writer=RULES).whole()


def network(encoder: str = "hgt") -> GraphRetrieval:
    torch.manual_seed(7)
    return new_network(replace(SMALL_MODEL, encoder=encoder), TEXT_DIM)


def train(folder: Path, questions: tuple[Question, ...] = QUESTIONS, **options: Any) -> tuple[str, float]:
    """Version of the checkpoint and when it was written."""
    made = made_of(folder, replace(BOTH_SIDES, questions=questions), **options)
    return made.version, (folder / "checkpoint" / "manifest.json").stat().st_mtime_ns


# --- a step ------------------------------------------------------------------------------------------------------


def step_of(
    monkeypatch: pytest.MonkeyPatch, losses: dict[str, float] | None, space: SpaceExample
) -> tuple[float, dict[str, float], GraphTraining]:
    """A step's loss, its logged parts, and the module with gradients."""
    module = GraphTraining(network(), TrainingConfig(), losses, seed=0)
    logged: dict[str, float] = {}

    def log(name: str, value: Tensor, *, batch_size: int, **_: Any) -> None:
        assert batch_size or not value.item()
        if batch_size:
            logged[name] = value.item()

    monkeypatch.setattr(module, "log", log)
    module.on_train_epoch_start()
    loss = module.training_step(space, 0)
    loss.backward()  # type: ignore[no-untyped-call]  # torch does not type it
    return loss.item(), logged, module


@pytest.mark.parametrize("name", list(LOSSES))
def test_a_loss_adds_its_weighted_part_to_the_step_and_moves_the_encoder(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = example(things=10)
    loss, once, module = step_of(monkeypatch, {name: 1.0}, space)
    assert set(once) == {f"train/{name}"}
    assert loss == pytest.approx(once[f"train/{name}"]) != 0
    assert any(p.grad is not None and bool(p.grad.any()) for p in module.network.nodes.parameters())
    weighed, _, _ = step_of(monkeypatch, {name: 0.25}, space)
    assert weighed == pytest.approx(0.25 * loss, rel=1e-5)
    total, parts, _ = step_of(monkeypatch, {"link": 0.2, "pseudo_questions": 1.0, "views": 0.1}, space)
    assert len(parts) == 3
    assert total == pytest.approx(sum(parts.values()), rel=1e-5)


def test_fine_tuning_ranks_the_turns_by_the_questions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, parts, module = step_of(monkeypatch, None, example())
    assert parts == {"train/ranking": pytest.approx(loss)}
    assert module.log_scale.grad is not None
    assert module.network.queries.lexical_weight.grad is not None


@pytest.mark.parametrize("losses", [None, {}, {"link": 0.0}, {"pseudo_questions": 1.0}])
def test_a_space_that_nothing_applies_to_is_a_step_of_loss_0(
    losses: dict[str, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, parts, _ = step_of(monkeypatch, losses, replace(example(), questions=None, pseudo=None))
    assert (loss, parts) == (0.0, {})


def test_a_part_of_a_space_has_the_loss_of_the_whole_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    module = GraphTraining(network(), TrainingConfig(), None, seed=0)
    monkeypatch.setattr(module, "log", lambda *_, **__: None)
    snapshot, questions = synthetic_space(3, turns=120, dim=TEXT_DIM)
    graph = TrainingGraph("space", lambda: snapshot, tuple(questions[:1]), is_training=True)
    space = read_space(graph, model=SMALL_MODEL, encoder=FakeEncoder(TEXT_DIM), step_turns=40)
    with torch.no_grad():
        whole = module.training_step(space.whole(), 0)
        parts = torch.stack([module.training_step(space, 0) for _ in range(40)])
    assert parts.std() > 0
    assert parts.mean().item() == pytest.approx(whole.item(), abs=4 * parts.std().item() / 40**0.5 + 0.01)


def test_a_step_that_holds_the_whole_space_is_that_of_the_whole_space(monkeypatch: pytest.MonkeyPatch) -> None:
    module = GraphTraining(network(), TrainingConfig(), None, seed=0)
    monkeypatch.setattr(module, "log", lambda *_, **__: None)
    snapshot, questions = synthetic_space(3, turns=60, dim=TEXT_DIM)
    graph = TrainingGraph("space", lambda: snapshot, tuple(questions), is_training=True)
    space = read_space(graph, model=SMALL_MODEL, encoder=FakeEncoder(TEXT_DIM), step_turns=60)
    assert torch.equal(module.training_step(space, 0), module.training_step(space.whole(), 0))


@pytest.mark.parametrize("encoder", list(GRAPH_ENCODERS))
def test_each_kind_of_parameter_has_its_own_rate_which_rises_over_the_warm_up(encoder: str) -> None:
    config = TrainingConfig(lr=1.0, scalar_lr=2.0, edge_lr=3.0, weight_decay=0.5, warmup_steps=4)
    module = GraphTraining(network(encoder), config, None, seed=0)
    made = module.configure_optimizers()
    optimiser, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    group_of = {id(p): group for group in optimiser.param_groups for p in group["params"]}
    wanted = {
        "network.nodes.key": (1.0, 0.5), "network.nodes.query": (1.0, 0.5), "network.nodes.matrix": (1.0, 0.5),
        "network.nodes.own": (2.0, 0.0), "network.nodes.prior": (2.0, 0.0), "network.nodes.bias_traits": (2.0, 0.0),
        "network.queries.lexical_weight": (2.0, 0.0), "network.queries.context_weight": (2.0, 0.0),
        "log_scale": (2.0, 0.0),
        "network.nodes.edge_features": (3.0, 0.5), "network.nodes.own_traits": (3.0, 0.5),
    }  # fmt: skip
    found = {
        name: (group_of[id(parameter)]["initial_lr"], group_of[id(parameter)]["weight_decay"])
        for name, parameter in module.named_parameters()
    }
    of_layer = {name for name in found if name.startswith("network.nodes.layer.")}
    wanted |= dict.fromkeys(of_layer, (1.0, 0.5)) | {"network.nodes.share": (2.0, 0.0)}
    assert found == {name: values for name, values in wanted.items() if name in found}
    assert len(found) - len(of_layer) == {"hgt": 11, "mixing": 8, "hgtconv": 9}[encoder]
    assert bool(of_layer) == (encoder == "hgtconv")
    rates = []
    for _ in range(5):
        rates.append(group_of[id(module.log_scale)]["lr"])
        optimiser.step()
        schedule.step()
    assert rates == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0])


# --- a whole training ----------------------------------------------------------------------------------------------


def test_examples_that_are_read_again_in_each_epoch_give_the_same_weights(tmp_path: Path) -> None:
    loaded: list[str] = []

    def load(space: SpaceId, as_of: datetime | None) -> Snapshot:
        loaded.append(space)
        return VIEWS.snapshot(VIEWS.of(space, as_of))

    streamed = replace(BOTH_SIDES, views=Views(load, {}, keep=0))
    settings = small_settings(pretrain=1, finetune=2)
    kept = made_of(tmp_path / "kept", BOTH_SIDES, settings=settings)
    again = made_of(tmp_path / "again", streamed, settings=settings, trainer=replace(CPU, keep_mb=0))
    assert again.version == kept.version
    assert len(loaded) > 4 * len({*loaded})


def test_spaces_larger_than_a_step_are_learnt_and_validated(tmp_path: Path) -> None:
    settings = small_settings(pretrain=1, finetune=3)
    few = replace(settings, training=replace(settings.training, step_turns=8))
    spaces = {space.space: (space, asked) for space, asked in (planted_space(n, things=10) for n in range(1, 4))}
    data = replace(
        BOTH_SIDES,
        questions=tuple(q for _, asked in spaces.values() for q in asked),
        views=Views(lambda space, as_of: spaces[space][0], {}),
    )
    made = made_of(tmp_path / "parts", data, settings=few)
    assert made.details["stages"]["finetune"]["val_score"] > made.details["stages"]["finetune"]["start_score"]
    assert made.version != made_of(tmp_path / "whole", data, settings=settings).version


@pytest.mark.parametrize("encoder", list(GRAPH_ENCODERS))
def test_each_encoder_learns_from_parts_of_a_space_and_gives_turns_alone_the_vectors_of_the_whole(
    encoder: str, tmp_path: Path
) -> None:
    settings = small_settings(pretrain=1, finetune=1)
    settings = replace(
        settings,
        model=replace(settings.model, encoder=encoder),
        training=replace(settings.training, step_turns=8, scalar_lr=0.1),
    )
    space, asked = planted_space(1, things=10)
    made = made_of(
        tmp_path, TrainingSet(tuple(asked), (space.space,), (), Views(lambda *_: space, {})), settings=settings
    )
    rows, whole = encode_graph(made, space)
    for part in (rows[:1], rows[3:7]):
        found, vectors = encode_graph(made, space, turns=part)
        assert found.tolist() == part.tolist()
        np.testing.assert_allclose(vectors, whole[np.isin(rows, part)], atol=1e-5)


def test_a_training_that_diverges_is_an_error_and_leaves_what_was_made_before(tmp_path: Path) -> None:
    good = made_of(tmp_path)
    settings = small_settings(pretrain=0, finetune=3)
    wild = replace(settings, training=replace(settings.training, scalar_lr=1e6))
    unchecked = replace(BOTH_SIDES, train=(*BOTH_SIDES.train, *BOTH_SIDES.validation), validation=())
    with pytest.raises(TrainingError, match=r"'finetune' diverged: weight '.*' holds NaN or infinity"):
        made_of(tmp_path, unchecked, settings=wild)
    with pytest.raises(TrainingError, match=r"'finetune' diverged"):  # not a training that was no better than nothing
        made_of(tmp_path, settings=wild)
    assert load_checkpoint(tmp_path / "checkpoint", text_encoder=ENCODER.model_id).version == good.version


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_settings_that_are_no_finite_numbers_are_refused(value: float) -> None:
    with pytest.raises(TrainingError, match=r"training\.scalar_lr"):
        TrainingConfig(scalar_lr=value)
    with pytest.raises(TrainingError, match=r"training\.pretrain_losses\.link"):
        TrainingConfig(pretrain_losses={"link": value})


def test_a_finished_training_is_loaded_and_another_made_when_anything_differs(tmp_path: Path) -> None:
    first = train(tmp_path / "same")
    assert train(tmp_path / "same", details={"commit": "another"}) == first
    assert train(tmp_path / "same", with_fusion=True, encoder=UnusedEncoder()) == first
    corrected = (replace(QUESTIONS[0], evidence=(TurnId("t5"),)), *QUESTIONS[1:])
    others: list[dict[str, Any]] = [
        {"questions": corrected},
        {"epochs": 2},
        {"seed": 1},
        {"encoder": FakeEncoder(TEXT_DIM, "another")},
        {"trainer": replace(CPU, precision="bf16-mixed")},
        {"settings": small_settings(finetune=1, encoder="mixing")},
    ]
    for number, other in enumerate(others):
        folder = shutil.copytree(tmp_path / "same", tmp_path / str(number))  # with its times
        assert train(folder, **other)[1] != first[1], other
        assert list(folder.glob("*.ckpt")) == []


def test_a_training_on_one_device_is_the_same_however_that_is_said(tmp_path: Path) -> None:
    first = train(tmp_path)
    assert first[1] == train(tmp_path, trainer=replace(CPU, devices="auto"))[1]
    assert made_of(tmp_path, BOTH_SIDES).details["identity"]["devices"] == "auto"  # as shipped checkpoints have it


def test_graphs_of_another_extractor_are_learnt_from_as_well(tmp_path: Path) -> None:
    bare = Views(lambda space, as_of: make_snapshot(make_turns(["one", "two"], space=space)), {})
    made = made_of(tmp_path, BOTH_SIDES, replace(BOTH_SIDES, views=bare))
    assert sorted(made.details["identity"]["data"]) == [
        "graph 2: planted1", "graph 2: planted2", "graph 2: planted3", "planted1", "planted2", "planted3",
    ]  # fmt: skip
    assert made.version != made_of(tmp_path / "alone", BOTH_SIDES).version


def test_a_manifest_says_what_was_done_and_holds_no_words_of_a_question(tmp_path: Path) -> None:
    made = made_of(tmp_path, BOTH_SIDES, settings=small_settings(pretrain=1, finetune=2), details={"commit": "c"})
    assert made.details["commit"] == "c"
    assert set(made.details["stages"]) == {"pretrain", "finetune"}
    assert {"best_epoch", "val_score"} <= set(made.details["stages"]["finetune"])
    assert made.spaces == {"planted1", "planted2", "planted3"}
    manifest = (tmp_path / "checkpoint" / "manifest.json").read_text()
    assert '"hgt"' in manifest
    assert not any(question.text in manifest for question in QUESTIONS)


@pytest.mark.parametrize("text", ["{", "{}", '{"format": 4}'])
def test_a_damaged_or_older_checkpoint_is_made_anew(text: str, tmp_path: Path) -> None:
    version, _ = train(tmp_path)
    (tmp_path / "checkpoint" / "manifest.json").write_text(text)
    assert train(tmp_path)[0] == version


def test_a_model_without_context_can_be_trained(tmp_path: Path) -> None:
    settings = changed(small_settings(finetune=1), {"model.speaker_dim": 0, "model.date_dim": 0})
    assert made_of(tmp_path, settings=settings).vector_dim == TEXT_DIM + 64 + 1


@pytest.mark.parametrize("encoder", list(GRAPH_ENCODERS))
def test_a_model_can_be_trained_in_half_precision(encoder: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"settings": small_settings(pretrain=1, finetune=2, encoder=encoder)}
    exact = made_of(tmp_path / "exact", **options).network
    half = made_of(tmp_path / "half", trainer=replace(CPU, precision="bf16-mixed"), **options).network
    for name, weights in exact.state_dict().items():
        assert half.state_dict()[name].dtype == torch.float32
        assert torch.allclose(half.state_dict()[name], weights, atol=0.05), name


def test_a_model_without_relations_can_be_trained(tmp_path: Path) -> None:
    without = {"model.excluded_relations": ["*"]}
    settings = changed(small_settings(pretrain=1, finetune=1), without)
    assert made_of(tmp_path, settings=settings).network.nodes.relations == ()


@pytest.mark.parametrize("encoder", list(GRAPH_ENCODERS))
def test_trainings_of_any_seed_start_from_the_same_weights_so_that_they_can_be_averaged(
    encoder: str, tmp_path: Path
) -> None:
    settings = small_settings(finetune=0, encoder=encoder)
    first, second = (made_of(tmp_path / str(seed), settings=settings, seed=seed).weights for seed in (0, 1))
    assert first.keys() == second.keys()
    for name, weights in first.items():
        np.testing.assert_array_equal(weights, second[name])


def test_questions_without_evidence_are_none_to_learn_from(tmp_path: Path) -> None:
    data = TrainingSet(tuple(replace(q, evidence=()) for q in QUESTIONS), ("planted1",), (), VIEWS)
    with pytest.raises(TrainingDataError, match="no training space has a question with evidence"):
        made_of(tmp_path, data)
    only_pre_trained = made_of(tmp_path, data, settings=small_settings(finetune=0, pretrain=1), with_fusion=True)
    assert DETAIL not in only_pre_trained.details


def test_fine_tuning_without_questions_is_refused_and_pre_training_needs_none(tmp_path: Path) -> None:
    unasked = tuple(q for q in QUESTIONS if q.space == "planted3")
    with pytest.raises(TrainingDataError, match="no training space has a question"):
        train(tmp_path, unasked)
    train(tmp_path, unasked, settings=small_settings(pretrain=1, finetune=0))


def test_recomputing_is_refused_rather_than_passed_over(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"trainer\.recompute"):
        made_of(tmp_path, trainer=replace(CPU, recompute=True))


@pytest.mark.parametrize("validation", [(), ("planted3",)])
def test_nothing_to_train_on_is_an_error(validation: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(TrainingDataError, match="no space to train on"):
        made_of(
            tmp_path,
            TrainingSet(QUESTIONS, (), validation, VIEWS),
            settings=small_settings(pretrain=1, finetune=0),
            encoder=UnusedEncoder(),
        )


def never(*_: Any) -> Any:
    raise AssertionError("work was done")


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"model.encoder": "hgtt"}, UnknownNameError, "nearest is 'hgt'; known: hgt, mixing"),
        ({"model.excluded_relations": ["nxet"]}, GraphError, "'nxet' is not known"),
        ({"training.pretrain_losses": {"lnik": 1.0}}, UnknownNameError, "nearest is 'link'; known: link, "),
    ],
)
def test_unknown_names_are_refused_before_any_work(
    change: dict[str, Any], error: type[Exception], says: str, tmp_path: Path
) -> None:
    data = TrainingSet(QUESTIONS, ("planted1",), (), Views(never, {}))
    with pytest.raises(error, match=says):
        made_of(tmp_path / "run", data, settings=changed(small_settings(pretrain=1), change), encoder=UnusedEncoder())
    assert not (tmp_path / "run").exists()


def test_a_corpus_is_learnt_from_beside_another(tmp_path: Path) -> None:
    first = TrainingSet(QUESTIONS, ("planted1",), (), VIEWS)
    alone = made_of(tmp_path / "1", first)
    both = made_of(tmp_path / "2", first, TrainingSet(QUESTIONS, ("planted2",), ("planted3",), VIEWS))
    assert both.version != alone.version
    identity = both.details["identity"]
    assert (identity["train"], identity["validation"]) == (["planted1", "planted2"], ["planted3"])


def test_a_space_that_one_corpus_learns_from_and_another_validates_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        TrainingDataError, match="space 'planted1' is among both the training and the validation spaces"
    ):
        made_of(
            tmp_path,
            TrainingSet(QUESTIONS, ("planted1",), (), VIEWS),
            TrainingSet(QUESTIONS, ("planted2",), ("planted1",), VIEWS),
        )


class Shouting:
    """Another writer of pseudo-questions, which remembers what it was given."""

    name = "shouting"

    def __init__(self) -> None:
        self.given: list[str] = []

    def write(self, statements: Sequence[str]) -> list[list[str]]:
        self.given += statements
        return [[f"WHAT ABOUT {statement}?"] for statement in statements]


def test_questions_of_another_writer_make_another_training_where_some_are_asked(tmp_path: Path) -> None:
    def version(pretrain: int, weight: float, **options: Any) -> str:
        settings = small_settings(pretrain=pretrain, finetune=1)
        settings = changed(settings, {"training.pretrain_losses": {"pseudo_questions": weight}})
        return made_of(tmp_path, learnt_from, settings=settings, **options).version

    learnt_from = TrainingSet(QUESTIONS, ("planted1", "planted2"), (), VIEWS)
    writer = Shouting()
    assert version(1, 1.0) != version(1, 1.0, writer=writer)
    assert len(writer.given) == 12
    # Only what is learnt from is asked about.
    held_back, settings = Shouting(), small_settings(pretrain=1, finetune=0)
    made_of(tmp_path / "held", BOTH_SIDES, settings=settings, writer=held_back)
    assert sorted(held_back.given) == sorted(writer.given)
    # Where no fact is asked about, the writer decides nothing.
    for pretrain, weight in ((0, 1.0), (1, 0.0)):
        silent = Shouting()
        assert version(pretrain, weight) == version(pretrain, weight, writer=silent)
        assert silent.given == []


# --- resume points -----------------------------------------------------------------------------------------------


class PowerCut(BaseException):
    """What nothing in between may catch."""


class Steps:
    """Counts the steps of all trainings, and cuts the power at one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.cut_at = 0
        step: Callable[..., Any] = GraphTraining.training_step

        def counted(module: GraphTraining, batch: SpaceExample, batch_idx: int) -> Any:
            self.count += 1
            if self.count == self.cut_at:
                raise PowerCut
            return step(module, batch, batch_idx)

        monkeypatch.setattr(graph_training.GraphTraining, "training_step", counted)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


LONG = small_settings(pretrain=2, finetune=3)  # of two spaces: four steps, and six
# Without validation every step counts, with it those of the best epochs.
SIDES = {"alone": replace(BOTH_SIDES, validation=()), "validated": BOTH_SIDES}


def run(folder: Path, settings: Settings = LONG, data: TrainingSet = BOTH_SIDES, **options: Any) -> Checkpoint:
    torch.manual_seed(torch.seed() % 1000)  # no result may depend on what ran before
    return made_of(folder, data, settings=settings, **options)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    return {name: run(tmp_path_factory.mktemp("whole"), data=data) for name, data in SIDES.items()}


# Within the first epoch, the second, the first of fine-tuning, and its last.
@pytest.mark.parametrize(("cut_at", "kept"), [(2, 0), (4, 2), (6, 4), (10, 8)])
@pytest.mark.parametrize("sides", SIDES)
def test_an_interrupted_training_taken_up_again_equals_an_uninterrupted_one(
    sides: str, cut_at: int, kept: int, uninterrupted: dict[str, Checkpoint], tmp_path: Path, steps: Steps
) -> None:
    whole, steps.cut_at = uninterrupted[sides], cut_at
    with pytest.raises(PowerCut):
        run(tmp_path, data=SIDES[sides])
    assert bool(list(tmp_path.glob("*.ckpt"))) == (kept > 0)
    steps.count = steps.cut_at = 0
    resumed = run(tmp_path, data=SIDES[sides])
    assert steps.count == 10 - kept
    assert resumed.version == whole.version
    assert resumed.details["stages"] == whole.details["stages"]
    assert list(tmp_path.glob("*.ckpt")) == []


def test_a_training_of_other_settings_begins_anew_and_leaves_a_stopped_one_what_it_needs_to_go_on(
    tmp_path: Path, steps: Steps
) -> None:
    def points() -> set[str]:
        return {path.name for path in (tmp_path / "a").glob("*.ckpt")}

    def cut_at(step: int, settings: Settings) -> None:
        steps.count, steps.cut_at = 0, step
        with pytest.raises(PowerCut):
            run(tmp_path / "a", settings)
        steps.count = steps.cut_at = 0

    def finished(folder: str, settings: Settings) -> tuple[str, int]:
        steps.count = 0
        return run(tmp_path / folder, settings).version, steps.count

    other = small_settings(pretrain=2, finetune=2)
    cut_at(8, LONG)
    stopped = points()
    cut_at(7, other)
    assert stopped < points()
    assert (len(stopped), len(points())) == (2, 4)
    version, _ = finished("a", other)
    assert version == finished("b", other)[0]
    assert points() == stopped
    version, count = finished("a", LONG)
    whole, all_steps = finished("c", LONG)
    assert (version, points()) == (whole, set())
    assert count < all_steps


def test_a_training_depends_on_its_seed(tmp_path: Path) -> None:
    versions = {run(tmp_path / str(seed), small_settings(finetune=1), seed=seed).version for seed in range(2)}
    assert len(versions) == 2


# --- learning ----------------------------------------------------------------------------------------------------


def share_found(trained: GraphRetrieval, held: SpaceExample) -> float:
    """Share of the questions whose turn is ranked first."""
    assert held.questions is not None
    trained.eval()
    with torch.inference_mode():
        scores = trained.queries(held.questions) @ trained.nodes(held.inputs).joined().T
    return float(held.positive.gather(1, scores.argmax(1, keepdim=True)).float().mean())


def loss_of(trained: GraphRetrieval, held: SpaceExample) -> float:
    """Ranking loss of a space."""
    module = GraphTraining(trained.eval(), TrainingConfig(), None, seed=0)
    module.log = lambda *args, **kwargs: None  # type: ignore[method-assign]  # there is no trainer
    with torch.inference_mode():
        return float(module.training_step(held, 0))


def learn(trained: GraphRetrieval, folder: Path, train: Sequence[SpaceExample], config: TrainingConfig) -> None:
    run_lightning(
        GraphTraining(trained.train(), config, None, seed=0),
        train,
        [],
        config,
        TrainingRun(folder, CPU, seed=0, details={}),
        IDENTITY,
        stage="finetune",
        epochs=config.epochs,
        seed=0,
    )


@pytest.mark.long
@pytest.mark.parametrize("encoder", list(GRAPH_ENCODERS))
def test_each_encoder_learns_to_read_facts_and_does_so_on_a_space_it_never_saw(encoder: str, tmp_path: Path) -> None:
    trained = network(encoder)
    with torch.no_grad():
        trained.nodes.prior.zero_()  # nothing but the facts tells the turns apart, and at the start they are not read
    space, unseen = example(1, things=8), example(5, things=8)
    before = loss_of(trained, unseen)
    assert share_found(trained, unseen) <= 0.5
    train = [space, example(2, things=8), example(4, things=8)]
    learn(trained, tmp_path, train, TrainingConfig(epochs=25, scalar_lr=0.05, warmup_steps=2))
    assert share_found(trained, space) == 1
    assert share_found(trained, unseen) >= 0.75
    assert loss_of(trained, unseen) < 0.5 * before


def test_attention_alone_learns_which_neighbours_to_read(tmp_path: Path) -> None:
    trained = network("hgt")
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    train, unseen = [example(n, things=8) for n in (1, 2, 4)], example(5, things=8)
    losses = [loss_of(trained, unseen)]
    learn(trained, tmp_path, train, TrainingConfig(epochs=25, lr=3e-3, scalar_lr=0.0, edge_lr=0.0, warmup_steps=2))
    losses.append(loss_of(trained, unseen))
    moved = {name for name, value in trained.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {"nodes.key", "nodes.query", "nodes.matrix"}
    assert losses[1] < 0.95 * losses[0]


@pytest.mark.long
@pytest.mark.parametrize("encoder", list(GRAPH_ENCODERS))
def test_a_whole_training_ranks_held_back_questions_better_than_the_untrained_model(
    encoder: str, tmp_path: Path
) -> None:
    settings = small_settings(pretrain=2, finetune=10, encoder=encoder)
    made = made_of(tmp_path, BOTH_SIDES, settings=settings)
    unseen = example(3)
    untrained = new_network(settings.model, TEXT_DIM)
    assert loss_of(made.network, unseen) < 0.9 * loss_of(untrained, unseen)


def test_the_fusion_learnt_from_the_same_questions_is_in_the_manifest_if_it_is_wanted(tmp_path: Path) -> None:
    made = made_of(tmp_path / "with", BOTH_SIDES, with_fusion=True)
    assert fusion_of(made).weights == learn_fusion(SignalReader(ENCODER).examples([BOTH_SIDES])).weights
    assert DETAIL not in made_of(tmp_path / "without", BOTH_SIDES).details
    unasked, settings = replace(BOTH_SIDES, questions=()), small_settings(pretrain=1, finetune=0)
    assert DETAIL not in made_of(tmp_path / "unasked", unasked, settings=settings, with_fusion=True).details


def test_validation_is_in_full_precision_also_where_training_is_not() -> None:
    seen: list[bool] = []

    class Network(torch.nn.Module):
        def nodes(self, block: object) -> object:
            return SimpleNamespace(joined=lambda: torch.eye(2))

        def queries(self, questions: torch.Tensor) -> torch.Tensor:
            seen.append(torch.is_autocast_enabled("cpu"))
            return questions

    module = GraphTraining(Network(), TrainingConfig(), None, seed=0)  # type: ignore[arg-type]
    asked = (torch.eye(2), torch.eye(2, dtype=torch.bool))
    space = SimpleNamespace(asked=lambda: [asked], blocks=lambda: [torch.eye(2)])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        module.validation_step(space, 0)  # type: ignore[arg-type]
    assert seen == [False]
