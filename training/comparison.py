"""Evaluation of a checkpoint on questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import numpy as np

from locigraph.kg.types import NodeId, Question, SpaceId
from locigraph.kg.views import Views
from locigraph.retrieval.evaluation import StrategyRun
from locigraph.retrieval.evaluation.asking import DEPTH, run_strategy
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.protocols import Retriever
from locigraph.retrieval.strategies.graph_embedding import GraphEmbeddingRetriever
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.embedding_refresh import refresh
from locigraph.training.folds import refuse_known
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph
from locigraph.training.protocols import Embed


def run_checkpoint(
    checkpoint: Checkpoint,
    questions: Sequence[Question],
    *,
    index: MilvusIndex,
    views: Views,
    embed: Embed,
    wrap: Callable[[Retriever], Retriever] = lambda retriever: retriever,
    name: str | None = None,
    pack_contexts: bool = True,
    unanswerable: Sequence[Question] = (),
) -> StrategyRun:
    """Embed the questions' graphs with a checkpoint, write them to the index, and search for every question.

    Args:
        checkpoint: The trained model.
        questions: Questions with evidence.
        index: Vector index that the embeddings are written to.
        views: The questions' graphs.
        embed: Text encoder.
        wrap: Wraps the retriever, for example in a reranker.
        name: Name of the run in the results; None for the retriever's own, such as v2.
        pack_contexts: Whether to pack the hits into contexts.
        unanswerable: As in ``run_strategy``.

    Raises:
        LeakError: If the checkpoint was trained or validated on the conversation of a question.
    """
    refuse_known(checkpoint, questions, option="checkpoint")
    needed = list(dict.fromkeys(views.of(q.space, q.asked_at) for q in (*questions, *unanswerable)))
    done = refresh(index, checkpoint, needed, views.snapshot, alias=None)

    def texts(space: SpaceId, node_ids: Sequence[NodeId], as_of: datetime | None) -> dict[NodeId, str]:
        held = views.at(space, as_of)
        return {node: held.descriptions[held.row_of[node]] for node in node_ids}

    retriever = GraphEmbeddingRetriever(
        index.open(done.collection),
        CheckpointQueryEncoder(checkpoint, embed),
        texts,
        view_of=lambda space, as_of: views.of(space, as_of).name,
    )
    run = run_strategy(
        wrap(retriever), questions, views if pack_contexts else None, name=name, unanswerable=unanswerable
    )
    # These embeddings serve only this run, and keeping those of every fold would fill the index. They are kept only if
    # a refresh with the same checkpoint and graphs has put them in use.
    if index.alias_target(GRAPH_ALIAS) != done.collection:
        index.drop(done.collection)
    return run


def rank_exactly(
    checkpoint: Checkpoint, questions: Sequence[Question], views: Views, embed: Embed, *, name: str
) -> StrategyRun:
    """Rank turns by a matrix product, which gives the results of an exact index without the time to write one.

    Args:
        checkpoint: The trained model.
        questions: The questions to ask.
        views: The questions' graphs.
        embed: Text encoder.
        name: Name of the run.

    Raises:
        LeakError: If the checkpoint was trained or validated on the conversation of a question.
    """
    refuse_known(checkpoint, questions, option="checkpoint")
    encoder = CheckpointQueryEncoder(checkpoint, embed)
    rankings: dict[str, tuple[str, ...]] = {}
    for view in dict.fromkeys(views.of(q.space, q.asked_at) for q in questions):
        asked = [q for q in questions if views.of(q.space, q.asked_at) == view]
        snapshot = views.snapshot(view)
        rows, stored = encode_graph(checkpoint, snapshot)
        queries = encoder.encode_queries([q.text for q in asked], asked_at=[q.asked_at for q in asked])
        order = np.argsort(-(queries @ stored.T), axis=1, kind="stable")[:, :DEPTH]
        for question, best in zip(asked, order, strict=True):
            rankings[question.question_id] = tuple(snapshot.turns_of[rows[i]][0] for i in best)
    no_time = {question.question_id: 0.0 for question in questions}
    return StrategyRun(name, rankings, no_time, no_time)
