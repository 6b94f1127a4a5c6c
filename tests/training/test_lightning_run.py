from __future__ import annotations

import csv
import hashlib
import io
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import lightning as L  # noqa: N812
import pytest
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException

from locigraph.training import lightning_run
from locigraph.training.config import TrainerConfig, TrainingConfig
from locigraph.training.errors import TrainingError
from locigraph.training.identity import TrainingRun
from locigraph.training.lightning_run import (
    AverageAndStop,
    EpochSampler,
    _resumed_epoch,
    is_first_process,
    one_by_one,
    run_lightning,
)
from locigraph.training.snapshots import TrainingSet
from tests.fakes_graph import CPU, small_settings
from tests.faults.damage import hurt
from tests.training.planted import IDENTITY, QUESTIONS, VIEWS, made_of


class PowerCut(BaseException):
    """What nothing in between may catch."""


@dataclass
class Number:
    """An example that stops everything when it was dealt out often enough."""

    name: str
    value: float
    fuse: int = 10**9
    stop: Callable[[], BaseException] = PowerCut
    dealt: int = 0

    def to(self, device: torch.device | str) -> Self:
        self.dealt += 1
        if self.dealt == self.fuse:
            raise self.stop()
        return self


class Guess(L.LightningModule):
    """Learns a number; half of each gradient is dropped at random."""

    def __init__(self, *, lr: float = 0.1) -> None:
        super().__init__()
        self.guess = torch.nn.Parameter(torch.zeros(4))
        self.lr = lr
        #: The guess at each validation.
        self.validated: list[float] = []

    def on_train_epoch_start(self) -> None:
        torch.manual_seed(self.current_epoch)

    def training_step(self, batch: Number, batch_idx: int) -> torch.Tensor:
        loss = (torch.nn.functional.dropout(self.guess, 0.5) - batch.value).square().sum()
        self.log("train/loss", loss.detach(), on_step=False, on_epoch=True, batch_size=1)
        return loss

    def validation_step(self, batch: Number, batch_idx: int) -> None:
        self.validated.append(float(self.guess.mean()))
        self.log("val/score", -(self.guess - batch.value).abs().mean(), batch_size=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=0.0)


@dataclass
class Ran:
    """What came of a run."""

    module: Guess
    result: dict[str, float]
    train: Sequence[Number]

    @property
    def guess(self) -> list[float]:
        return self.module.guess.tolist()


@dataclass
class Run:
    """A run and how it differs from the usual one."""

    epochs: int = 4
    patience: int = 50
    ema_decay: float = 0.9
    gradient_clip: float = 1e9
    lr: float = 0.1
    validate: bool = True
    trainer: TrainerConfig = CPU
    stage: str = "finetune"
    fuse: int = 10**9
    stop: Callable[[], BaseException] = PowerCut

    def __call__(self, folder: Path) -> Ran:
        torch.manual_seed(torch.seed() % 1000)  # no result may depend on what ran before
        folder.mkdir(exist_ok=True)
        module = Guess(lr=self.lr)
        train = [Number("a", 1.0, self.fuse, self.stop), Number("b", 2.0)]
        result = run_lightning(
            module,
            train,
            [Number("c", 1.5)] if self.validate else [],
            TrainingConfig(patience=self.patience, ema_decay=self.ema_decay, gradient_clip=self.gradient_clip),
            TrainingRun(folder, self.trainer, seed=0, details={}, name="train", experiment="tests"),
            IDENTITY,
            stage=self.stage,
            epochs=self.epochs,
            seed=0,
        )
        return Ran(module, result, train)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The usual run, which nothing interrupts."""
    return Run()(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def unvalidated(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The usual run without validation."""
    return Run(validate=False)(tmp_path_factory.mktemp("unvalidated"))


# --- what is kept ------------------------------------------------------------------------------------------------


