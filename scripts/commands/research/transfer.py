"""``locigraph transfer``: measure how well training on some corpora transfers to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from locigraph.assembly.settings import EncoderSettings, GraphSettings
from locigraph.kg.name_list import Names, names_in
from locigraph.training.config import ModelConfig, TrainerConfig, TrainingConfig


def transfer(
    *,
    graphs: dict[str, GraphSettings],
    train: dict[str, Names] | None = None,
    checkpoints: dict[str, str] | None = None,
    test: Names | None = None,
    encoder: EncoderSettings = EncoderSettings(),
    model: ModelConfig = ModelConfig(),
    training: TrainingConfig = TrainingConfig(),
    trainer: TrainerConfig = TrainerConfig(csv_log=False),
    baselines: Names = "fusion-zero,v1-adapted,dense-adapted",
    validation: int = 2,
    contexts: bool = True,
    output: str = "runs/transfer",
    seed: int = 0,
) -> None:
    """Train on some corpora and test on others: v2 zero-shot, compared with a fusion trained on the same questions.

    A training is never tested on its own corpora. Rankings are exact, without the vector index.

    Writes transfer.json, transfer.md and, for each pair of training and test, the scores of every question. Finished
    trainings are kept, so an interrupted run continues with the others.

    Args:
        graphs: Built graphs (locigraph build) by name, each with its corpus; to test strategies that search along
            links, run locigraph link on the graphs first.
        train: For each training, by its name: the names of the graphs to train on.
        checkpoints: Folders of finished checkpoints by name; each adds a row to the matrix.
        test: Names of the graphs to test on; null for all. A training is not tested on its own graphs.
        encoder: Text encoder of all graphs; its adapter must not have been trained on a tested corpus.
        model: Graph encoder.
        training: Stages, losses and optimiser.
        trainer: Where and how to train.
        baselines: Strategies that v2 is tested against, with Holm's correction over all; those that learn inside folds
            cannot be used.
        validation: Number of conversations of each training corpus held out for early stopping.
        contexts: Whether to pack the hits of each strategy into contexts of several sizes, to measure their recall.
        output: Folder of the results.
        seed: Random seed.
    """
    import json
    from pathlib import Path

    from locigraph.assembly import learning, provenance
    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.files import replace_file

    provenance.source_commit()
    sources, checkpoints = {name: names_in(given) for name, given in (train or {}).items()}, checkpoints or {}
    tests = [*dict.fromkeys(names_in(test or ()))] or [*graphs]
    _check(graphs, sources, checkpoints, tests)
    if encoder.adapter is None:
        raise LocigraphError("encoder.adapter is not set; the baselines of a transfer need an adapted text encoder")
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    settings = learning.settings_of(model, training)

    from locigraph.research.experiments.transfer_matrix import TransferMatrix  # imports PyTorch

    with TransferMatrix(
        graphs,
        encoder,
        settings,
        trainer,
        folder,
        baselines=baselines,
        validation=validation,
        seed=seed,
        contexts=contexts,
    ) as matrix:
        loaded = {name: matrix.loaded(path) for name, path in checkpoints.items()}
        matrix.require_unlearnt(sources, loaded, tests)
        rows = {name: matrix.trained(name, learnt) for name, learnt in sources.items()} | loaded
        for name, checkpoint in rows.items():
            for tested in tests:
                matrix.ask(name, checkpoint, tested)
                manifest = provenance.manifest(seed, **matrix.manifest(sources, checkpoints))
                numbers = json.dumps({"cells": matrix.cells, "manifest": manifest}, indent=1)
                replace_file(folder / "transfer.json", numbers + "\n")  # kept in case of an interruption
                replace_file(folder / "transfer.md", matrix.table() + "\n")
        print(matrix.table())
    print(f"numbers: {folder / 'transfer.json'}")


def _check(
    graphs: Mapping[str, GraphSettings],
    sources: Mapping[str, Sequence[str]],
    checkpoints: Mapping[str, str],
    tests: Sequence[str],
) -> None:
    """Raise LocigraphError, before an hour of training, if a name is unknown or taken twice, or a graph is missing."""
    from locigraph.assembly.opening import existing_store
    from locigraph.kg.errors import LocigraphError, nearest

    for name in [*tests, *(name for names in sources.values() for name in names)]:
        if name not in graphs:
            raise LocigraphError(f"graph {name!r} is not among graphs{nearest(name, graphs)}")
    for name, learnt in sources.items():
        if not learnt:
            raise LocigraphError(f"train.{name} names no graph; name at least one of graphs to train on")
    for name, graph in graphs.items():
        if graph.corpus is None:
            raise LocigraphError(f"graphs.{name} has no corpus; set graphs.{name}.corpus.path")
        existing_store(graph.store).close()
    both = sorted({*sources} & {*checkpoints})
    if both:
        raise LocigraphError(f"{both[0]!r} is the name of both a training and a checkpoint; give them different names")
    if not (sources or checkpoints):
        raise LocigraphError(
            "there is no model to test; name graphs to train on with --train, or checkpoints with --checkpoints"
        )
