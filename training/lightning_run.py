"""How Lightning runs a training: averaging of the parameters, early stopping, resume points, progress, loggers."""

from __future__ import annotations

import hashlib
import io
import logging
import math
import os
import signal
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L  # noqa: N812  (the name Lightning's own documentation uses)
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor
from tqdm import tqdm

from locigraph.kg.files import sync
from locigraph.training.config import TrainerConfig
from locigraph.training.errors import TrainingError
from locigraph.training.examples import EpochDataModule
from locigraph.training.ranking_scores import RankingScores

_SEAL_BYTES = hashlib.sha256().digest_size
# Lightning sets its log level on import; its messages would break up the progress bars.
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

# Gives the first steps more weight, so that the untrained parameters do not dominate the moving average.
_RAMP = 5


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

    def on_validation_epoch_start(self) -> None:
        """Discard the scores of the last validation."""
        self._scores = RankingScores()

    def on_validation_epoch_end(self) -> None:
        """Log means over questions; ``val/score``, the sum of mean recall and mean nDCG, decides when to stop."""
        self.log_dict(self._scores.means(), batch_size=1, sync_dist=True)


class AverageAndStop(L.Callback):
    """Validates with a moving average of the parameters, keeps the best one, and stops when it no longer improves.

    Args:
        ema_decay: Decay of the average; with 0 it is the current parameters.
        patience: Number of epochs without a better ``val/score`` after which to stop.

    Source:
        Polyak and Juditsky 1992; exponential form as in Tarvainen and Valpola 2017.
    """

    def __init__(self, *, ema_decay: float, patience: int) -> None:
        self._ema_decay = ema_decay
        self._patience = patience
        self._mean: dict[str, Tensor] = {}
        self._live: dict[str, Tensor] = {}
        self._steps = 0
        self.best_score = float("-inf")
        self.best_epoch = -1
        self.start_score = float("-inf")
        self._best: dict[str, Tensor] = {}

    def state_dict(self) -> dict[str, Any]:
        """The state that a resume point keeps."""
        return {
            "mean": self._mean, "steps": self._steps, "best_score": self.best_score, "best_epoch": self.best_epoch,
            "best": self._best, "start_score": self.start_score,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state from a resume point."""
        self._mean, self._best = state_dict["mean"], state_dict["best"]
        self._steps, self.best_epoch = state_dict["steps"], state_dict["best_epoch"]
        self.best_score, self.start_score = state_dict["best_score"], state_dict["start_score"]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Stop at once if the resumed run had already stopped early."""
        self._stop_if_old(trainer, trainer.current_epoch - 1)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Update the average."""
        self._steps += 1
        keep = min(self._ema_decay, self._steps / (self._steps + _RAMP)) if self._ema_decay else 0.0
        with torch.no_grad():
            for name, value in pl_module.state_dict().items():
                mean = self._mean.get(name)
                if mean is None:
                    self._mean[name] = value.detach().clone()
                else:
                    # Tensors restored from a resume point are on the CPU.
                    self._mean[name] = mean.to(value.device).lerp_(value, 1 - keep)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Replace the parameters by their average."""
        if self._mean and not trainer.sanity_checking:
            self._live = {name: value.detach().clone() for name, value in pl_module.state_dict().items()}
            pl_module.load_state_dict(self._mean)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keep the average if it is the best so far, and put the parameters back."""
        score = float(trainer.callback_metrics.get("val/score", float("nan")))
        if not self._mean and not trainer.sanity_checking:  # before the first step
            if math.isfinite(score):  # NaN if validation has no questions
                self.start_score = self.best_score = score
                self._best = {name: value.detach().clone() for name, value in pl_module.state_dict().items()}
        elif score > self.best_score:
            self.best_score, self.best_epoch = score, trainer.current_epoch
            self._best = {name: value.clone() for name, value in self._mean.items()}
        if self._live:
            pl_module.load_state_dict(self._live)
            self._live = {}
        self._stop_if_old(trainer, trainer.current_epoch)

    def _stop_if_old(self, trainer: L.Trainer, epoch: int) -> None:
        if self._best and epoch - self.best_epoch >= self._patience:
            trainer.should_stop = True

    def finish(self, module: L.LightningModule) -> None:
        """Give the module its best validated average or, without validation, the last average."""
        chosen = self._best or self._mean
        if chosen:
            module.load_state_dict(chosen)


class ResumePoint(L.Callback):
    """Saves everything needed to resume the run at the end of every epoch.

    Args:
        path: File to write. It is replaced atomically, so a crash leaves the last complete one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the file and replace the previous one with it."""
        part = self._path.with_suffix(".part")
        trainer.save_checkpoint(part, weights_only=False)
        if trainer.is_global_zero:
            sync(part)  # otherwise a power failure after the rename could leave an empty file
            os.replace(part, self._path)


class SealedCheckpoint(TorchCheckpointIO):
    """Lightning's checkpoints, each after a checksum of the whole file.

    Not all parts of a file of ``torch.save`` have a checksum, so that a flipped bit may move a tensor unnoticed.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint; raises OSError if it cannot be written."""
        saved = io.BytesIO()
        torch.save(checkpoint, saved)
        content = saved.getvalue()
        Path(path).write_bytes(hashlib.sha256(content).digest() + content)

    def load_checkpoint(self, path: Any, map_location: Any = "cpu", weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint; raises ValueError if it is damaged, OSError if it cannot be read."""
        content = io.BytesIO(_unsealed(Path(path)))
        loaded: dict[str, Any] = torch.load(content, map_location=map_location, weights_only=weights_only)
        return loaded


def _unsealed(path: Path) -> bytes:
    sealed = path.read_bytes()
    seal, content = sealed[:_SEAL_BYTES], sealed[_SEAL_BYTES:]
    if hashlib.sha256(content).digest() != seal:
        raise ValueError(f"{path}: damaged")
    return content


def _readable_resume_point(path: Path) -> str | None:
    """The resume point, or None if it is missing or damaged; a damaged one is removed, and the stage starts over."""
    try:
        _unsealed(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        path.unlink(missing_ok=True)  # each of several processes may try to remove it
        return None
    return str(path)


def remove_resume_point(path: Path) -> None:
    """Remove the resume point of a finished stage; those of other settings stay, so that their trainings can resume.

    Args:
        path: Path of the stage's resume point, without suffix: ``folder/<stage>-<fingerprint>``.
    """
    path.with_suffix(".ckpt").unlink(missing_ok=True)


class StepProgress(L.Callback):
    """One progress bar for the whole stage, with rate and time left.

    Args:
        name: Shown before the bar.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._bar: tqdm[Any] | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Open the bar at the step that the run has reached."""
        if trainer.is_global_zero:
            steps = int((trainer.max_epochs or 0) * trainer.num_training_batches)
            self._bar = tqdm(desc=self._name, total=steps, initial=trainer.global_step, unit="step")

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advance the bar by a step."""
        if self._bar is not None:
            self._bar.update()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show the scores of the last validation."""
        if self._bar is not None:
            shown = {
                name.split("/")[1]: f"{float(trainer.callback_metrics[name]):.3f}"
                for name in ("val/recall@10", "val/ndcg@10")
                if name in trainer.callback_metrics
            }
            self._bar.set_postfix(shown)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def is_first_process() -> bool:
    """Whether this process writes the results; of several processes, one per device, only the first does."""
    # Lightning sets ``rank`` as soon as it knows it; with a single process it may be missing.
    return int(getattr(rank_zero_only, "rank", 0)) == 0


def run_lightning(
    module: L.LightningModule,
    data: EpochDataModule[Any],
    config: TrainerConfig,
    *,
    epochs: int,
    patience: int,
    ema_decay: float,
    gradient_clip: float,
    path: Path,
    name: str,
    group: str,
    logged: Mapping[str, Any],
) -> dict[str, float]:
    """Train a module; an interrupted run is resumed after its last complete epoch.

    Args:
        module: Trained in place; left with the best validated moving average of its parameters or, without validation,
            the last one. It must log ``val/score``, where higher is better.
        data: Training examples, and validation examples whose questions decide when to stop.
        config: Where and how to run.
        epochs: Maximum number of epochs.
        patience: Number of epochs without a better validation score after which to stop.
        ema_decay: Decay of the moving average; 0 for none.
        gradient_clip: Maximum norm of the gradient; 0 switches clipping off.
        path: Path of the resume point and the logs, without suffix: ``folder/<stage>-<fingerprint>``.
        name: Shown on the progress bar; name of the run in Weights & Biases.
        group: Groups the runs of an experiment in Weights & Biases.
        logged: Hyper-parameters to log.

    Returns:
        ``val_score``, the best validation score; ``best_epoch``, its epoch, or -1 if no epoch was better than the
        initial parameters, which the module then keeps; and ``start_score``, the score before the first step. Without
        validation questions, only ``best_epoch``, which is -1.
    """
    best = AverageAndStop(ema_decay=ema_decay, patience=patience)
    resume = path.with_suffix(".ckpt")
    callbacks: list[L.Callback] = [best, StepProgress(f"{name} {path.name.partition('-')[0]}"), ResumePoint(resume)]
    with warnings.catch_warnings():
        # Lightning advises more data-loader workers; the examples are in memory already.
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*GPU available but not used.*")
        # All stages of a training share one run in Weights & Biases.
        warnings.filterwarnings("ignore", message=".*There is a wandb run already in progress.*")
        # Training without validation spaces is allowed.
        warnings.filterwarnings("ignore", message=".*Total length of `list` across ranks is zero.*")
        trainer = _trainer(
            accelerator=config.accelerator,
            devices=config.num_devices,
            # A space may lack node types or relations, whose parameters then get no gradient.
            strategy=DDPStrategy(find_unused_parameters=True) if config.num_devices != 1 else "auto",
            precision=config.precision,
            max_epochs=epochs,
            gradient_clip_val=gradient_clip,
            logger=_loggers(config, path, name, group, logged),
            callbacks=callbacks,
            plugins=SealedCheckpoint(),
            # The data module has its own sampler for training examples. Every process validates on all spaces: if they
            # were distributed, some would count twice, and a process without a question would leave the others waiting.
            use_distributed_sampler=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            log_every_n_steps=1,
        )
        taken_up = _readable_resume_point(resume)
        with _interruptible():
            if taken_up is None and data.validation:
                trainer.validate(module, datamodule=data, verbose=False)  # the baseline that the stage must beat
            trainer.fit(module, datamodule=data, ckpt_path=taken_up, weights_only=True)
    best.finish(module)
    if best.best_score == float("-inf"):  # no validation spaces, or no questions about them
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


def _trainer(**settings: Any) -> L.Trainer:
    try:
        return L.Trainer(**settings)
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        chosen = {name: settings[name] for name in ("accelerator", "devices", "precision")}
        raise TrainingError(f"trainer {chosen} cannot run here: {error}") from error


def _loggers(
    config: TrainerConfig, path: Path, name: str, group: str, logged: Mapping[str, Any]
) -> list[Logger] | bool:
    loggers: list[Logger] = []
    if config.csv_log:
        loggers.append(CSVLogger(str(path.parent), name=path.name, version=""))
    if config.wandb_mode != "disabled":
        import wandb

        stage, _, fingerprint = path.name.partition("-")
        # The same for all stages of a training, and for the runs that resume it.
        run = hashlib.sha256(str(path.absolute().with_name(fingerprint)).encode()).hexdigest()[:16]
        if wandb.run is not None and wandb.run.id != run:  # the run of another training in this process
            wandb.finish()
        logger = WandbLogger(
            project=config.wandb_project,
            name=name,
            group=group,
            id=run,
            prefix=stage,
            save_dir=str(path.parent),
            offline=config.wandb_mode == "offline",
        )
        logger.log_hyperparams(dict(logged))
        loggers.append(logger)
    return loggers or False
