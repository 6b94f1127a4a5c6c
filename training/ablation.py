"""Ablations: the same folds trained again with one thing changed, compared question by question with the full model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from locigraph.gnn.hetero import NODE_TYPES
from locigraph.retrieval.evaluation import Fold, QuestionOutcome, StrategyRun, summarise
from locigraph.retrieval.evaluation.results import Summary
from locigraph.training.config import TrainConfig, changed
from locigraph.training.experiment import joined_runs

#: Name of the unchanged model in the results.
FULL = "full"

#: One change each; keys are fields of ``TrainConfig`` joined by dots.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "no edge gate": {"model.edge_gate": False},
    "no state gate": {"model.state_gate": False},
    "no free block": {"model.free_dim": 0},
    "mixing only": {"model.edge_gate": False, "model.state_gate": False, "model.free_dim": 0},
    "1 HGT layer": {"model.layers": 1},
    "2 HGT layers": {"model.layers": 2},
    "3 HGT layers": {"model.layers": 3},
    "2 HGT layers, 1 head": {"model.layers": 2, "model.heads": 1},
    "2 HGT layers, 8 heads": {"model.layers": 2, "model.heads": 8},
    "2 HGT layers, no pre-training": {"model.layers": 2, "pretrain.epochs": 0},
    "no question gates": {"model.query_gates": False},
    "no residual on the question": {"model.query_rank": 0},
    "plain question side": {"model.query_gates": False, "model.query_rank": 0, "optimiser.term_lr": 0.0},
    "hidden 64": {"model.hidden_dim": 64},
    "hidden 256": {"model.hidden_dim": 256},
    "no dedicated buckets": {"model.dedicated_terms": 0},
    "no related terms": {"model.related_terms": 0},
    "sketch 4096": {"model.lexical_dim": 4096, "model.dedicated_terms": 3072},
    "sketch 1024": {"model.lexical_dim": 1024, "model.dedicated_terms": 512},
    "sketch 512": {"model.lexical_dim": 512, "model.dedicated_terms": 256},
    "IDF of turns": {"model.idf_of": ["episode"]},
    "IDF of all nodes": {"model.idf_of": list(NODE_TYPES)},
    "saturation 0": {"model.saturation": 0.0},
    "saturation 0.6": {"model.saturation": 0.6},
    "saturation 2.4": {"model.saturation": 2.4},
    "length norm 0": {"model.length_norm": 0.0},
    "length norm 0.4": {"model.length_norm": 0.4},
    "no sketch": {"model.lexical_dim": 0, "model.dedicated_terms": 0},
    "no speakers": {"model.speaker_dim": 0},
    "no dates": {"model.date_dim": 0},
    "no NEXT": {"model.excluded_relations": ["NEXT"]},
    "no facts and events": {"model.excluded_relations": ["DERIVED_FROM"]},
    "no facts": {"model.excluded_relations": ["knowledge_node:DERIVED_FROM"]},
    "no events": {"model.excluded_relations": ["event_node:DERIVED_FROM"]},
    "no PRECEDES": {"model.excluded_relations": ["PRECEDES"]},
    "no HAS_CONCEPT": {"model.excluded_relations": ["HAS_CONCEPT"]},
    "no ABOUT_CONCEPT": {"model.excluded_relations": ["ABOUT_CONCEPT"]},
    "no topics": {"model.excluded_relations": ["HAS_CONCEPT", "ABOUT_CONCEPT"]},
    "no entities": {"model.excluded_relations": ["MENTIONS"]},
    "no pre-training": {"pretrain.epochs": 0},
    "no link prediction": {"pretrain.link": 0.0},
    "no pseudo-questions": {"pretrain.fact_questions": 0.0},
    "facts as queries": {"pretrain.facts": 1.0},
    "spans as queries": {"pretrain.spans": 1.0},
    "spans alone": {"pretrain.fact_questions": 0.0, "pretrain.spans": 1.0},
    "likely answers left out": {"pretrain.false_negative": 0.8, "finetune.false_negative": 0.8},
    "no two views": {"pretrain.views": 0.0},
    "no fine-tuning": {"finetune.epochs": 0},
    "no graph": {"model.excluded_relations": ["NEXT", "DERIVED_FROM", "HAS_CONCEPT", "ABOUT_CONCEPT", "MENTIONS"]},
    "pseudo-questions beside": {"finetune.fact_questions": 0.3},
    "link prediction beside": {"finetune.link": 0.1},
    "two views beside": {"finetune.views": 0.1},
    "hand-set mixing": {"optimiser.scalar_lr": 0.0, "optimiser.edge_lr": 0.0},
    "no term weights": {"optimiser.term_lr": 0.0},
}  # fmt: skip


def ablate(
    variants: Mapping[str, Mapping[str, Any]],
    config: TrainConfig,
    folds: Sequence[Fold],
    outcomes: Sequence[QuestionOutcome],
    run_fold: Callable[[str, TrainConfig, Fold], StrategyRun],
    *,
    seed: int,
) -> Summary:
    """Train every variant on every fold and compare it with the full model.

    Args:
        variants: Changes by name.
        config: The full model's.
        folds: By conversation.
        outcomes: All questions.
        run_fold: Trains a named configuration on a fold and asks its test questions.
        seed: Of the statistics.

    Returns:
        What ``retrieval.evaluation.summarise`` gives, each variant compared with the full model.
    """
    configs = {FULL: config} | {name: changed(config, changes) for name, changes in variants.items()}
    runs = []
    for name, variant in configs.items():
        runs.append(joined_runs([run_fold(name, variant, fold) for fold in folds]))
    return summarise(outcomes, runs, comparisons=[(name, FULL) for name in variants], metrics=("recall@10",), seed=seed)
