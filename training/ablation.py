"""Ablations: models trained on the same folds with one change, compared question by question with the full model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from locigraph.retrieval.evaluation.asking import joined_runs
from locigraph.retrieval.evaluation.leaks import Fold
from locigraph.retrieval.evaluation.outcomes import QuestionOutcome, StrategyRun
from locigraph.retrieval.evaluation.results import Summary
from locigraph.retrieval.evaluation.summary import summarise
from locigraph.training.config import Settings, changed

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


def ablate(
    variants: Mapping[str, Mapping[str, Any]],
    settings: Settings,
    folds: Sequence[Fold],
    outcomes: Sequence[QuestionOutcome],
    run_fold: Callable[[str, Settings, Fold], StrategyRun],
    *,
    seed: int,
    left_out: Collection[str] = (),
) -> Summary:
    """Train every variant on every fold and compare it with the full model.

    Args:
        variants: Changes by name; see ``variants_of``.
        settings: Settings of the full model.
        folds: Folds of whole conversations.
        outcomes: All questions.
        run_fold: Trains a named configuration on a fold and runs it on the fold's test questions.
        seed: Random seed of the statistics.
        left_out: IDs of questions that are excluded from all comparisons, since their evidence was trained on.
    """
    configs = {FULL: settings} | {name: changed(settings, changes) for name, changes in variants.items()}
    runs = [joined_runs([run_fold(name, variant, fold) for fold in folds]) for name, variant in configs.items()]
    pairs = [(name, FULL) for name in variants]
    return summarise(outcomes, runs, comparisons=pairs, metrics=("recall@10",), left_out=left_out, seed=seed)
