"""What trainings of low-rank updates of a text encoder share: what is kept of them, and their learning rates."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch

from locigraph.training.config import AdapterConfig, RerankerConfig
from locigraph.training.lightning_run import RankingModule


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
