"""One training from examples to a checkpoint, in stages, resumable."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import lightning as L  # noqa: N812  (the name Lightning's own documentation uses)
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from lightning.pytorch.strategies import DDPStrategy

from locigraph.training.callbacks import AverageAndStop, ResumePoint, StepProgress, remove_resume_points
from locigraph.training.config import StageConfig, TrainConfig
from locigraph.training.data import EpochDataModule, SpaceExample
from locigraph.training.errors import TrainingError
from locigraph.training.module import GraphRetrieval, RetrievalModule

#: In the order in which they run; resume points have their names.
STAGES = ("pretrain", "finetune")


@dataclass(frozen=True)
class TrainerConfig:
    """Lightning's part: where and how to run.

    Attributes:
        accelerator: ``auto``, ``cpu``, ``gpu``, ...
        devices: Number of devices, or ``auto`` for one.
        precision: ``32-true``, ``bf16-mixed`` or ``16-mixed``.
        compile: Whether to run the encoders through ``torch.compile``: a quarter less time a step on CPU, after minutes
            of compiling, so for long trainings only.
        fast_dev_run: One step of everything, to see that it works; writes no checkpoint.
        csv_log: Whether to write metrics to a CSV file.
        wandb_mode: ``disabled`` (no logger), ``offline`` (files only) or ``online``.
        wandb_project: Name of the project there.
    """

    accelerator: str = "auto"
    devices: int | str = "auto"
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    compile: bool = False
    fast_dev_run: bool = False
    csv_log: bool = True
    wandb_mode: Literal["disabled", "offline", "online"] = "disabled"
    wandb_project: str = "locigraph"


@dataclass(frozen=True)
class FitResult:
    """What a training came to, by stage: best validation score and its epoch (-1 without validation)."""

    stages: dict[str, dict[str, float]] = field(default_factory=dict)


def fit(
    network: GraphRetrieval,
    train: Sequence[SpaceExample],
    validation: Sequence[SpaceExample],
    config: TrainConfig,
    trainer: TrainerConfig,
    *,
    folder: Path,
    seed: int,
    identity: str = "",
    name: str = "train",
) -> FitResult:
    """Train a network through its stages.

    A folder of an interrupted run with the same configuration is taken up at its last complete epoch, and the result is
    that of an uninterrupted run; a folder of another configuration is begun anew.

    Args:
        network: Trained in place; initialised by the caller.
        train: Spaces to learn from.
        validation: Spaces that decide when to stop; may be empty.
        config: What to train.
        trainer: Where and how.
        folder: Resume points and logs.
        seed: Of order, dropout and sampling.
        identity: Of all else that decides the result, such as the code; a run of another one is begun anew.
        name: On the progress bar.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # In the names, so that another configuration's resume point is never taken up.
    fingerprint = _fingerprint(network, train, validation, config, seed, identity)
    paths = {label: folder / f"{label}-{fingerprint}" for label in STAGES}
    for path in paths.values():
        remove_resume_points(path, others_only=True)
    result = FitResult()
    for number, (label, stage) in enumerate(zip(STAGES, (config.pretrain, config.finetune), strict=True)):
        if stage.epochs == 0:
            continue
        outcome = _run_stage(
            network,
            train,
            validation,
            stage,
            config,
            trainer,
            paths[label],
            10 * seed + number,
            f"{name} {label}",
        )
        result.stages[label] = outcome
    network.eval()
    return result


def _run_stage(
    network: GraphRetrieval,
    train: Sequence[SpaceExample],
    validation: Sequence[SpaceExample],
    stage: StageConfig,
    config: TrainConfig,
    trainer: TrainerConfig,
    path: Path,
    seed: int,
    name: str,
) -> dict[str, float]:
    torch.manual_seed(seed)
    network.train()
    module = RetrievalModule(network, stage, config.optimiser, seed=seed)
    if trainer.compile:
        # In place, so that the names of the weights stay as they are.
        network.nodes.compile(dynamic=True)
        network.queries.compile(dynamic=True)
    return run_lightning(
        module,
        EpochDataModule(train, validation, seed=seed),
        trainer,
        epochs=stage.epochs,
        patience=stage.patience,
        average=config.optimiser.average,
        gradient_clip=config.optimiser.gradient_clip,
        path=path,
        name=name,
    )


