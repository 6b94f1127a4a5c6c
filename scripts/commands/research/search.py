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
    import dataclasses
    import json
    import shutil
    from pathlib import Path

    from locigraph.assembly import graphs, learning, opening, provenance
    from locigraph.assembly.language_models import clients_of
    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.files import replace_file
    from locigraph.kg.types import SpaceId
    from locigraph.research.experiments.hyperparameters import SPACE, search_fold
    from locigraph.training.config import Settings
    from locigraph.training.folds import plan_folds
    from locigraph.training.identity import CHECKPOINT_ALGORITHM
    from locigraph.training.leaks import Fold

    provenance.source_commit()
    folder = Path(output)
    path = store or str(folder / "graph.sqlite")
    loaded = opening.read_corpus(corpus, store=path)
    opening.require_questions(loaded, "there is nothing to score settings on")
    if trials < 1:
        raise LocigraphError(f"trials is {trials}; expected at least 1")
    if validation < 1:
        raise LocigraphError(f"validation is {validation}; a search needs at least 1 conversation to score settings on")
    from locigraph.research.experiments.fold_task import fold_trainer  # imports the vector index

    extractor = graphs.extractor_for(consolidation, loaded, clients_of(llm))
    text_encoder = opening.held_out_encoder(encoder, loaded.questions)
    planned = plan_folds(loaded.questions, folds=folds, validation=validation, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    with graphs.built_views(loaded, extractor, text_encoder, path) as views:
        found = []
        trainings = fold_trainer(loaded, views, trainer, text_encoder, seed=seed, experiment=folder.name)
        for fold in planned:

            def train(settings: Settings, name: str, fold: Fold = fold) -> float:
                made = trainings.train(fold, settings, folder=folder / name, seed=seed, name=name)
                shutil.rmtree(folder / name)  # only the score of a trial is needed
                scores = [stage["val_score"] for stage in made.details["stages"].values() if "val_score" in stage]
                if not scores:
                    raise LocigraphError(
                        f"{name}: the training has no validation score; either no stage was trained, or no question of "
                        "the validation conversations has evidence in its graph"
                    )
                return float(scores[-1])  # of the last stage, whose model is the result

            fingerprints = [views.at(SpaceId(s), None).fingerprint for s in (*fold.train, *fold.validation)]
            identity = " ".join([str(CHECKPOINT_ALGORITHM), text_encoder.model_id, loaded.sha256, *fingerprints])
            found.append(
                search_fold(
                    fold,
                    learning.settings_of(model, training),
                    train,
                    trials=trials,
                    folder=folder,
                    seed=seed,
                    identity=identity,
                )
            )
            shutil.rmtree(folder / f"fold-{fold.index}", ignore_errors=True)  # left by interrupted trials
    manifest = provenance.manifest(
        seed,
        consolidation=consolidation,
        folds=folds,
        validation=validation,
        corpus=loaded.sha256,
        text_encoder=text_encoder.model_id,
        trials=trials,
        trainer=dataclasses.asdict(trainer),
        space={name: dataclasses.asdict(choice) for name, choice in SPACE.items()},
        model=dataclasses.asdict(model),
        training=dataclasses.asdict(training),
    )
    replace_file(folder / "search.json", json.dumps({"folds": found, "manifest": manifest}, indent=1) + "\n")
    for number, each in enumerate(found):
        best = max(trial["score"] for trial in each["trials"])
        print(f"fold {number}: {each['trials'][0]['score']:.4f} as given, {best:.4f} with {each['best']}")
    print(f"trials: {folder / 'search.json'}; use them with locigraph evaluate --searched {folder / 'search.json'}")
