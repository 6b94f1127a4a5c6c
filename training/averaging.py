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

    The result records everything that any of them was trained or validated on.

    Args:
        checkpoints: At least two, of the same model and text encoder.
        details: Further entries of its manifest.

    Raises:
        CheckpointError: If there are fewer than two, or two do not fit together; says which and why.
    """
    if len(checkpoints) < 2:
        raise CheckpointError(f"averaging needs at least two checkpoints, got {len(checkpoints)}; name more")
    first = checkpoints[0]
    for other in checkpoints[1:]:
        for what, here, there in (
            ("model", first.model, other.model),
            ("text encoder", first.text_encoder, other.text_encoder),
        ):
            if here != there:
                raise CheckpointError(
                    f"checkpoints {first.version} and {other.version} cannot be averaged: {what} is {here!r} and "
                    f"{there!r}; train both alike"
                )
    all_weights = [checkpoint.weights for checkpoint in checkpoints]
    weights = {name: np.asarray(np.mean([each[name] for each in all_weights], axis=0)) for name in first.weights}
    identities = [checkpoint.details["identity"] for checkpoint in checkpoints]
    seen = [checkpoint.seen for checkpoint in checkpoints]
    known = [each for each in seen if each is not None]
    return Checkpoint(
        weights,
        first.model,
        first.text_encoder,
        first.text_dim,
        {
            **details,
            "identity": {
                "seed": identities[0].get("seed"),
                **{side: sorted({s for each in identities for s in each[side]}) for side in ("train", "validation")},
            },
            "averaged": {checkpoint.version: checkpoint.details for checkpoint in checkpoints},
            **_fusion(checkpoints),
        },
        SeenTexts.union(known) if len(known) == len(seen) else None,
    )


def _fusion(checkpoints: Sequence[Checkpoint]) -> dict[str, dict[str, float]]:
    """The mean of the fusions' weights, as an entry of the manifest; empty if a checkpoint has no fusion."""
    recorded = [checkpoint.details.get(DETAIL) for checkpoint in checkpoints]
    fusions = [each for each in recorded if isinstance(each, dict)]
    if len(fusions) < len(recorded):
        return {}
    names = dict.fromkeys(name for each in fusions for name in each)
    return {DETAIL: {name: round(sum(each.get(name, 0.0) for each in fusions) / len(fusions), 4) for name in names}}
