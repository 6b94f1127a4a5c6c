"""What trainings of low-rank updates of a text encoder share: what is kept of them, and how they run."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import nn

from locigraph.retrieval.errors import TextEncoderError
from locigraph.training.config import AdapterConfig, RerankerConfig
from locigraph.training.identity import RunIdentity, TrainingRun
from locigraph.training.lightning_run import RankingModule, is_first_process, run_lightning


class Finished(Protocol):
    """What a training has made."""

    @property
    def details(self) -> Mapping[str, Any]:
        """How it was made; ``identity`` tells one training from another."""


FinishedT = TypeVar("FinishedT", bound=Finished)
LowRankT = TypeVar("LowRankT", bound="LowRankTraining")


class LowRankTraining(RankingModule):
    """Base of trainings of which only the weights that are learnt are kept, since the encoder's do not change.

    Args:
        config: Epochs and warm-up of the training.
        examples: Number of training examples per epoch; it sets the length of the learning-rate schedule.
        seed: Random seed.
    """

    def __init__(self, config: AdapterConfig | RerankerConfig, *, examples: int, seed: int) -> None:
        super().__init__(seed=seed)
        self._examples = examples
        self._epochs, self._warmup_steps = config.epochs, config.warmup_steps

    @property
    @abstractmethod
    def transformer(self) -> Any:
        """The transformer of the text encoder, with its trainable updates."""

    def on_fit_start(self) -> None:
        """On a CPU, use plain attention: the fused one's backward pass takes three times as long in bfloat16."""
        if self.device.type == "cpu":
            self.transformer.set_attn_implementation("eager")

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]  # torch overloads it
        """The weights that are learnt."""
        learnt = self._learnt()
        return {name: value for name, value in super().state_dict(*args, **kwargs).items() if name in learnt}

    def _learnt(self) -> set[str]:
        return {name for name, parameter in self.named_parameters() if parameter.requires_grad}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load the weights that are learnt; those of the encoder stay as they are."""
        missing = self._learnt() ^ set(state_dict)
        if strict and missing:
            raise KeyError(f"the learnt weights do not match: {sorted(missing)[0]!r} is missing or unexpected")
        return super().load_state_dict(state_dict, strict=False, assign=assign)

    def scheduled(self, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
        """An optimiser whose learning rates rise linearly, then fall linearly to 0, as Lightning takes it."""
        # Not the trainer's own estimate: computing it would give a resumed run the order of the first epoch.
        steps = self._epochs * math.ceil(self._examples / self.trainer.world_size)
        warmup = max(1, min(self._warmup_steps, steps // 4))
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: min((step + 1) / warmup, max(0.0, 1 - step / steps))
        )
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def without_own_dropout(module: nn.Module) -> None:
    """Switch off all dropout but that of low-rank updates: its random numbers take longer than the matrix products."""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Dropout) and "lora_dropout" not in name:
            layer.p = 0.0


def finished_or_trained(
    module: Callable[[], LowRankT],
    examples: tuple[Sequence[Any], Sequence[Any]],
    config: AdapterConfig | RerankerConfig,
    run: TrainingRun,
    identity: RunIdentity,
    *,
    stage: str,
    read: Callable[[], FinishedT],
    save: Callable[[LowRankT, dict[str, Any]], object],
) -> FinishedT:
    """Read the finished training of the same identity, or else run it, from its last epoch if it was interrupted.

    Args:
        module: Makes what is trained, after the random seed is set.
        examples: Steps to train on, and examples to validate on.
        config: Settings of the training.
        run: Where and how it runs.
        identity: What makes it another training.
        stage: Its name in logs and files.
        read: Reads what a training has made; raises TextEncoderError if that is missing, damaged, or of another kind.
        save: Writes what was trained, with how it was made.
    """
    try:
        done = read()
        if done.details.get("identity") == identity.as_json():
            return done
    except TextEncoderError:
        pass
    torch.manual_seed(run.seed)
    training = module()
    result = run_lightning(training, *examples, config, run, identity, stage=stage, epochs=config.epochs, seed=run.seed)
    if is_first_process():
        save(training, {**run.details, "identity": identity.as_json(), "validation": result})
        identity.resume_point(run.folder, stage).unlink(missing_ok=True)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()  # the other processes read what the first one has written
    return read()
