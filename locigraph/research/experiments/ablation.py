"""Ablations: changes of the model, each of which is compared with the full model, trained on the same folds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locigraph.training.config import Settings

#: Name of the unchanged model in the results.
FULL = "full"


def variants_of(settings: Settings) -> dict[str, Mapping[str, Any]]:
    """The variants of a full model, by name: each maps dotted field names of ``Settings`` to new values.

    A variant that leaves out a loss or a relation keeps the others as in ``settings``.
    """

    def without(loss: str) -> Mapping[str, Any]:
        left = {name: weight for name, weight in settings.training.pretrain_losses.items() if name != loss}
        return {"training.pretrain_losses": left}

    def excluding(relation: str) -> Mapping[str, Any]:
        return {"model.excluded_relations": list(dict.fromkeys([*settings.model.excluded_relations, relation]))}

    return {
        "mixing": {"model.encoder": "mixing"},
        # Its layer is larger than our attention, whose rate would leave it as it was drawn.
        "hgtconv": {"model.encoder": "hgtconv", "training.lr": 1e-3},
        "mixing, no pre-training": {"model.encoder": "mixing", "training.pretrain_epochs": 0},
        "no attention": {"training.lr": 0.0},
        "priors alone": {"training.lr": 0.0, "training.edge_lr": 0.0},
        "untrained": {"training.lr": 0.0, "training.edge_lr": 0.0, "training.scalar_lr": 0.0},
        "sketch 256": {"model.lexical_dim": 256},
        "sketch 512": {"model.lexical_dim": 512},
        "sketch 2048": {"model.lexical_dim": 2048},
        "sketch 4096": {"model.lexical_dim": 4096},
        "no speakers": {"model.speaker_dim": 0},
        "no dates": {"model.date_dim": 0},
        "wide context": {"model.speaker_dim": 64, "model.date_dim": 192},
        "no neighbouring turns": excluding("NEXT"),
        "no facts and events": excluding("DERIVED_FROM"),
        "no facts": excluding("fact"),
        "no events": excluding("event"),
        "no topics": excluding("topic"),
        "no graph": {"model.excluded_relations": ["*"]},
        "no pre-training": {"training.pretrain_epochs": 0},
        "no link prediction": without("link"),
        "no pseudo-questions": without("pseudo_questions"),
        "no two views": without("views"),
        "no fine-tuning": {"training.epochs": 0},
    }
