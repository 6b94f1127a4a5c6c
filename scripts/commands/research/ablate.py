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
    import json

    from locigraph.assembly import learning
    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.files import replace_file
    from locigraph.research.evaluation.ablation_report import ablation_figure, ablation_table
    from locigraph.research.evaluation.report import learnt_note
    from locigraph.research.experiments.ablation import chosen_variants, compared_variants
    from locigraph.research.experiments.folded_corpus import FoldedCorpus, read_with_questions

    if variants is not None and not names_in(variants):
        raise LocigraphError("variants is empty; name at least one variant, or leave the option out to try all")
    loaded = read_with_questions(corpus, output=output, store=store, needed_for="there is nothing to evaluate")
    full = learning.settings_of(model, training)
    chosen = chosen_variants(full, None if variants is None else names_in(variants))
    folded = FoldedCorpus.opened(
        loaded, consolidation, llm, encoder, output=output, store=store, folds=folds, validation=validation, seed=seed
    )
    summary, left_out = compared_variants(folded, full, chosen, trainer, seed=seed)
    manifest = folded.manifest(seed, model, training, trainer, variants=chosen)
    numbers = json.dumps({**summary, "left_out": left_out, "manifest": manifest}, indent=1)
    table = "\n\n".join([ablation_table(summary), *learnt_note(len(left_out))])
    folder = folded.folder
    replace_file(folder / "ablation.json", numbers + "\n")
    replace_file(folder / "ablation.md", table + "\n")
    replace_file(folder / "ablation.svg", ablation_figure(summary))
    print(table)
    print(f"numbers: {folder / 'ablation.json'}; plot: {folder / 'ablation.svg'}")
