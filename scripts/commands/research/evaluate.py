"""``locigraph evaluate``: compare strategies on held-out conversations."""

from __future__ import annotations

from locigraph.assembly.settings import (
    CorpusSettings,
    EncoderSettings,
    GraphSettings,
    IndexSettings,
    LLMSettings,
    WriterSettings,
)
from locigraph.kg.name_list import Names
from locigraph.training.config import ModelConfig, TrainerConfig, TrainingConfig


def evaluate(
    *,
    corpus: CorpusSettings = CorpusSettings(),
    consolidation: str = "rules",
    llm: LLMSettings = LLMSettings(),
    max_tokens: int | None = None,
    max_cost: float | None = None,
    strategies: Names = "v1,v2,sum,dense,bm25",
    baselines: Names | None = None,
    output: str = "runs/evaluate",
    checkpoint: str | None = None,
    searched: str | None = None,
    queries: str | None = None,
    reranker: str | None = None,
    folds: int = 5,
    validation: int = 2,
    model: ModelConfig = ModelConfig(),
    training: TrainingConfig = TrainingConfig(),
    also: list[GraphSettings] | None = None,
    writer: WriterSettings = WriterSettings(),
    trainer: TrainerConfig = TrainerConfig(),
    store: str | None = None,
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = EncoderSettings(),
    seed: int = 0,
    seeds: int = 1,
    contexts: bool = True,
) -> None:
    """Build the graph, train v2 in folds by conversation, run every strategy on every question, and write a report.

    Writes results.json, rankings.jsonl, report.md and report.html. Can be interrupted and run again.

    Args:
        corpus: Conversations and questions.
        consolidation: Extractor that builds the graph: <extractors>.
        llm: Language models, for the extractor ``llm`` and the queries ``llm``.
        max_tokens: Limit on the tokens that these use. At the limit, the command stops with exit code 3 if the graph is
            not built yet; afterwards, rules write the remaining queries.
        max_cost: The same limit for the cost, in the currency of the prices.
        strategies: Names of strategies to compare: <strategies>.
        baselines: Strategies against which the first one with graph embeddings (v2, v2-mixing, v2-zero or flat) is
            tested; those that are not run are ignored. By default those of <baselines> that are run; if one of them
            uses the adapter, only v1 and those that use it; if none is run, all others. Without graph embeddings, all
            others are tested against those named. The rest is shown without a test, since every test weakens the others
            by Holm's correction.
        output: Folder of the results.
        checkpoint: Checkpoint for v2-zero and fusion-zero; it must not have been trained on the corpus.
        searched: search.json of locigraph search, whose choice for each fold changes ``model`` and ``training``; null
            for none.
        queries: How questions are turned into queries, whose rankings are fused (v2 makes one search for the mean of
            their vectors): <queries>; null for the default of each strategy: rules for v1, the question itself for the
            others.
        reranker: What reranks the best hits of every strategy: ``default`` for the shipped reranker, the folder of
            another (locigraph train-reranker), or the Hugging Face name or folder of a cross-encoder; null for
            none.
        folds: Number of groups of conversations, each tested by a model that was trained on the others.
        validation: Number of training conversations of each fold held out for early stopping.
        model: Graph encoder.
        training: Stages, losses and optimiser.
        also: Built graphs of other corpora, to train on in every fold.
        writer: Language model that writes questions about facts for pre-training; without one, rules write them.
        trainer: Where and how to train.
        store: The graph; null puts it into the output folder.
        index: Vector index; beside the store by default.
        encoder: Text encoder; its adapter, if it has one, must not have been trained on the corpus.
        seed: Random seed.
        seeds: Number of trainings of each fold, with ``seed``, ``seed`` + 1, and so on; scores are averaged over them.
        contexts: Whether to pack the hits of each strategy into contexts of several sizes, to measure their recall and
            for ``locigraph answer``; this takes about half of the time spent on questions.
    """
    import dataclasses
    from pathlib import Path

    from locigraph.assembly import opening, provenance
    from locigraph.kg.errors import LocigraphError
    from locigraph.research.contenders import CONTENDERS
    from locigraph.research.experiments import strategy_choice

    provenance.source_commit()
    names = strategy_choice.chosen(strategies, checkpoint=checkpoint, adapter=encoder.adapter)
    if seeds < 1:
        raise LocigraphError(f"seeds is {seeds}; expected 1 or more")
    pairs = strategy_choice.comparisons(names, baselines)
    folder = Path(output)
    path = store or str(folder / "graph.sqlite")
    loaded = opening.read_corpus(corpus, store=path)
    opening.require_questions(loaded, "there is nothing to evaluate")

    from locigraph.assembly import graphs, learning
    from locigraph.assembly.language_models import clients_of
    from locigraph.assembly.queries import queries_of
    from locigraph.assembly.search_parts import trained_reranker
    from locigraph.research.evaluation.report import learnt_note, text_table
    from locigraph.research.experiments.evaluation import Evaluation
    from locigraph.research.experiments.fold_task import settings_of_folds
    from locigraph.training.checkpoint import load_checkpoint
    from locigraph.training.folds import plan_folds, refuse_trained_on

    settings = learning.settings_of(model, training)
    clients = clients_of(llm, max_tokens=max_tokens, max_cost=max_cost)
    extractor = graphs.extractor_for(consolidation, loaded, clients)
    query_generator = queries_of(queries, clients)
    questions_by = learning.question_writer(writer)
    text_encoder = opening.held_out_encoder(encoder, loaded.questions)
    rows = [CONTENDERS[name] for name in names]
    given = None
    if checkpoint is not None and any(row.needs_checkpoint for row in rows):
        given = load_checkpoint(Path(checkpoint), text_encoder=text_encoder.model_id)
        refuse_trained_on(given, loaded.questions, option="checkpoint")
    learnt_reranker = trained_reranker(reranker)
    if learnt_reranker is not None:
        refuse_trained_on(learnt_reranker, loaded.questions, option="reranker")
    is_trained = any(row.is_trained for row in rows)
    planned = plan_folds(loaded.questions, folds=folds, validation=validation, seed=seed) if is_trained else ()
    of_folds = settings_of_folds(
        settings,
        planned,
        searched if planned else None,
        consolidation=consolidation,
        corpus=loaded.sha256,
        text_encoder=text_encoder.model_id,
    )
    of_training = {"searched": searched, "seeds": seeds > 1, "also": also, "writer": writer.base_url}
    notes = [
        *loaded.notes,
        *strategy_choice.unused_options(names, checkpoint=checkpoint, adapter=encoder.adapter, of_training=of_training),
    ]
    if reranker is not None:
        version = "" if learnt_reranker is None else f" ({learnt_reranker.version})"
        notes.append(f"the best hits of every strategy were reranked by {reranker}{version}")
    folder.mkdir(parents=True, exist_ok=True)
    evaluation = Evaluation(
        corpus=loaded,
        extractor=extractor,
        strategies=names,
        pairs=pairs,
        folder=folder,
        encoder=text_encoder,
        checkpoint=given,
        folds=planned,
        settings=of_folds,
        trainer=trainer,
        writer=questions_by,
        seeds=range(seed, seed + seeds),
        also=also or (),
        queries=query_generator,
        reranker=reranker,
        learnt_reranker=learnt_reranker,
        notes=notes,
        contexts=contexts,
    )
    details = {
        "validation": validation,
        "searched": [dataclasses.asdict(each) for each in of_folds] if searched else None,
        "model": dataclasses.asdict(model),
        "training": dataclasses.asdict(training),
        "also": [dataclasses.asdict(each) for each in also or ()],
    }
    results = evaluation.run(path, index, encoder, details)
    print("\n".join([text_table(results), *learnt_note(len(results.get("left_out", ())))]))
    print(f"report: {folder / 'report.html'} and {folder / 'report.md'}; numbers: {folder / 'results.json'}")
