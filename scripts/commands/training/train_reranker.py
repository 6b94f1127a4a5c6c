"""``locigraph train-reranker``: train a reranker on the questions of a corpus."""

from __future__ import annotations

import shlex

from locigraph.assembly.settings import REMEMBERED, CorpusSettings, EncoderSettings, GraphSettings
from locigraph.retrieval.text.text_encoder import DEFAULT_MODEL
from locigraph.training.config import RerankerConfig, TrainerConfig


def train_reranker(
    *,
    corpus: CorpusSettings = CorpusSettings(),
    store: str = "data/graph.sqlite",
    also: list[GraphSettings] | None = None,
    encoder: EncoderSettings = REMEMBERED,
    reranker: RerankerConfig = RerankerConfig(),
    trainer: TrainerConfig = TrainerConfig(),
    validation: int = 2,
    output: str = "data/train-reranker",
    seed: int = 0,
) -> None:
    """Train a reranker on questions with evidence. Can be interrupted and run again.

    ``locigraph recall`` and ``locigraph evaluate`` take it as ``--reranker``.

    Args:
        corpus: The corpus that the graph was built from; training uses its questions.
        store: The graph, of which the turns are used.
        also: Further graphs to train on, of other corpora.
        encoder: Text encoder that the reranker starts from; by default the one that the graph was built with.
        reranker: Size and training of the reranker, and how its scores are used.
        trainer: Where and how to run.
        validation: Number of conversations of each corpus held out for early stopping.
        output: Folder of resume points and logs; the reranker is written to its subfolder ``reranker``.
        seed: Random seed.
    """
    from pathlib import Path

    from locigraph.assembly import defaults, learning, opening, provenance
    from locigraph.scripts.console.terminal import printable, validated
    from locigraph.training.identity import TrainingRun

    provenance.source_commit()
    learning.check_validation(validation)
    loaded = opening.read_corpus(corpus, store=store)
    with opening.existing_store(store) as graph:
        encoder = defaults.encoder_settings(encoder, graph)
    text_encoder = opening.text_encoder(encoder)

    from locigraph.training import reranker as training  # imports PyTorch
    from locigraph.training.folds import refuse_validation_on_adapter_data

    with learning.training_sets(loaded, store, also, encoder, validation=validation) as sets:
        refuse_validation_on_adapter_data(text_encoder.adapter, sets)
        details = provenance.manifest(seed, corpus=loaded.source)
        run = TrainingRun(Path(output), trainer, seed, details, name="reranker")
        trained = training.train_reranker(
            sets,
            reranker,
            run,
            model=encoder.model or DEFAULT_MODEL,
            encoder=text_encoder,
            adapter=text_encoder.adapter,
        )
    print(f"reranker {trained.version} in {trained.folder}: {validated(trained.details['validation'])}")
    print(printable(f"to use it: locigraph recall --reranker {shlex.quote(str(trained.folder))} ..."))
