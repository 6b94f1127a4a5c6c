"""``locigraph ablate``: measure what each part of the model contributes."""

from __future__ import annotations

from locigraph.assembly.settings import CorpusSettings, EncoderSettings, LLMSettings
from locigraph.kg.name_list import Names, names_in
from locigraph.training.config import ModelConfig, TrainerConfig, TrainingConfig


def ablate(
    *,
    corpus: CorpusSettings = CorpusSettings(),
    consolidation: str = "rules",
    llm: LLMSettings = LLMSettings(),
    variants: Names | None = None,
    output: str = "runs/ablate",
    folds: int = 5,
    validation: int = 2,
    model: ModelConfig = ModelConfig(),
    training: TrainingConfig = TrainingConfig(),
    trainer: TrainerConfig = TrainerConfig(csv_log=False),
    store: str | None = None,
    encoder: EncoderSettings = EncoderSettings(),
    seed: int = 0,
) -> None:
    """Train variants of the model that change one thing each, and compare them with the full model, fold by fold.

    Questions whose wording or evidence occurs word for word in the training data are left out of the comparisons.
    Writes ablation.json, ablation.md and ablation.svg. Finished trainings are kept, so an interrupted run can be
    continued.

    Args:
        corpus: Conversations and questions.
        consolidation: Extractor that builds the graph: <extractors>.
        llm: Language models, for the extractor ``llm``.
        variants: Names of the changes to try; null for all. They are: <variants>.
        output: Folder of the results.
        folds: Number of groups of conversations, each tested by models that were trained on the others.
        validation: Number of training conversations of each fold held out for early stopping.
        model: The full model.
        training: Stages, losses and optimiser.
        trainer: Where and how to train.
        store: The graph; null puts it into the output folder.
        encoder: Text encoder.
        seed: Random seed.
    """
    import dataclasses
    import json
    from pathlib import Path

    from locigraph.assembly import graphs, learning, opening, provenance
    from locigraph.assembly.language_models import clients_of
    from locigraph.kg.errors import LocigraphError, nearest
    from locigraph.kg.files import replace_file
    from locigraph.research.evaluation.ablation_report import ablation_figure, ablation_table
    from locigraph.research.evaluation.asking import joined_runs, outcomes
    from locigraph.research.evaluation.outcomes import StrategyRun
    from locigraph.research.evaluation.report import learnt_note
    from locigraph.research.evaluation.summary import summarise
    from locigraph.research.experiments.ablation import FULL, variants_of
    from locigraph.research.experiments.result_files import learnt_questions
    from locigraph.training.config import Settings, changed
    from locigraph.training.folds import plan_folds, seen_by
    from locigraph.training.leaks import Fold

    provenance.source_commit()
    named = None if variants is None else names_in(variants)
    if named == []:
        raise LocigraphError("variants is empty; name at least one variant, or leave the option out to try all")
    folder = Path(output)
    path = store or str(folder / "graph.sqlite")
    loaded = opening.read_corpus(corpus, store=path)
    full = learning.settings_of(model, training)
    known = variants_of(full)
    for name in named or ():
        if name not in known:
            raise LocigraphError(f"variant {name!r} is not known{nearest(name, known)}")
    chosen = known if named is None else {name: known[name] for name in named}
    opening.require_questions(loaded, "there is nothing to evaluate")

    from locigraph.research.experiments.fold_task import Asker, fold_trainer  # imports the vector index

    extractor = graphs.extractor_for(consolidation, loaded, clients_of(llm))
    text_encoder = opening.held_out_encoder(encoder, loaded.questions)
    planned = plan_folds(loaded.questions, folds=folds, validation=validation, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    with graphs.built_views(loaded, extractor, text_encoder, path) as views:
        trainings = fold_trainer(loaded, views, trainer, text_encoder, seed=seed, experiment=folder.name)

        def run_fold(name: str, settings: Settings, fold: Fold) -> StrategyRun:
            here = folder / name.replace(" ", "-") / f"fold-{fold.index}"
            checkpoint = trainings.train(fold, settings, folder=here, seed=seed, name=f"{name}, fold {fold.index}")
            tested = [q for q in loaded.questions if q.space in fold.test]
            return Asker(tested, text_encoder, views).checkpoint(checkpoint, tested, name=name)

        fold_of = {space: fold.index for fold in planned for space in fold.test}
        left_out = learnt_questions(loaded, planned, seen_by(text_encoder.adapter))
        configs = {FULL: full} | {name: changed(full, changes) for name, changes in chosen.items()}
        runs = [joined_runs([run_fold(*config, fold) for fold in planned]) for config in configs.items()]
        summary = summarise(
            outcomes(loaded.questions, fold_of),
            runs,
            comparisons=[(name, FULL) for name in chosen],
            metrics=("recall@10",),
            left_out=left_out,
            seed=seed,
        )
    manifest = provenance.manifest(
        seed,
        consolidation=consolidation,
        folds=len(planned),
        validation=validation,
        corpus=loaded.sha256,
        text_encoder=text_encoder.model_id,
        model=dataclasses.asdict(model),
        training=dataclasses.asdict(training),
        variants=chosen,
        trainer=dataclasses.asdict(trainer),
    )
    replace_file(
        folder / "ablation.json", json.dumps({**summary, "left_out": left_out, "manifest": manifest}, indent=1) + "\n"
    )
    table = "\n\n".join([ablation_table(summary), *learnt_note(len(left_out))])
    replace_file(folder / "ablation.md", table + "\n")
    replace_file(folder / "ablation.svg", ablation_figure(summary))
    print(table)
    print(f"numbers: {folder / 'ablation.json'}; plot: {folder / 'ablation.svg'}")
