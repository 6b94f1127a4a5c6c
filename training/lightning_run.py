"""How Lightning runs a training: averaging of the parameters, early stopping, resume points, progress, loggers."""

from __future__ import annotations

import csv
import hashlib
import io
import logging
import math
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import lightning as L  # noqa: N812  (the name Lightning's own documentation uses)
import numpy as np
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor
from torch.utils.data import DataLoader, Sampler
from tqdm import tqdm

from locigraph.kg.files import replace_file
from locigraph.training.config import AdapterConfig, RerankerConfig, TrainingConfig
from locigraph.training.errors import TrainingError
from locigraph.training.identity import RunIdentity, TrainingRun
from locigraph.training.ranking_scores import RankingScores

_SEAL_BYTES = hashlib.sha256().digest_size
# Lightning sets its log level on import; its messages would break up the progress bars.
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

# Gives the first steps more weight, so that the untrained parameters do not dominate the moving average.
_RAMP = 5
_EXPECTED_WARNINGS = (
    r"Experiment logs directory .* exists and is not empty",  # its rows are read before
    ".*does not have many workers.*",  # Lightning advises more data-loader workers; the examples are in memory already
    ".*GPU available but not used.*",
    ".*There is a wandb run already in progress.*",  # all stages of a training share one run in Weights & Biases
    ".*Total length of `list` across ranks is zero.*",  # training without validation spaces is allowed
)


