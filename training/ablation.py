"""Ablations: the same folds trained again with one thing changed, compared question by question with the full model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from locigraph.retrieval.evaluation import Fold, QuestionOutcome, StrategyRun, summarise
from locigraph.retrieval.evaluation.asking import joined_runs
from locigraph.retrieval.evaluation.results import Summary
from locigraph.training.config import Settings, changed

#: Name of the unchanged model in the results.
FULL = "full"

#: One change each; keys are fields of ``Settings`` joined by dots.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
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
    "no neighbouring turns": {"model.excluded_relations": ["NEXT"]},
    "no facts and events": {"model.excluded_relations": ["DERIVED_FROM"]},
    "no facts": {"model.excluded_relations": ["fact"]},
    "no events": {"model.excluded_relations": ["event"]},
    "no topics": {"model.excluded_relations": ["topic"]},
    "no graph": {"model.excluded_relations": ["*"]},
    "no pre-training": {"training.pretrain_epochs": 0},
    "no link prediction": {"training.pretrain_losses": {"pseudo_questions": 1.0, "views": 0.1}},
    "no pseudo-questions": {"training.pretrain_losses": {"link": 0.2, "views": 0.1}},
    "no two views": {"training.pretrain_losses": {"link": 0.2, "pseudo_questions": 1.0}},
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
) -> Summary:
    """Train every variant on every fold and compare it with the full model.

    Args:
        variants: Changes by name.
        settings: Settings of the full model.
        folds: Folds of whole conversations.
        outcomes: All questions.
        run_fold: Trains a named configuration on a fold and runs it on the fold's test questions.
        seed: Random seed of the statistics.

    Returns:
        What ``retrieval.evaluation.summarise`` gives, each variant compared with the full model.
    """
    configs = {FULL: settings} | {name: changed(settings, changes) for name, changes in variants.items()}
    runs = [joined_runs([run_fold(name, variant, fold) for fold in folds]) for name, variant in configs.items()]
    return summarise(outcomes, runs, comparisons=[(name, FULL) for name in variants], metrics=("recall@10",), seed=seed)
