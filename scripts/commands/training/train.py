"""``locigraph train``: train a checkpoint on a built graph and the questions of its corpus."""

from __future__ import annotations

from locigraph.assembly.settings import (
    REMEMBERED,
    CorpusSettings,
    EncoderSettings,
    GraphSettings,
    WriterSettings,
)
from locigraph.training.config import ModelConfig, TrainerConfig, TrainingConfig


def train(
    *,
    corpus: CorpusSettings = CorpusSettings(),
    store: str = "data/graph.sqlite",
    also: list[GraphSettings] | None = None,
    writer: WriterSettings = WriterSettings(),
    encoder: EncoderSettings = REMEMBERED,
    model: ModelConfig = ModelConfig(),
    training: TrainingConfig = TrainingConfig(),
    trainer: TrainerConfig = TrainerConfig(),
    validation: int = 2,
    output: str = "data/train",
    seed: int = 0,
) -> None:
    """Train graph encoder and query encoder on a built graph. Can be interrupted and run again.

    Args:
        corpus: The corpus that the graph was built from; training uses its questions.
        store: The graph.
        also: Further graphs to train on, of the same corpus by other extractors or of other corpora.
        writer: Language model that writes questions about facts for pre-training; without one, rules write them.
        encoder: Text encoder; by default the one that the graph was built with.
        model: Graph encoder.
        training: Stages, losses and optimiser.
        trainer: Where and how to run.
        validation: Number of conversations of each corpus held out for early stopping.
        output: Folder of resume points and logs; the checkpoint is written to its subfolder ``checkpoint``.
        seed: Random seed.
    """
    from pathlib import Path

    from locigraph.assembly import defaults, learning, opening, provenance
    from locigraph.scripts.console.terminal import validated
    from locigraph.training.folds import refuse_validation_on_adapter_data
    from locigraph.training.identity import TrainingRun

    provenance.source_commit()
    questions_by = learning.question_writer(writer)
    learning.check_validation(validation)
    loaded = opening.read_corpus(corpus, store=store)
    with opening.existing_store(store) as graph:
        encoder = defaults.encoder_settings(encoder, graph)
    text_encoder = opening.text_encoder(encoder)
    settings = learning.settings_of(model, training)
    with learning.training_sets(loaded, store, also, encoder, validation=validation) as sets:
        refuse_validation_on_adapter_data(text_encoder.adapter, sets)

        from locigraph.training.graph_training import train_checkpoint  # imports Lightning

        details = provenance.manifest(seed, corpus=loaded.source)
        run = TrainingRun(Path(output), trainer, seed, details)
        checkpoint = train_checkpoint(sets, settings, run, encoder=text_encoder, with_fusion=True, writer=questions_by)
    print(f"checkpoint {checkpoint.version} in {Path(output) / 'checkpoint'}")
    for name, stage in checkpoint.details["stages"].items():
        print(f"  {name}: {validated(stage)}")