class OneNumber(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.number = torch.nn.Parameter(torch.tensor(0.0))


def test_the_running_average_is_what_is_validated_and_kept() -> None:
    module, callback = OneNumber(), AverageAndStop(ema_decay=0.5, patience=9)
    metrics: dict[str, Any] = {"val/score": torch.tensor(1.0)}
    trainer: Any = SimpleNamespace(callback_metrics=metrics, current_epoch=0, should_stop=False, global_step=0)
    for value in (0.0, 8.0):
        with torch.no_grad():
            module.number.fill_(value)
        trainer.global_step += 1
        for _ in range(2):  # the optimiser takes no step after the second of these spaces
            callback.on_train_batch_end(trainer, module, None, None, 0)
    # The second of the first steps counts 1 - 2 / (2 + 5).
    average = 8 * (1 - 2 / 7)
    callback.on_validation_start(trainer, module)
    assert module.number.item() == pytest.approx(average)
    callback.on_validation_end(trainer, module)
    assert module.number.item() == 8.0
    metrics["val/score"] = torch.tensor(0.5)  # a worse epoch is not kept
    trainer.global_step += 1
    callback.on_train_batch_end(trainer, module, None, None, 0)
    callback.on_validation_start(trainer, module)
    callback.on_validation_end(trainer, module)
    callback.finish(module)
    assert module.number.item() == pytest.approx(average)


def test_the_module_is_left_with_what_was_validated_best(tmp_path: Path) -> None:
    ran = Run(epochs=12, lr=0.5, ema_decay=0.0)(tmp_path)  # so fast that it goes too far
    start, *scores = [-abs(1.5 - guess) for guess in ran.module.validated]
    best = scores.index(max(scores))
    assert 0 < best < 11
    assert (ran.result["best_epoch"], ran.result["start_score"]) == (best, start)
    assert ran.result["val_score"] == pytest.approx(scores[best], abs=0.2)
    assert sum(ran.guess) / 4 == pytest.approx(ran.module.validated[1 + best])


def test_the_start_is_kept_where_no_epoch_is_better(tmp_path: Path) -> None:
    ran = Run(epochs=3, lr=1000.0, ema_decay=0.0)(tmp_path / "whole")
    assert ran.guess == [0.0] * 4
    assert ran.result == {"best_epoch": -1, "val_score": -1.5, "start_score": -1.5}
    with pytest.raises(PowerCut):
        Run(epochs=3, lr=1000.0, ema_decay=0.0, fuse=2)(tmp_path / "cut")
    resumed = Run(epochs=3, lr=1000.0, ema_decay=0.0)(tmp_path / "cut")
    assert (resumed.guess, resumed.result) == (ran.guess, ran.result)


def test_without_validation_the_last_average_is_kept_and_there_is_no_score(unvalidated: Ran, tmp_path: Path) -> None:
    last = Run(validate=False, ema_decay=0.0)(tmp_path)
    assert unvalidated.result == last.result == {"best_epoch": -1}
    assert unvalidated.module.validated == []
    assert 0 < sum(unvalidated.guess) < sum(last.guess)


def test_patience_is_counted_in_epochs_without_a_better_score(tmp_path: Path) -> None:
    # At a rate of 0 every epoch scores the same.
    for patience in (1, 3):
        ran = Run(epochs=9, lr=0.0, patience=patience)(tmp_path / str(patience))
        assert ran.result["best_epoch"] == -1
        assert ran.train[1].dealt == patience


def test_gradients_are_clipped_before_they_move_the_weights(tmp_path: Path) -> None:
    moved = [sum(Run(gradient_clip=clip)(tmp_path / str(clip)).guess) for clip in (1.0, 1e-12)]
    # Far below Adam's epsilon a gradient moves next to nothing.
    assert moved[0] > 0.1
    assert moved[1] < 1e-3


# --- resume points -----------------------------------------------------------------------------------------------


# In the first epoch, the second, and the last.
@pytest.mark.parametrize("fuse", [1, 2, 4])
@pytest.mark.parametrize("validate", [True, False])
def test_an_interrupted_run_taken_up_again_equals_an_uninterrupted_one(
    fuse: int, validate: bool, whole: Ran, unvalidated: Ran, tmp_path: Path
) -> None:
    uninterrupted = whole if validate else unvalidated
    with pytest.raises(PowerCut):
        Run(validate=validate, fuse=fuse)(tmp_path / "cut")
    assert bool(list((tmp_path / "cut").glob("*.ckpt"))) == (fuse > 1)
    resumed = Run(validate=validate)(tmp_path / "cut")
    assert resumed.train[0].dealt == 4 - (fuse - 1)
    assert resumed.guess == uninterrupted.guess
    assert resumed.result == uninterrupted.result


def test_an_interrupt_passes_through_lightning_and_the_next_one_does_too(whole: Ran, tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)
    for fuse in (3, 1):
        with pytest.raises(KeyboardInterrupt):  # Lightning itself ends the process with code 1
            Run(fuse=fuse, stop=KeyboardInterrupt)(tmp_path / "cut")
        assert signal.getsignal(signal.SIGINT) is handler
    assert Run()(tmp_path / "cut").guess == whole.guess


def test_a_training_that_a_scheduler_stops_does_not_end_as_if_it_were_finished(whole: Ran, tmp_path: Path) -> None:
    def stopped() -> BaseException:
        os.kill(os.getpid(), signal.SIGTERM)
        return SIGTERMException()  # which Lightning itself raises after the step

    with pytest.raises(SystemExit) as ended:  # Lightning's own has code 0
        Run(fuse=3, stop=stopped)(tmp_path / "cut")
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert Run()(tmp_path / "cut").guess == whole.guess


def test_a_half_written_resume_point_is_not_taken_up(whole: Ran, tmp_path: Path) -> None:
    with pytest.raises(PowerCut):
        Run(fuse=3)(tmp_path / "cut")
    (tmp_path / "cut" / f"finetune-{IDENTITY.fingerprint}.ckpt.part").write_bytes(b"half")
    assert Run()(tmp_path / "cut").guess == whole.guess


@pytest.mark.parametrize("damage", ["emptied", "truncated", "flipped"])
def test_a_damaged_resume_point_begins_the_stage_anew(damage: str, whole: Ran, tmp_path: Path) -> None:
    with pytest.raises(PowerCut):
        Run(fuse=3)(tmp_path / "cut")
    (point,) = (tmp_path / "cut").glob("*.ckpt")
    hurt(point, damage, 0.5)
    again = Run()(tmp_path / "cut")
    assert again.train[0].dealt == whole.train[0].dealt
    assert again.guess == whole.guess


def test_a_resume_point_is_on_the_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_the_disk: list[tuple[int, int]] = []
    named: list[Path] = []
    fsync, replace = os.fsync, os.replace

    def synced(file: int) -> None:
        fsync(file)
        on_the_disk.append(_identity(os.fstat(file)))

    def replaced(source: Path, target: Path) -> None:
        assert _identity(source.stat()) in on_the_disk, f"{source.name} takes the place of {target.name} too early"
        named.append(target)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    Run()(tmp_path)
    assert named == [IDENTITY.resume_point(tmp_path, "finetune")] * 4


def _identity(status: os.stat_result) -> tuple[int, int]:
    """The file, as long as it is so long."""
    return status.st_ino, status.st_size


def test_a_run_that_stopped_early_is_not_trained_further_when_taken_up(tmp_path: Path) -> None:
    run = Run(epochs=9, lr=0.0, patience=1)
    whole = run(tmp_path)
    (point,) = tmp_path.glob("*.ckpt")
    assert lightning_run.SealedCheckpoint().load_checkpoint(point, weights_only=True)["epoch"] == 0
    before = point.stat().st_mtime_ns
    again = run(tmp_path)
    assert again.train[0].dealt == 0
    assert point.stat().st_mtime_ns == before
    assert (again.guess, again.result) == (whole.guess, whole.result)


# --- the order of the examples -----------------------------------------------------------------------------------


def place(*, rank: int = 0, processes: int = 1, epoch: int = 0) -> Any:
    """What an order depends on, besides its seed."""
    progress = SimpleNamespace(current=SimpleNamespace(processed=epoch))
    return SimpleNamespace(global_rank=rank, world_size=processes, fit_loop=SimpleNamespace(epoch_progress=progress))


def test_every_example_is_dealt_once_an_epoch_in_an_order_of_seed_and_epoch() -> None:
    names = [f"s{i}" for i in range(8)]
    dealt = [((0, 0), names), ((0, 0), names), ((1, 0), names), ((0, 1), names)]
    orders = [list(one_by_one(names, EpochSampler(8, seed, place(epoch=epoch)))) for (seed, epoch), names in dealt]
    assert sorted(orders[0]) == names
    assert orders[0] == orders[1]
    assert orders[0] not in orders[2:]
    assert list(one_by_one(["z", "b"])) == ["z", "b"]


def test_processes_share_out_the_training_examples() -> None:
    loaders = [one_by_one(range(5), EpochSampler(5, 3, place(rank=rank, processes=2))) for rank in range(2)]
    dealt = [list(loader) for loader in loaders]
    assert [len(each) for each in dealt] == [len(loader) for loader in loaders] == [3, 3]  # as many steps
    assert {*dealt[0], *dealt[1]} == set(range(5))


def test_dealing_out_takes_no_number_from_torchs_own_generator() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    list(one_by_one("ab", EpochSampler(2, 0, place()))), list(one_by_one("c"))
    assert torch.equal(torch.rand(1), expected)


# --- devices -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"accelerator": "abacus"},
        {"precision": "7-bit"},
        {"devices": 0},
        {"devices": -1},
        {"devices": "x"},
    ],
)
def test_a_trainer_that_cannot_run_here_is_said_by_its_settings(wrong: dict[str, Any], tmp_path: Path) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(TrainingError, match=f"'{name}': '?{value}'?.* cannot run here"):
        Run(trainer=replace(CPU, **wrong))(tmp_path)


