"""Searches graph embeddings by a checkpoint for the questions of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.types import Question
from locigraph.kg.views import View, Views
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.memory_vectors import MemoryVectors
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.protocols import GraphVectors, Retriever, SearchFilter, VectorMatch
from locigraph.retrieval.strategies.graph_embedding import GraphEmbeddingRetriever
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.embedding_refresh import refresh
from locigraph.training.folds import refuse_trained_on
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph

_HELD = 8  # encoded views that are kept in memory; questions about a space mostly follow one another


@contextmanager
def searchable(
    checkpoint: Checkpoint,
    questions: Sequence[Question],
    *,
    views: Views,
    encoder: TextEncoder,
    index: MilvusIndex | None = None,
) -> Iterator[tuple[Retriever, Retriever]]:
    """Embed the graphs of all questions that will be asked with a checkpoint, to search the embeddings.

    They are written to the index and searched there. Without one they are searched exactly in memory, which gives the
    results of an exact index without the time to write it.

    Yields:
        The retriever, and the same one over vectors in memory, which is faster than an embedded index.

    Raises:
        LeakError: If the checkpoint was trained or validated on the conversation of a question.
    """
    refuse_trained_on(checkpoint, questions, option="checkpoint")

    def over(vectors: GraphVectors) -> Retriever:
        return GraphEmbeddingRetriever(
            vectors,
            CheckpointQueryEncoder(checkpoint, encoder),
            views.texts,
            view_of=lambda space, as_of: views.of(space, as_of).name,
        )

    needed = list(dict.fromkeys(views.of(q.space, q.asked_at) for q in questions))
    in_memory = over(_EncodedViews(checkpoint, views, needed))
    if index is None:
        yield in_memory, in_memory
        return
    done = refresh(index, checkpoint, needed, views.snapshot, alias=None)
    yield over(index.open(done.collection)), in_memory
    # These embeddings serve only this run, and keeping those of every fold would fill the index. They are kept only if
    # a refresh with the same checkpoint and graphs has put them in use.
    if index.alias_target(GRAPH_ALIAS) != done.collection:
        index.drop(done.collection)


class _EncodedViews:
    """Graph embeddings of views in memory, each encoded when it is first searched; see ``GraphVectors``."""

    name = "of views in memory"

    def __init__(self, checkpoint: Checkpoint, views: Views, needed: Sequence[View]) -> None:
        self.version = checkpoint.version
        self._checkpoint = checkpoint
        self._views = views
        self._named = {view.name: view for view in needed}
        self._vectors_of = lru_cache(_HELD)(self._encoded)

    def search(self, vector: NDArray[np.float32], scope: SearchFilter, *, top_k: int) -> list[VectorMatch]:
        """The most similar turns of one view, best first."""
        return self._vectors_of(str(scope.space)).search(vector, scope, top_k=top_k)

    def _encoded(self, view: str) -> MemoryVectors:
        snapshot = self._views.snapshot(self._named[view])
        rows, vectors = encode_graph(self._checkpoint, snapshot)
        encoded = MemoryVectors()
        encoded.add_nodes(view, snapshot, rows, vectors)
        return encoded
