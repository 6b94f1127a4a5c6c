"""``locigraph search``: choose hyper-parameters on validation conversations, inside each fold."""

from __future__ import annotations

from locigraph.assembly.settings import CorpusSettings, EncoderSettings, LLMSettings
from locigraph.training.config import ModelConfig, TrainerConfig, TrainingConfig


def search(
    *,
    corpus: CorpusSettings = CorpusSettings(),
    consolidation: str = "rules",
    llm: LLMSettings = LLMSettings(),
    trials: int = 20,
    output: str = "runs/search",
    folds: int = 5,
    validation: int = 2,
    model: ModelConfig = ModelConfig(),
    training: TrainingConfig = TrainingConfig(),
    trainer: TrainerConfig = TrainerConfig(csv_log=False),
    store: str | None = None,
    encoder: EncoderSettings = EncoderSettings(),
    seed: int = 0,
) -> None:
    """Try settings fold by fold and score them on the fold's validation conversations; test questions are not used.

    Writes search.json, which ``locigraph evaluate --searched`` takes. Can be interrupted and run again.

    Args:
        corpus: Conversations and questions.
        consolidation: Extractor that builds the graph: <extractors>.
        llm: Language models, for the extractor ``llm``.
        trials: Number of settings to try in each fold; the first are ``model`` and ``training`` as given.
        output: Folder of the results.
        folds: Number of groups of conversations, the same as in the evaluation that will use the result.
        validation: Number of training conversations of each fold on which settings are scored.
        model: Graph encoder from which the search starts.
        training: Stages, losses and optimiser from which the search starts.
        trainer: Where and how to train.
        store: The graph; null puts it into the output folder.
        encoder: Text encoder.
        seed: Random seed.
    """
    import json

    from locigraph.assembly import learning
    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.files import replace_file
    from locigraph.research.experiments.folded_corpus import FoldedCorpus, read_with_questions
    from locigraph.research.experiments.hyperparameters import described_space, searched_folds

    loaded = read_with_questions(corpus, output=output, store=store, needed_for="there is nothing to score settings on")
    if trials < 1:
        raise LocigraphError(f"trials is {trials}; expected at least 1")
    if validation < 1:
        raise LocigraphError(f"validation is {validation}; a search needs at least 1 conversation to score settings on")
    settings = learning.settings_of(model, training)
    folded = FoldedCorpus.opened(
        loaded, consolidation, llm, encoder, output=output, store=store, folds=folds, validation=validation, seed=seed
    )
    found = searched_folds(folded, settings, trainer, trials=trials, seed=seed)
    file = folded.folder / "search.json"
    manifest = folded.manifest(seed, model, training, trainer, trials=trials, space=described_space())
    replace_file(file, json.dumps({"folds": found, "manifest": manifest}, indent=1) + "\n")
    for number, each in enumerate(found):
        best = max(trial["score"] for trial in each["trials"])
        print(f"fold {number}: {each['trials'][0]['score']:.4f} as given, {best:.4f} with {each['best']}")
    print(f"trials: {file}; use them with locigraph evaluate --searched {file}")