def test_auto_is_one_device_and_its_process_is_the_first(whole: Ran, tmp_path: Path) -> None:
    assert Run(trainer=replace(CPU, devices="auto"))(tmp_path).guess == whole.guess
    assert is_first_process()


# --- logs --------------------------------------------------------------------------------------------------------


def test_metrics_of_every_epoch_go_to_a_csv_file(tmp_path: Path) -> None:
    Run(trainer=replace(CPU, csv_log=True))(tmp_path)
    (log,) = tmp_path.rglob("metrics.csv")
    assert log.parent == tmp_path / f"finetune-{IDENTITY.fingerprint}"
    header, *rows = log.read_text().splitlines()
    assert {"train/loss", "val/score"} <= set(header.split(","))
    assert len(rows) >= 4


@pytest.mark.parametrize("fuse", [1, 2, 4])
def test_a_resumed_run_keeps_the_metrics_of_the_epochs_before(fuse: int, tmp_path: Path) -> None:
    logging = replace(CPU, csv_log=True)
    Run(trainer=logging)(tmp_path / "whole")
    with pytest.raises(PowerCut):
        Run(trainer=logging, fuse=fuse)(tmp_path / "cut")
    for _ in range(2):  # the second run finds nothing left to do
        Run(trainer=logging)(tmp_path / "cut")
        whole, cut = (_rows(tmp_path / name) for name in ("whole", "cut"))
        assert cut == whole
    assert {row["epoch"] for row in cut} == {"0", "1", "2", "3"}


