"""Ablations: changes of the model, each of which is compared with the full model, trained on the same folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from locigraph.kg.errors import LocigraphError, nearest
from locigraph.training.config import Settings, TrainerConfig, changed

if TYPE_CHECKING:
    from locigraph.research.evaluation.outcomes import StrategyRun
    from locigraph.research.evaluation.results import Summary
    from locigraph.research.experiments.folded_corpus import FoldedCorpus
    from locigraph.training.leaks import Fold

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


def chosen_variants(full: Settings, names: Sequence[str] | None) -> dict[str, Mapping[str, Any]]:
    """The named variants of a full model, with their changes; all of them if none is named.

    Raises:
        LocigraphError: If one is unknown.
    """
    known = variants_of(full)
    for name in names or ():
        if name not in known:
            raise LocigraphError(f"variant {name!r} is not known{nearest(name, known)}")
    return known if names is None else {name: known[name] for name in names}


def compared_variants(
    folded: FoldedCorpus,
    full: Settings,
    variants: Mapping[str, Mapping[str, Any]],
    trainer: TrainerConfig,
    *,
    seed: int,
) -> tuple[Summary, list[str]]:
    """Train the full model and its variants in all folds, and compare them.

    Args:
        folded: The corpus with its folds.
        full: The full model.
        variants: The changes of each variant.
        trainer: Where and how to train.
        seed: Random seed.

    Returns:
        The comparison, and IDs of the questions that it leaves out, since they were learnt from.
    """
    from locigraph.research.evaluation.asking import joined_runs, outcomes
    from locigraph.research.evaluation.summary import summarise
    from locigraph.research.experiments.fold_task import Asker
    from locigraph.research.experiments.result_files import learnt_questions
    from locigraph.training.folds import seen_by

    questions = folded.corpus.questions
    left_out = learnt_questions(folded.corpus, folded.folds, seen_by(folded.encoder.adapter))
    if len(left_out) == len(questions):
        raise LocigraphError(
            f"{folded.corpus.path}: the adapter has learnt from all {len(questions)} questions, so none is left to "
            "compare variants on; use another corpus, or --encoder.adapter null"
        )
    with folded.trainings(trainer, seed=seed) as (views, trainings):

        def run_fold(name: str, settings: Settings, fold: Fold) -> StrategyRun:
            here = folded.folder / name.replace(" ", "-") / f"fold-{fold.index}"
            checkpoint = trainings.train(fold, settings, folder=here, seed=seed, name=f"{name}, fold {fold.index}")
            tested = [q for q in questions if q.space in fold.test]
            return Asker(tested, folded.encoder, views).checkpoint(checkpoint, tested, name=name)

        configs = {FULL: full} | {name: changed(full, changes) for name, changes in variants.items()}
        runs = [joined_runs([run_fold(*config, fold) for fold in folded.folds]) for config in configs.items()]
    summary = summarise(
        outcomes(questions, {space: fold.index for fold in folded.folds for space in fold.test}),
        runs,
        comparisons=[(name, FULL) for name in variants],
        metrics=("recall@10",),
        left_out=left_out,
        seed=seed,
    )
    return summary, left_out
