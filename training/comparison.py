"""The comparison: every question asked of every strategy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from locigraph.kg.types import Question
from locigraph.retrieval.evaluation import QuestionOutcome, StrategyRun
from locigraph.retrieval.evaluation.metrics import TOKEN_BUDGETS
from locigraph.retrieval.evaluation.outcomes import PackedContext
from locigraph.retrieval.evaluation.results import CURVE_TOP_KS
from locigraph.retrieval.hits import turns_of_hits
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.packing import Budget, contexts_of, hits_for
from locigraph.retrieval.protocols import NodeTexts, Retriever
from locigraph.retrieval.strategies.graph_embedding import GraphEmbeddingRetriever
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.embedding_refresh import refresh
from locigraph.training.folds import refuse_known
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph
from locigraph.training.protocols import Embed
from locigraph.training.snapshots import Views

_DEPTH = max(CURVE_TOP_KS)


def run_strategy(
    retriever: Retriever,
    questions: Sequence[Question],
    views: Views | None = None,
    *,
    name: str | None = None,
    unanswerable: Sequence[Question] = (),
) -> StrategyRun:
    """Ask one strategy all questions, one at a time, as a user would, and pack what it finds into contexts.

    A context may take more memories than are ranked, so that they are asked for apart and not timed.

    Args:
        retriever: The strategy.
        questions: With evidence.
        views: The graphs, for the contexts; None packs none.
        name: In the results; None takes the retriever's own.
        unanswerable: Questions for which only contexts are packed.
    """
    rankings: dict[str, tuple[str, ...]] = {}
    contexts: dict[str, dict[int, PackedContext]] = {}
    search_ms: dict[str, float] = {}
    encode_ms: dict[str, float] = {}
    label = name or retriever.name
    for question in tqdm(questions, desc=label, unit="question"):
        result = retriever.retrieve(question.text, question.space, as_of=question.asked_at, top_k=_DEPTH)
        rankings[question.question_id] = tuple(turns_of_hits(result.hits, top_k=_DEPTH))
        search_ms[question.question_id] = result.timing.search_ms
        encode_ms[question.question_id] = result.timing.encode_ms
        if views is not None:
            contexts[question.question_id] = packed_contexts(retriever, question, views)
    if views is not None:
        contexts |= {each.question_id: packed_contexts(retriever, each, views) for each in unanswerable}
    return StrategyRun(label, rankings, search_ms, encode_ms, contexts=contexts)


def packed_contexts(retriever: Retriever, question: Question, views: Views) -> dict[int, PackedContext]:
    """What a strategy finds for a question, packed into contexts of each of ``TOKEN_BUDGETS``."""
    snapshot = views.snapshot(views.of(question.space, question.asked_at))
    found = retriever.retrieve(
        question.text, question.space, as_of=question.asked_at, top_k=hits_for(max(TOKEN_BUDGETS))
    )
    contexts = contexts_of(
        retriever,
        question.text,
        found.hits,
        snapshot,
        [Budget(tokens=tokens) for tokens in TOKEN_BUDGETS],
        as_of=question.asked_at,
    )
    made = {}
    for tokens, context in zip(TOKEN_BUDGETS, contexts, strict=True):
        lines = context.memories
        turns = dict.fromkeys(turn for line in lines for turn in line.turn_ids)
        made[tokens] = PackedContext(tuple(sys.intern(str(line)) for line in lines), tuple(turns), context.tokens)
    return made


def joined_runs(runs: Sequence[StrategyRun], *, seed: int | None = None) -> StrategyRun:
    """Runs of one strategy over different questions, such as those of the folds trained with one seed, as one."""

    def merged(field: str) -> dict[str, Any]:
        return {key: value for run in runs for key, value in getattr(run, field).items()}

    return StrategyRun(
        runs[0].name, merged("rankings"), merged("search_ms"), merged("encode_ms"), seed, merged("contexts")
    )


def outcomes(questions: Sequence[Question], fold_of: Mapping[str, int]) -> list[QuestionOutcome]:
    """Questions as the evaluation wants them."""
    return [
        QuestionOutcome(q.question_id, q.space, q.category, q.evidence, q.evidence_sessions, fold_of.get(q.space))
        for q in questions
    ]


def run_checkpoint(
    checkpoint: Checkpoint,
    questions: Sequence[Question],
    *,
    index: MilvusIndex,
    views: Views,
    embed: Embed,
    texts: NodeTexts,
    second_look: Callable[[Retriever], Retriever] = lambda retriever: retriever,
    name: str | None = None,
    packs: bool = True,
    unanswerable: Sequence[Question] = (),
) -> StrategyRun:
    """Embed the questions' graphs with a checkpoint, write them to the index, and ask.

    Args:
        checkpoint: Trained.
        questions: With evidence.
        index: Where the embeddings go.
        views: The graphs.
        embed: Text encoder.
        texts: Reads the texts of the hits.
        second_look: Adds to the retriever what looks at its hits again.
        name: In the results; None for v2.
        packs: Whether to pack what is found into contexts.
        unanswerable: As in ``run_strategy``.

    Raises:
        LeakError: If the checkpoint knows a question's conversation.
    """
    refuse_known(checkpoint, questions, option="checkpoint")
    needed = list(dict.fromkeys(views.of(q.space, q.asked_at) for q in (*questions, *unanswerable)))
    done = refresh(index, checkpoint, needed, views.snapshot, alias=None)
    retriever = GraphEmbeddingRetriever(
        index.open(done.collection),
        CheckpointQueryEncoder(checkpoint, embed),
        texts,
        view_of=lambda space, as_of: views.of(space, as_of).name,
    )
    run = run_strategy(
        second_look(retriever), questions, views if packs else None, name=name, unanswerable=unanswerable
    )
    # The comparison's embeddings serve this once; kept, they would fill the index with every fold. Of the same
    # checkpoint and graphs a refresh may have put them in use, though.
    if index.alias_target(GRAPH_ALIAS) != done.collection:
        index.drop(done.collection)
    return run


def rank_exactly(
    checkpoint: Checkpoint, questions: Sequence[Question], views: Views, embed: Embed, *, name: str, top_k: int = 50
) -> StrategyRun:
    """Rank turns by matrix product: what an exact index returns, without the time of writing one.

    Args:
        checkpoint: Trained.
        questions: To ask.
        views: Their graphs.
        embed: Text encoder.
        name: Of the run.
        top_k: Turns per ranking.

    Raises:
        LeakError: If the checkpoint knows a question's conversation.
    """
    refuse_known(checkpoint, questions, option="checkpoint")
    encoder = CheckpointQueryEncoder(checkpoint, embed)
    rankings: dict[str, tuple[str, ...]] = {}
    for view in dict.fromkeys(views.of(q.space, q.asked_at) for q in questions):
        asked = [q for q in questions if views.of(q.space, q.asked_at) == view]
        snapshot = views.snapshot(view)
        rows, stored = encode_graph(checkpoint, snapshot)
        queries = encoder.encode_queries([q.text for q in asked], asked_at=[q.asked_at for q in asked])
        order = np.argsort(-(queries @ stored.T), axis=1, kind="stable")[:, :top_k]
        for question, best in zip(asked, order, strict=True):
            rankings[question.question_id] = tuple(snapshot.turns_of[rows[i]][0] for i in best)
    no_time = {question.question_id: 0.0 for question in questions}
    return StrategyRun(name, rankings, no_time, no_time)