def _rows(folder: Path) -> list[dict[str, str]]:
    (log,) = folder.rglob("metrics.csv")
    with log.open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.long  # W&B starts a service of its own
def test_each_training_is_one_run_with_its_stages_in_weights_and_biases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_DIR"):
        monkeypatch.setenv(name, str(home))
    for name in ("SILENT", "DISABLE_GIT", "DISABLE_CODE", "_DISABLE_STATS"):
        monkeypatch.setenv(f"WANDB_{name}", "true")
    import wandb

    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    trainer = replace(CPU, wandb_mode="offline", wandb_project="one project")
    data = TrainingSet(QUESTIONS, ("planted1",), ("planted2",), VIEWS)
    settings = small_settings(pretrain=1, finetune=1)
    try:
        for name in ("first", "second"):
            experiment = f"experiment {name}" if name == "second" else ""
            made_of(
                tmp_path / name,
                data,
                settings=settings,
                trainer=trainer,
                name=f"{name} training",
                experiment=experiment,
            )
    finally:
        wandb.finish()
    # W&B writes in a process of its own, which a busy machine may delay.
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        written = b"".join(path.read_bytes() for path in tmp_path.rglob("*.wandb"))
        if all(f"{name} training".encode() in written for name in ("first", "second")):
            break
        time.sleep(0.1)
    for name, grouped in (("first", "first"), ("second", "experiment second")):
        # The files are records of plain strings, in a format of W&B's own.
        (run,) = (path.read_bytes() for path in (tmp_path / name).rglob("*.wandb"))
        assert f"{name} training".encode() in run
        for text in ("one project", grouped, "model", "encoder", '"hgt"', "edge_lr", "0.003", "seed", "fake-bow"):
            assert text.encode() in run, text
        for metric in ("pretrain-val/score", "pretrain-train/views", "finetune-val/score", "finetune-train/ranking"):
            assert metric.encode() in run, metric
    assert os.listdir() == []  # nothing where the command was run


