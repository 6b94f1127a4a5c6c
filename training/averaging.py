"""Averages the weights of several checkpoints: one model of the same size, on most corpora near the best of them.

Trainings that start from the same weights end close enough together for their mean to work as well, and what only one
of them has learnt, from its particular corpora or their order, is outvoted by the others. All trainings of one graph
encoder start from the same weights, its random keys and queries included, whatever their seed.

Source:
    Wortsman et al. 2022, "Model soups: averaging weights of multiple fine-tuned models improves accuracy without
    increasing inference time", arXiv:2203.05482 (the uniform soup).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from locigraph.kg.language.seen_texts import SeenTexts
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.errors import CheckpointError
from locigraph.training.fusion import DETAIL


def averaged(checkpoints: Sequence[Checkpoint], **details: Any) -> Checkpoint:
    """Average the weights of several checkpoints, and of their linear fusions, into one checkpoint.

    The result records everything that any of them was trained or validated on; ``details`` are further entries of its
    manifest.

    Raises:
        CheckpointError: If there are fewer than two, or two are not of the same model and text encoder; says which.
    """
    if len(checkpoints) < 2:
        raise CheckpointError(f"averaging needs at least two checkpoints, got {len(checkpoints)}; name more")
    first = checkpoints[0]
    versions = [each.version for each in checkpoints]
    if len({*versions}) < len(versions):
        raise CheckpointError(f"the checkpoints to average are {', '.join(versions)}; name each once")
    for other in checkpoints[1:]:
        for what in ("model", "text_encoder"):
            here, there = getattr(first, what), getattr(other, what)
            if here != there:
                raise CheckpointError(
                    f"checkpoints {first.version} and {other.version} cannot be averaged: {what.replace('_', ' ')} is "
                    f"{here!r} and {there!r}; train both alike"
                )
        if _shapes(first) != _shapes(other):
            raise CheckpointError(
                f"checkpoints {first.version} and {other.version} cannot be averaged: their weights have other names "
                "or shapes; train both alike"
            )
    weights = {
        name: np.asarray(np.mean([each.weights[name] for each in checkpoints], axis=0)) for name in first.weights
    }
    identities = [checkpoint.details["identity"] for checkpoint in checkpoints]
    recorded: dict[str, Any] = {
        **details,
        "identity": {
            "seed": identities[0].get("seed"),
            **{side: sorted({s for each in identities for s in each[side]}) for side in ("train", "validation")},
        },
        "averaged": {checkpoint.version: checkpoint.details for checkpoint in checkpoints},
    }
    fusions = [each.details[DETAIL] for each in checkpoints if isinstance(each.details.get(DETAIL), dict)]
    if len(fusions) == len(checkpoints):
        names = dict.fromkeys(name for each in fusions for name in each)
        means = {name: sum(each.get(name, 0.0) for each in fusions) / len(fusions) for name in names}
        recorded[DETAIL] = {name: round(mean, 4) for name, mean in means.items()}
    known = [each.seen for each in checkpoints if each.seen is not None]
    seen = SeenTexts.union(known) if len(known) == len(checkpoints) else None
    return Checkpoint(weights, first.model, first.text_encoder, first.text_dim, recorded, seen)


def _shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in checkpoint.weights.items()}
