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
        max_tokens: Limit on the tokens that language models use. At the limit, the command stops with exit code 3 if
            the graph is not built yet; afterwards, rules write the remaining queries.
        max_cost: The same limit for the cost, in the currency of the prices.
        strategies: Names of strategies to compare: <strategies>.
        baselines: Strategies against which the first one with graph embeddings (v2, v2-mixing, v2-zero or flat) is
            tested; those that are not run are ignored. By default those of <baselines> that are run; if one of them
            uses the adapter, only v1 and those that use it; if none is run, all others. Without graph embeddings, all
            others are tested against those named. The rest is shown without a test, since every test weakens the others
            by Holm's correction.
        output: Folder of the results.
        checkpoint: Checkpoint for v2-zero and fusion-zero; it must not have been trained on the corpus.
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

    from locigraph.kg.errors import LocigraphError
    from locigraph.research.experiments import strategy_choice
    from locigraph.research.experiments.folded_corpus import graph_in, read_with_questions

    names = strategy_choice.chosen(strategies, checkpoint=checkpoint, adapter=encoder.adapter)
    if seeds < 1:
        raise LocigraphError(f"seeds is {seeds}; expected 1 or more")
    pairs = strategy_choice.comparisons(names, baselines)
    loaded = read_with_questions(corpus, output=output, store=store, needed_for="there is nothing to evaluate")
    of_training = {"seeds": seeds > 1, "also": also, "writer": writer.base_url}
    unused = strategy_choice.unused_options(
        names, checkpoint=checkpoint, adapter=encoder.adapter, of_training=of_training
    )

    from locigraph.assembly import learning
    from locigraph.assembly.language_models import clients_of
    from locigraph.research.experiments.evaluation import Evaluation, reported

    evaluation = Evaluation.prepared(
        loaded, consolidation, clients_of(llm, max_tokens=max_tokens, max_cost=max_cost), encoder,
        strategies=names, pairs=pairs, output=output, checkpoint=checkpoint, reranker=reranker, queries=queries,
        folds=folds, validation=validation, settings=learning.settings_of(model, training),
        trainer=trainer, writer=learning.question_writer(writer), seeds=range(seed, seed + seeds), also=also or (),
        contexts=contexts, notes=[*loaded.notes, *unused],
    )  # fmt: skip
    details = {
        "validation": validation, "model": dataclasses.asdict(model), "training": dataclasses.asdict(training),
        "also": [dataclasses.asdict(each) for each in also or ()],
    }  # fmt: skip
    print("\n".join(reported(evaluation.run(graph_in(output, store), index, encoder, details), evaluation.folder)))