def run_lightning(
    module: L.LightningModule,
    data: EpochDataModule[Any],
    config: TrainerConfig,
    *,
    epochs: int,
    patience: int,
    average: float,
    gradient_clip: float,
    path: Path,
    name: str,
) -> dict[str, float]:
    """Train a module; an interrupted run is taken up at its last complete epoch.

    Args:
        module: Trained in place; left with the best validated running average of its parameters or, without validation,
            the last. Logs ``val/score``, the greater the better.
        data: What to learn from and what decides when to stop.
        config: Where and how.
        epochs: At most so many.
        patience: Epochs without a better validation before stopping.
        average: Weight of the past in the running average; 0 for none.
        gradient_clip: Largest norm of the gradient.
        path: Of the resume point and the logs, without suffix.
        name: On the progress bar.

    Returns:
        Best validation score and its epoch; only ``best_epoch`` -1 without validation.
    """
    best = AverageAndStop(average=average, patience=patience)
    resume = path.with_suffix(".ckpt")
    callbacks: list[L.Callback] = [best, StepProgress(name)]
    if not config.fast_dev_run:
        callbacks.append(ResumePoint(resume))
    several = config.devices not in (1, "1", "auto")
    with warnings.catch_warnings():
        # Lightning advises more data-loader workers; the examples are in memory already.
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*GPU available but not used.*")
        # A training without validation spaces is one of the ways to train.
        warnings.filterwarnings("ignore", message=".*Total length of `list` across ranks is zero.*")
        trainer = _trainer(
            accelerator=config.accelerator,
            # One process a machine unless more are asked for: a space is a step, and steps are short.
            devices=1 if config.devices == "auto" else config.devices,
            # A space may lack node types or relations, whose parameters then get no gradient.
            strategy=DDPStrategy(find_unused_parameters=True) if several else "auto",
            precision=config.precision,
            max_epochs=epochs,
            gradient_clip_val=gradient_clip,
            fast_dev_run=config.fast_dev_run,
            logger=_loggers(config, path, name),
            callbacks=callbacks,
            # Training examples are dealt out by their own sampler. Every process validates on all spaces: shared out,
            # some would count twice, and a process without a question would leave the others waiting.
            use_distributed_sampler=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            log_every_n_steps=1,
        )
        trainer.fit(module, datamodule=data, ckpt_path=str(resume) if resume.is_file() else None, weights_only=True)
    best.finish(module)
    if best.best_epoch < 0:  # nothing to validate on, or no question about it
        return {"best_epoch": -1}
    return {"best_epoch": best.best_epoch, "val_score": best.best_score}


def _trainer(**settings: Any) -> L.Trainer:
    try:
        return L.Trainer(**settings)
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        chosen = {name: settings[name] for name in ("accelerator", "devices", "precision")}
        raise TrainingError(f"trainer {chosen} cannot run here: {error}") from error


def _loggers(config: TrainerConfig, path: Path, name: str) -> list[Logger] | bool:
    loggers: list[Logger] = []
    if config.csv_log and not config.fast_dev_run:
        loggers.append(CSVLogger(str(path.parent), name=path.name, version=""))
    if config.wandb_mode != "disabled":
        loggers.append(
            WandbLogger(
                project=config.wandb_project,
                name=name,
                save_dir=str(path.parent),
                offline=config.wandb_mode == "offline",
            )
        )
    return loggers or False


def _fingerprint(
    network: GraphRetrieval,
    train: Sequence[SpaceExample],
    validation: Sequence[SpaceExample],
    config: TrainConfig,
    seed: int,
    identity: str,
) -> str:
    digest = hashlib.sha256(json.dumps([asdict(config), seed, identity], sort_keys=True).encode())
    for tensor in network.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    for side in (train, validation):
        for example in side:
            digest.update(example.name.encode())
            inputs, pseudo = example.inputs, example.pseudo.values()
            asked = [*filter(None, [example.questions]), *(made.queries for made in pseudo)]
            for tensor in (
                inputs.text, inputs.lexical, inputs.context, inputs.traits, inputs.graph.source, inputs.graph.target,
                example.positive, *(q.text for q in asked), *(q.term_row for q in asked),
                *(made.positive for made in pseudo), *(made.masked.text for made in pseudo if made.masked is not None),
            ):  # fmt: skip
                digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]