@pytest.mark.parametrize("damage", ["emptied", "truncated", "flipped", "other"])
def test_a_damaged_resume_point_is_removed_and_not_taken_up(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "stage.ckpt"
    lightning_run.SealedCheckpoint().save_checkpoint({"state": torch.arange(100.0), "epoch": 3}, path)
    assert lightning_run._resumed_epoch(path) == 3
    content = bytearray(path.read_bytes())
    content[400] ^= 0xFF
    made = {"emptied": b"", "truncated": bytes(content[: len(content) // 2]), "flipped": bytes(content), "other": b"{}"}
    path.write_bytes(made[damage])
    assert lightning_run._resumed_epoch(path) is None
    assert not path.exists()
    assert lightning_run._resumed_epoch(path) is None


def test_a_resume_point_with_any_byte_flipped_is_refused(tmp_path: Path) -> None:
    path, files = tmp_path / "stage.ckpt", lightning_run.SealedCheckpoint()
    files.save_checkpoint({"state": torch.arange(3.0)}, path)
    assert torch.equal(files.load_checkpoint(path, weights_only=True)["state"], torch.arange(3.0))
    sound = path.read_bytes()
    for place in range(len(sound)):
        damaged = bytearray(sound)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        assert lightning_run._resumed_epoch(path) is None


def test_a_damaged_point_of_a_training_runs_no_code_of_its_own(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "made"),)

    content = io.BytesIO()
    torch.save({"epoch": 3, "x": Hostile()}, content)
    point = tmp_path / "point.ckpt"
    point.write_bytes(hashlib.sha256(content.getvalue()).digest() + content.getvalue())
    with suppress(Exception):
        _resumed_epoch(point)
    assert not (tmp_path / "made").exists()


@pytest.mark.filterwarnings("ignore:You passed")
def test_a_precision_that_lightning_would_replace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="16-mixed needs a GPU; here, bf16-mixed is used"):
        made_of(tmp_path, trainer=replace(CPU, precision="16-mixed"))
