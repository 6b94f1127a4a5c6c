"""``locigraph evaluate``: the comparison of strategies on held-out conversations."""

from __future__ import annotations

from scripts.settings import Consolidation, CorpusSettings, EncoderSettings, IndexSettings
from training.config import TrainConfig
from training.fit import TrainerConfig

STRATEGIES = ("v1", "v2", "sum", "dense", "bm25")


def evaluate(
    *,
    corpus: CorpusSettings = CorpusSettings(),
    consolidation: Consolidation = "rules",
    strategies: str = "v1,v2,sum,dense,bm25",
    baselines: str = "v1,sum",
    output: str = "runs/evaluate",
    checkpoint: str | None = None,
    searched: str | None = None,
    folds: int = 5,
    validation: int = 2,
    model: TrainConfig = TrainConfig(),
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
        strategies: Names separated by commas, of v1, v2, sum (of six signals), dense, bm25.
        baselines: Those of them that v2 is tested against; the others are shown without a test, since every test
            weakens the others by Holm's correction.
        output: Folder of the results.
        checkpoint: Checkpoint to use for v2 as it is (zero-shot) instead of training; null trains.
        searched: search.json of locigraph search, whose choice for each fold changes ``model``; null for none.
        folds: Groups of conversations, each tested by a model that was trained on the others.
        validation: Conversations of each fold's training side that decide when to stop.
        model: Model, stages and optimiser.
        trainer: Where and how to train.
        store: The graph; null puts it into the output folder.
        index: Vector index; beside the store by default.
        encoder: Text encoder.
        seed: Of everything random.
        seeds: Trainings of each fold, with ``seed``, ``seed`` + 1, and so on; scores are averaged over them.
    """
    import dataclasses
    import json
    from pathlib import Path

    from kg.errors import LocigraphError
    from kg.store import Store
    from retrieval.evaluation import StrategyRun, summarise, text_table, write_report
    from retrieval.evaluation.notes import a_a_note, session_recall
    from retrieval.evaluation.report import Results, SecondGold
    from retrieval.indexer import DescriptionIndexer
    from scripts import parts
    from training.checkpoint import load_checkpoint
    from training.experiment import Comparison, joined_runs, outcomes, plan_folds, refuse_known, run_strategy

    parts.source_commit()
    names = parts.names(strategies, STRATEGIES, "strategy")
    tested = [name for name in parts.names(baselines, STRATEGIES, "baseline") if name in names and name != "v2"]
    if seeds < 1:
        raise LocigraphError(f"seeds is {seeds}; at least 1")
    read = parts.read_corpus(corpus)
    if not read.questions:
        raise LocigraphError(f"{read.path}: no question with evidence; there is nothing to evaluate")
    extractor = parts.extractor_for(consolidation, read)
    text_encoder = parts.text_encoder(encoder)
    given = None if checkpoint is None else load_checkpoint(Path(checkpoint), text_encoder=text_encoder.model_id)
    if given is not None:
        refuse_known(given, read.questions)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    graph_path = store or str(folder / "graph.sqlite")
    with Store(graph_path) as graph, parts.vector_index(index, graph_path) as vectors:
        failed = parts.build_graph(read, extractor, graph, text_encoder)
        DescriptionIndexer(graph, vectors, text_encoder.model_id).drain(progress=True)
        text_encoder.encode([q.text for q in read.questions], progress="encode questions")
        views = parts.views_of(graph, read, text_encoder)
        planned = () if given is not None else plan_folds(read.questions, folds=folds, validation=validation, seed=seed)
        configs = parts.configs_of_folds(model, planned, searched)
        runs: list[StrategyRun] = []
        notes = list(read.notes)
        with parts.search_parts(graph, vectors, text_encoder) as (lexical, retrievers):
            for name in names:
                if name != "v2":
                    runs.append(run_strategy(retrievers[name], read.questions))
                    continue
                comparison = Comparison(
                    index=vectors,
                    views=views,
                    embed=text_encoder.encode,
                    text_encoder=text_encoder.model_id,
                    describe=lambda s, n: d.description if (d := lexical.document(s, n)) else None,
                    folder=folder,
                    details=parts.provenance(seed, corpus={"path": read.path, "sha256": read.sha256}),
                )
                if given is not None:
                    runs.append(comparison.zero_shot(given, read.questions))
                    continue
                for each in range(seed, seed + seeds):
                    runs.append(
                        joined_runs(
                            [
                                comparison.fold(fold, read.questions, config, trainer, seed=each)
                                for fold, config in zip(planned, configs, strict=True)
                            ],
                            seed=each,
                        )
                    )
                notes += comparison.notes
    fold_of = {space: fold.index for fold in planned for space in fold.test}
    questions = outcomes(read.questions, fold_of)
    parts.write_rankings(folder / "rankings.jsonl", questions, runs)
    manifest = parts.provenance(
        seed,
        consolidation=consolidation,
        strategies=names,
        baselines=tested,
        seeds=seeds,
        folds=len(planned),
        validation=validation,
        checkpoint=None if given is None else given.version,
        searched=[dataclasses.asdict(config) for config in configs] if searched else None,
        text_encoder=text_encoder.model_id,
        model=dataclasses.asdict(model),
        trainer=dataclasses.asdict(trainer),
    )
    if failed:
        notes.append(f"{sum(failed.values())} turns failed to consolidate and are missing from the graph")
    by_name = {run.name: run for run in reversed(runs)}
    if {"v1", "v2"} <= by_name.keys():
        notes.append(a_a_note(questions, by_name["v2"], by_name["v1"], seed=seed))
    session_of = {str(c.space): {str(t.turn_id): t.session_id for t in c.turns} for c in read.conversations}
    sessions = session_recall(questions, list(by_name.values()), session_of)
    notes += [f"{name}: session recall@5 {s['recall@5']:.3f}, @10 {s['recall@10']:.3f}" for name, s in sessions.items()]
    pairs = [("v2", name) for name in tested] if "v2" in names else None
    second: SecondGold | None = None
    if read.corrections:
        corrected = [dataclasses.replace(q, gold=read.corrections.get(q.question_id, q.gold)) for q in questions]
        second = {
            **summarise(corrected, runs, comparisons=pairs, seed=seed),
            "changed": sum(set(a.gold) != set(b.gold) for a, b in zip(questions, corrected, strict=True)),
        }
    results: Results = {
        **summarise(questions, runs, comparisons=pairs, seed=seed),
        "corpus": {
            "path": read.path, "sha256": read.sha256, "questions": len(read.questions), "skipped": read.skipped,
        },
        "manifest": manifest,
        "notes": notes,
        "sessions": sessions,
        "second_gold": second,
    }  # fmt: skip
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    write_report(folder, results)
    print(text_table(results))
    print(f"report: {folder / 'report.html'} and {folder / 'report.md'}; numbers: {folder / 'results.json'}")


if __name__ == "__main__":
    import sys
    from pathlib import Path

    from scripts.cli import main

    main([Path(__file__).stem, *sys.argv[1:]])
