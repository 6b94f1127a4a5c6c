"""``locigraph evaluate``: the comparison of strategies on held-out conversations."""

from __future__ import annotations

from locigraph.scripts.settings import (
    Consolidation,
    CorpusSettings,
    EncoderSettings,
    GraphSettings,
    IndexSettings,
    WriterSettings,
)
from locigraph.training.config import TrainConfig
from locigraph.training.fit import TrainerConfig


def evaluate(
    *,
    corpus: CorpusSettings = CorpusSettings(),
    consolidation: Consolidation = "rules",
    strategies: str = "v1,v2,sum,dense,bm25",
    baselines: str | None = None,
    output: str = "runs/evaluate",
    checkpoint: str | None = None,
    searched: str | None = None,
    reranker: str | None = None,
    folds: int = 5,
    validation: int = 2,
    model: TrainConfig = TrainConfig(),
    also: list[GraphSettings] | None = None,
    writer: WriterSettings = WriterSettings(),
    trainer: TrainerConfig = TrainerConfig(),
    store: str | None = None,
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = EncoderSettings(),
    seed: int = 0,
    seeds: int = 1,
) -> None:
    """Build the graph, train v2 inside folds by conversation, ask every question of every strategy, and report.

    Writes results.json, rankings.jsonl, report.md and report.html. Can be interrupted and run again.

    Args:
        corpus: Conversations and questions.
        consolidation: ``rules`` (no model) or ``recorded`` (published extractions).
        strategies: Names separated by commas, of v1, v1-k60 (v1 with the usual constant of RRF), v2 (trained in
            folds), v2-zero (a checkpoint as it is), sum (of six signals), dense, bm25; v1-adapted, sum-adapted and
            dense-adapted where ``encoder`` has an adapter, which v2 uses too and the others do not.
        baselines: Those of them that v2 is tested against, or v2-zero where v2 is not run; null for v1 and sum (with an
            adapter v1, v1-adapted and sum-adapted), or for all where none of these is run. Without v2, all others
            are tested against those named. What is left is shown without a test, since every test weakens the others by
            Holm's correction.
        output: Folder of the results.
        checkpoint: Checkpoint of v2-zero, which must not know the corpus.
        searched: search.json of locigraph search, whose choice for each fold changes ``model``; null for none.
        reranker: Cross-encoder (hub name or folder) that scores the best hits of every strategy again; null for none.
        folds: Groups of conversations, each tested by a model that was trained on the others.
        validation: Conversations of each fold's training side that decide when to stop.
        model: Model, stages and optimiser.
        also: Built graphs of other corpora, to learn from in every fold.
        writer: What writes the questions about facts that pre-training learns from.
        trainer: Where and how to train.
        store: The graph; null puts it into the output folder.
        index: Vector index; beside the store by default.
        encoder: Text encoder; its adapter, if it has one, must not know the corpus.
        seed: Of everything random.
        seeds: Trainings of each fold, with ``seed``, ``seed`` + 1, and so on; scores are averaged over them.
    """
    import dataclasses
    from functools import partial
    from pathlib import Path

    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.store import Store
    from locigraph.retrieval.evaluation import StrategyRun, text_table
    from locigraph.scripts.parts import building, learning, opening, provenance, retrieving
    from locigraph.scripts.parts.strategies import chosen, comparisons, unused_options
    from locigraph.scripts.results import write_results
    from locigraph.training.checkpoint import load_checkpoint
    from locigraph.training.experiment import joined_runs, run_checkpoint, run_strategy
    from locigraph.training.folds import plan_folds, refuse_known

    provenance.source_commit()
    names = chosen(strategies, checkpoint=checkpoint, adapter=encoder.adapter)
    if seeds < 1:
        raise LocigraphError(f"seeds is {seeds}; at least 1")
    of_v2 = {"searched": searched, "seeds": seeds > 1, "also": also, "writer": writer.base_url}
    unused = unused_options(names, checkpoint=checkpoint, adapter=encoder.adapter, only_v2=of_v2)
    pairs = comparisons(names, baselines)
    questions_by = learning.question_writer(writer)
    second_look = retrieving.second_look(reranker)
    read = opening.read_corpus(corpus)
    if not read.questions:
        raise LocigraphError(f"{read.path}: no question with evidence; there is nothing to evaluate")
    extractor = building.extractor_for(consolidation, read)
    text_encoder = opening.held_out_encoder(encoder, read.questions)
    plain = text_encoder.without_adapter()
    given = None
    if checkpoint is not None and "v2-zero" in names:
        given = load_checkpoint(Path(checkpoint), text_encoder=text_encoder.model_id)
        refuse_known(given, read.questions, option="checkpoint")
    planned = plan_folds(read.questions, folds=folds, validation=validation, seed=seed) if "v2" in names else ()
    configs = learning.configs_of_folds(
        model,
        planned,
        searched if planned else None,
        consolidation=consolidation,
        corpus=read.sha256,
        text_encoder=text_encoder.model_id,
    )
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    graph_path = store or str(folder / "graph.sqlite")
    with (
        Store(graph_path) as graph,
        opening.vector_index(index, graph_path) as vectors,
        learning.more_training_sets(also if planned else None, read, encoder, validation=0) as others,
    ):
        failed = building.build_graph(read, extractor, graph, text_encoder)
        retrieving.indexer_of(graph, vectors, text_encoder).drain(progress=True)
        for used in dict.fromkeys([plain, text_encoder]):
            used.encode([q.text for q in read.questions], progress="encode questions")
        views = building.views_of(graph, read, text_encoder)
        runs: list[StrategyRun] = []
        seconds: list[float] = []
        notes = [*read.notes, *unused]
        if reranker is not None:
            notes.append(f"the best hits of every strategy were scored again by the cross-encoder {reranker}")
        spaces = [conversation.space for conversation in read.conversations]
        searching = retrieving.search_parts(graph, text_encoder, names, spaces=spaces, index=vectors)
        with searching as retrievers:
            fold_trainer = learning.fold_trainer(
                read, views, trainer, text_encoder, seed=seed, also=others, writer=questions_by
            )
            asked_of = partial(
                run_checkpoint,
                index=vectors,
                views=views,
                embed=text_encoder.encode,
                texts=retrieving.texts_of(graph),
                second_look=second_look,
            )
            for name in names:
                if name == "v2":
                    for each in range(seed, seed + seeds):
                        of_folds = []
                        for fold, config in zip(planned, configs, strict=True):
                            trained = fold_trainer.train(
                                fold,
                                config,
                                folder=folder / f"seed-{each}" / f"fold-{fold.index}",
                                seed=each,
                                name=f"seed {each}, fold {fold.index}",
                            )
                            seconds.append(trained.details["seconds"])
                            of_folds.append(asked_of(trained, [q for q in read.questions if q.space in fold.test]))
                        runs.append(joined_runs(of_folds, seed=each))
                elif name == "v2-zero" and given is not None:
                    runs.append(asked_of(given, read.questions, name=name))
                else:
                    runs.append(run_strategy(second_look(retrievers[name]), read.questions))
            notes += fold_trainer.notes
    if failed:
        notes.append(f"{sum(failed.values())} turns failed to consolidate and are missing from the graph")
    manifest = provenance.manifest(
        seed,
        consolidation=consolidation,
        strategies=names,
        baselines=None if pairs is None else sorted({baseline for _, baseline in pairs}),
        seeds=seeds if planned else 0,
        folds=len(planned),
        validation=validation,
        checkpoint=None if given is None else given.version,
        searched=[dataclasses.asdict(config) for config in configs] if searched else None,
        text_encoder=plain.model_id,
        adapter=None if text_encoder.adapter is None else text_encoder.adapter.version,
        reranker=reranker,
        model=dataclasses.asdict(model),
        training_seconds=seconds,
        writer=questions_by.name,
        also=[dataclasses.asdict(each) for each in also or ()],
        trainer=dataclasses.asdict(trainer),
    )
    results = write_results(folder, read, runs, planned, pairs, notes, manifest, seed=seed)
    print(text_table(results))
    print(f"report: {folder / 'report.html'} and {folder / 'report.md'}; numbers: {folder / 'results.json'}")


if __name__ == "__main__":
    import sys
    from pathlib import Path

    from locigraph.scripts.cli import main

    main([Path(__file__).stem, *sys.argv[1:]])
