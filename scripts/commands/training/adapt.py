"""``locigraph adapt``: train an adapter of the text encoder on the questions of a corpus."""

from __future__ import annotations

import shlex

from locigraph.assembly.settings import CorpusSettings, GraphSettings
from locigraph.retrieval.text.text_encoder import DEFAULT_MODEL
from locigraph.training.config import AdapterConfig, TrainerConfig


def adapt(
    *,
    corpus: CorpusSettings = CorpusSettings(),
    store: str = "data/graph.sqlite",
    also: list[GraphSettings] | None = None,
    encoder: str = DEFAULT_MODEL,
    adapter: AdapterConfig = AdapterConfig(),
    trainer: TrainerConfig = TrainerConfig(),
    validation: int = 2,
    output: str = "data/adapt",
    seed: int = 0,
) -> None:
    """Train an adapter of the text encoder on questions with evidence. Can be interrupted and run again.

    Other commands take it as ``--encoder.adapter``; v2 and the strategies whose names end in ``-adapted`` use it. Run
    ``locigraph build`` again with it before ``locigraph train``, so that all nodes get vectors.

    Args:
        corpus: The corpus that the graph was built from; training uses its questions.
        store: The graph; its facts and events are used in addition to the turns.
        also: Further graphs to train on, of the same corpus by other extractors or of other corpora.
        encoder: Text encoder to adapt: hub name or directory of a sentence-transformers model.
        adapter: Size and training of the adapter.
        trainer: Where and how to run.
        validation: Number of conversations of each corpus held out for early stopping.
        output: Folder of resume points and logs; the adapter is written to its subfolder ``adapter``.
        seed: Random seed.
    """
    from pathlib import Path

    from locigraph.assembly import defaults, learning, opening, provenance
    from locigraph.scripts.console.terminal import printable, validated
    from locigraph.training.identity import TrainingRun

    encoder = defaults.located(encoder)
    provenance.source_commit()
    loaded = opening.read_corpus(corpus, store=store)
    opening.existing_store(store).close()

    from locigraph.training.adapter import train_adapter  # imports PyTorch

    with learning.training_sets(loaded, store, also, None, validation=validation) as sets:
        details = provenance.manifest(seed, corpus=loaded.source)
        run = TrainingRun(Path(output), trainer, seed, details, name="adapter")
        trained = train_adapter(sets, adapter, run, model=encoder)
    print(f"adapter {trained.version} in {trained.folder}: {validated(trained.details['validation'])}")
    use = f"--encoder.adapter {shlex.quote(str(trained.folder))} --store {shlex.quote(store)}"
    if encoder != DEFAULT_MODEL:
        use += f" --encoder.model {shlex.quote(encoder)}"
    if corpus.path is not None:
        use += f" --corpus.path {shlex.quote(str(corpus.path))}"
    if corpus.format is not None:
        use += f" --corpus.format {corpus.format}"
    print(printable(f"to train a graph network on its embeddings: locigraph build {use}, then locigraph train {use}"))