class RankingModule(L.LightningModule):
    """Base of all training modules: seeds every epoch, and logs the validation scores that decide when to stop.

    Args:
        seed: Random seed of the training. Each epoch's seed derives from it, so a resumed run draws the same numbers.
    """

    def __init__(self, *, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._generator = torch.Generator()
        self._scores = RankingScores()

    def on_train_epoch_start(self) -> None:
        """Start every epoch from its own seed."""
        epoch_seed = 1_000 * self._seed + self.current_epoch
        torch.manual_seed(epoch_seed)
        self._generator.manual_seed(epoch_seed)

    def on_validation_epoch_end(self) -> None:
        """Log means over questions; ``val/score``, the sum of mean recall and mean nDCG, decides when to stop."""
        self.log_dict(self._scores.means(), batch_size=1, sync_dist=True)
        self._scores = RankingScores()


class AverageAndStop(L.Callback):
    """Validates with a moving average of the parameters, keeps the best one, and stops when it no longer improves.

    Lightning's own callbacks do not fit: the score before the first step counts too, and the average rises faster at
    first, so that the untrained parameters do not dominate it.

    Args:
        ema_decay: Decay of the average; with 0 it is the current parameters.
        patience: Number of epochs without a better ``val/score`` after which to stop.

    Source:
        Polyak and Juditsky 1992; exponential form as in Tarvainen and Valpola 2017.
    """

    def __init__(self, *, ema_decay: float, patience: int) -> None:
        self._ema_decay = ema_decay
        self._patience = patience
        self._live: dict[str, Tensor] = {}
        self._last_step = 0
        self.mean: dict[str, Tensor] = {}
        self.steps = 0
        self.best: dict[str, Tensor] = {}
        self.best_epoch = -1
        self.best_score = self.start_score = float("-inf")

    def state_dict(self) -> dict[str, Any]:
        """The state that a resume point keeps."""
        kept = ("mean", "steps", "best", "best_epoch", "best_score", "start_score")
        return {name: getattr(self, name) for name in kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state from a resume point."""
        vars(self).update(state_dict)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Stop at once if the resumed run had already stopped early."""
        self._last_step = trainer.global_step
        self._stop_if_old(trainer, trainer.current_epoch - 1)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Update the average after each step of the optimiser."""
        if trainer.global_step == self._last_step:
            return  # the step takes in further spaces
        self._last_step = trainer.global_step
        self.steps += 1
        keep = min(self._ema_decay, self.steps / (self.steps + _RAMP)) if self._ema_decay else 0.0
        if not self.mean:
            self.mean = _copied(pl_module)
            return
        for name, value in pl_module.state_dict().items():
            # Tensors restored from a resume point are on the CPU.
            self.mean[name] = self.mean[name].to(value.device).lerp_(value, 1 - keep)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Replace the parameters by their average."""
        if self.mean:
            self._live = _copied(pl_module)
            pl_module.load_state_dict(self.mean)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keep the average if it is the best so far, and put the parameters back."""
        score = float(trainer.callback_metrics.get("val/score", float("nan")))  # NaN if validation has no questions
        if score > self.best_score:
            self.best, self.best_score = _copied(pl_module), score
            if self.mean:
                self.best_epoch = trainer.current_epoch
            else:  # before the first step
                self.start_score = score
        if self.mean:
            pl_module.load_state_dict(self._live)
        self._stop_if_old(trainer, trainer.current_epoch)

    def _stop_if_old(self, trainer: L.Trainer, epoch: int) -> None:
        if self.best and epoch - self.best_epoch >= self._patience:
            trainer.should_stop = True

    def finish(self, module: L.LightningModule) -> None:
        """Give the module its best validated average or, without validation, the last average."""
        chosen = self.best or self.mean
        if chosen:
            module.load_state_dict(chosen)


def _copied(module: L.LightningModule) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


class SealedCheckpoint(TorchCheckpointIO):
    """Lightning's checkpoints, each after a checksum of the whole file, and written completely or not at all.

    Not all parts of a file of ``torch.save`` have a checksum, so that a flipped bit may move a tensor unnoticed.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint; raises OSError if it cannot be written."""
        saved = io.BytesIO()
        torch.save(checkpoint, saved)
        content = saved.getvalue()
        replace_file(Path(path), hashlib.sha256(content).digest() + content)

    def load_checkpoint(self, path: Any, map_location: Any = "cpu", weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint; raises ValueError if it is damaged, OSError if it cannot be read."""
        sealed = Path(path).read_bytes()
        seal, content = sealed[:_SEAL_BYTES], sealed[_SEAL_BYTES:]
        if hashlib.sha256(content).digest() != seal:
            raise ValueError(f"{path}: damaged")
        loaded: dict[str, Any] = torch.load(io.BytesIO(content), map_location=map_location, weights_only=weights_only)
        return loaded


def _resumed_epoch(path: Path) -> int | None:
    """The last complete epoch of a resume point, or None if it is missing or damaged.

    A damaged one is removed, and the stage starts over.
    """
    try:
        return int(SealedCheckpoint().load_checkpoint(path, weights_only=True)["epoch"])
    except (OSError, ValueError):
        path.unlink(missing_ok=True)  # each of several processes may try to remove it
        return None


def _logged(file: Path, until: int) -> list[dict[str, Any]]:
    """The rows of a CSV log of metrics up to an epoch; what an interrupted epoch logged will be logged again."""
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return [row for row in rows if (row.get("epoch") or "").isdigit() and int(row["epoch"]) <= until]


class StepProgress(L.Callback):
    """One progress bar for the whole stage, with its name, rate and time left."""

    _bar: tqdm[Any]

    def __init__(self, name: str) -> None:
        self._name = name

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Open the bar at the epoch that the run has reached."""
        spaces = int(trainer.num_training_batches)
        self._bar = tqdm(
            desc=self._name,
            total=spaces * (trainer.max_epochs or 0),
            initial=spaces * trainer.current_epoch,
            unit="space",
            disable=not trainer.is_global_zero,
        )

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advance the bar by a space."""
        self._bar.update()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show the scores of the last validation."""
        scores = trainer.callback_metrics
        names = [name for name in ("recall@10", "ndcg@10") if f"val/{name}" in scores]
        self._bar.set_postfix({name: f"{float(scores[f'val/{name}']):.3f}" for name in names})

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Close the bar."""
        self._bar.close()


class Indexed(Protocol):
    """Examples by their places from 0."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> Any: ...


class EpochSampler(Sampler[int]):
    """Positions of the training examples, in an order that depends on seed and epoch only, also in a resumed run.

    Each of n processes takes every n-th example of one common order; if the number of examples is not a multiple of n,
    the order wraps around.

    Args:
        count: Number of examples.
        seed: Random seed of the order.
        trainer: Knows the epoch and the processes.
    """

    def __init__(self, count: int, seed: int, trainer: L.Trainer) -> None:
        self._count, self._seed, self._trainer = count, seed, trainer

    def __len__(self) -> int:
        return math.ceil(self._count / self._trainer.world_size)

    def __iter__(self) -> Iterator[int]:
        trainer = self._trainer
        # ``trainer.current_epoch`` is not yet up to date when a resumed run asks for its order. Lightning annotates
        # ``current`` with a base class that has no ``processed``.
        epoch = trainer.fit_loop.epoch_progress.current.processed  # type: ignore[attr-defined]
        order = np.random.default_rng([self._seed, epoch]).permutation(self._count)
        return iter(
            np.resize(order, len(self) * trainer.world_size)[trainer.global_rank :: trainer.world_size].tolist()
        )


def one_by_one(examples: Indexed, sampler: EpochSampler | None = None) -> DataLoader[Any]:
    """Serves one example per step, in the order of a sampler or, without one, in the given order."""
    # A loader draws a random number each time it starts, and a resumed run starts it at another point. A generator of
    # its own keeps this from changing torch's global generator, which dropout uses.
    return DataLoader(
        examples,  # type: ignore[arg-type]  # whatever is indexed is a dataset
        batch_size=None,
        sampler=sampler,
        generator=torch.Generator(),
    )


def is_first_process() -> bool:
    """Whether this process writes the results; of several processes, one per device, only the first does."""
    # Lightning sets ``rank`` as soon as it knows it; with a single process it may be missing.
    return int(getattr(rank_zero_only, "rank", 0)) == 0


def _require_finite(module: L.LightningModule, stage: str) -> None:
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and not bool(torch.isfinite(parameter).all()):
            raise TrainingError(
                f"stage {stage!r} diverged: weight {name!r} holds NaN or infinity, so nothing was saved; lower the "
                "learning rates"
            )


def run_lightning(
    module: L.LightningModule,
    train: Indexed,
    validation: Indexed,
    config: TrainingConfig | AdapterConfig | RerankerConfig,
    run: TrainingRun,
    identity: RunIdentity,
    *,
    stage: str,
    epochs: int,
    seed: int,
) -> dict[str, float]:
    """Train a module in one stage of a training; an interrupted run is resumed after its last complete epoch.

    Args:
        module: Trained in place; left with the best validated moving average of its parameters or, without validation,
            the last one. It must log ``val/score``, where higher is better.
        train: Examples to learn from, each one step. They need a method ``to(device)``.
        validation: Examples whose questions decide when to stop. Every process validates on all of them.
        config: Patience, decay of the moving average, and limit of the gradient's norm.
        run: Where and how to run.
        identity: Identity of the training; its settings are logged.
        stage: Name of the stage; its resume point stays after the last epoch.
        epochs: Maximum number of epochs.
        seed: Random seed of the order of the training examples.

    Returns:
        ``val_score``, the best validation score; ``best_epoch``, its epoch, or -1 if no epoch was better than the
        initial parameters, which the module then keeps; and ``start_score``, the score before the first step. Without
        validation questions, only ``best_epoch``, which is -1.

    Raises:
        TrainingError: If the trainer cannot run here, or the training diverged.
    """
    given = run.trainer
    run.folder.mkdir(parents=True, exist_ok=True)
    path = identity.resume_point(run.folder, stage)
    resumed = _resumed_epoch(path)
    best = AverageAndStop(ema_decay=config.ema_decay, patience=config.patience)
    resume_point = LambdaCallback(
        on_train_epoch_end=lambda trainer, _: trainer.save_checkpoint(path, weights_only=False)
    )
    with warnings.catch_warnings():
        for message in _EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        chosen: dict[str, Any] = {"accelerator": given.accelerator, "devices": given.num_devices}
        chosen["precision"] = given.precision
        try:
            trainer = L.Trainer(
                **chosen,
                # A space may lack node types or relations, whose parameters then get no gradient.
                strategy=DDPStrategy(find_unused_parameters=True) if given.num_devices != 1 else "auto",
                max_epochs=epochs,
                gradient_clip_val=config.gradient_clip,
                accumulate_grad_batches=config.spaces_per_step,
                logger=_loggers(run, identity, stage, resumed) or False,
                callbacks=[best, StepProgress(f"{run.name} {stage}"), resume_point],
                plugins=SealedCheckpoint(),
                # ``EpochSampler`` distributes the training examples. If those of validation were distributed, some
                # would count twice, and a process without a question would leave the others waiting.
                use_distributed_sampler=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                log_every_n_steps=1,
            )
        except (MisconfigurationException, TypeError, ValueError, RuntimeError) as error:
            raise TrainingError(f"trainer {chosen} cannot run here: {error}") from error
        if trainer.precision != given.precision:  # Lightning would take another one with no more than a warning
            raise TrainingError(f"trainer.precision {given.precision} needs a GPU; here, {trainer.precision} is used")
        steps = one_by_one(train, EpochSampler(len(train), seed, trainer))
        checks: Any = one_by_one(validation) if len(validation) else []
        with _interruptible():
            if resumed is None and len(validation):
                trainer.validate(module, checks, verbose=False)  # the baseline that the stage must beat
            trainer.fit(module, steps, checks, ckpt_path=None if resumed is None else path, weights_only=True)
    if best.best_epoch < 0:  # else an epoch before it diverged is kept
        _require_finite(module, stage)
    best.finish(module)
    _require_finite(module, stage)
    if not best.best:  # no validation spaces, or no questions about them
        return {"best_epoch": -1}
    return {"best_epoch": best.best_epoch, "val_score": best.best_score, "start_score": best.start_score}


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let interrupts and SIGTERM pass.

    After an interrupt Lightning would end the process with code 1 and ignore all later interrupts, and after SIGTERM,
    which schedulers send to stop a job, with code 0 as if the training were finished.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SIGTERMException:
        raise SystemExit(128 + signal.SIGTERM) from None  # the code that shells give to a process that SIGTERM ended
    except SystemExit as stop:
        if not isinstance(stop.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from None


def _loggers(run: TrainingRun, identity: RunIdentity, stage: str, resumed: int | None) -> list[Logger]:
    loggers: list[Logger] = []
    if run.trainer.csv_log:
        name = f"{stage}-{identity.fingerprint}"
        table = CSVLogger(str(run.folder), name=name, version="", flush_logs_every_n_steps=1)
        if resumed is not None and is_first_process():
            # The logger deletes the file of an earlier run, whose epochs belong to this one.
            rows = _logged(Path(table.log_dir) / "metrics.csv", resumed)
            table.experiment.metrics += rows
            table.save()
        loggers.append(table)
    if run.trainer.wandb_mode != "disabled":
        import wandb

        # The same for all stages of a training, and for the runs that resume it.
        place = str(run.folder.absolute() / identity.fingerprint)
        run_id = hashlib.sha256(place.encode()).hexdigest()[:16]
        if wandb.run is not None and wandb.run.id != run_id:  # the run of another training in this process
            wandb.finish()
        logger = WandbLogger(
            project=run.trainer.wandb_project,
            name=run.name,
            group=run.experiment or run.folder.name,
            id=run_id,
            prefix=stage,
            save_dir=str(run.folder),
            offline=run.trainer.wandb_mode == "offline",
        )
        logger.log_hyperparams({**identity.config, "seed": run.seed, "text_encoder": identity.text_encoder})
        loggers.append(logger)
    return loggers
