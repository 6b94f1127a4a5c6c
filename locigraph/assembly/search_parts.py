"""What strategies are built of: the graph, its indexes and the text encoder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Self

from locigraph.assembly.settings import DEFAULT
from locigraph.assembly.space_indexes import SpaceIndexes
from locigraph.kg.errors import LocigraphError
from locigraph.kg.joint import read_by_space
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.errors import IndexMismatchError

if TYPE_CHECKING:
    from locigraph.assembly.strategies import Strategy
    from locigraph.kg.store import Store
    from locigraph.retrieval.index.descriptions import DescriptionIndexer
    from locigraph.retrieval.index.milvus import MilvusIndex
    from locigraph.retrieval.protocols import NodeTexts, Retriever, SnapshotLoader, VectorSearch
    from locigraph.retrieval.query_generator import QueryGenerator
    from locigraph.retrieval.rerank import Reranker
    from locigraph.retrieval.text.pair_scorer import TrainedReranker
    from locigraph.retrieval.text.text_encoder import CachedTextEncoder
    from locigraph.training.checkpoint import Checkpoint


class SearchParts:
    """What strategies are built of: the graph, its indexes and the text encoder. Each part is made when first used.

    As a context manager, it closes on exit what strategies have put into ``opened``.

    Args:
        store: The graph.
        encoder: Text encoder, with its adapter if it has one.
        spaces: The spaces that will be asked.
        index: Vector index; None to search all vectors in memory.
        queries: Generates the queries of v1; None for its default rules.
        is_joint: Whether the spaces are searched as one graph (see ``kg.joint``), whatever space a strategy is asked
            for: ranks, word counts and scaled scores are then over all of them.
        indexes: Gives in-memory indexes of these spaces; None to make new ones.
        texts: Reads the texts of hits; None reads them from the store.
        checkpoint: Loads the checkpoint of strategies that were learnt with one; None if there is none.
        graph_embeddings: Makes the search of graph embeddings; None where only evaluations make it.
    """

    def __init__(
        self,
        store: Store,
        encoder: CachedTextEncoder,
        *,
        spaces: Sequence[SpaceId],
        index: MilvusIndex | None = None,
        queries: QueryGenerator | None = None,
        is_joint: bool = False,
        indexes: Callable[[], SpaceIndexes] | None = None,
        texts: NodeTexts | None = None,
        checkpoint: Callable[[], Checkpoint] | None = None,
        graph_embeddings: Callable[[], Retriever] | None = None,
    ) -> None:
        self.store, self.encoder, self.spaces, self.index = store, encoder, spaces, index
        self.queries = queries
        self.is_joint = is_joint
        self._indexes = indexes
        self.texts = texts_of(store, is_joint=is_joint) if texts is None else texts
        self.opened = ExitStack()
        self._checkpoint = checkpoint
        self._graph_embeddings = graph_embeddings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()

    @cached_property
    def indexes(self) -> SpaceIndexes:
        """In-memory indexes of the spaces, which strategies with graph embeddings do without."""
        if self._indexes is not None:
            return self._indexes()
        return SpaceIndexes(self.store, self.spaces, is_joint=self.is_joint)

    def encoder_of(self, strategy: Strategy) -> CachedTextEncoder:
        """The text encoder that a strategy uses."""
        return self.encoder if strategy.uses_adapter else self.encoder.without_adapter()

    def checkpoint(self) -> Checkpoint:
        """The checkpoint of strategies that were learnt with one; raises LocigraphError if there is none."""
        if self._checkpoint is None:
            raise LocigraphError("no checkpoint is named; name one with --checkpoint")
        return self._checkpoint()

    def graph_embeddings(self) -> Retriever:
        """A search of graph embeddings that are up to date."""
        assert self._graph_embeddings is not None, "evaluations train a checkpoint, or are given one"
        return self._graph_embeddings()

    def snapshots(self, strategy: Strategy) -> SnapshotLoader:
        """A function that reads a space with the embeddings of a strategy's text encoder."""
        encoder = self.encoder_of(strategy)
        return lambda space, as_of: self.indexes.snapshot(space, as_of, encoder)

    def vectors(self, strategy: Strategy) -> VectorSearch:
        """Search over description embeddings: in the vector index if there is one, but in memory for an adapter's."""
        from locigraph.retrieval.index.scoped_vectors import ScopedVectors

        encoder = self.encoder_of(strategy)
        in_memory = strategy.uses_adapter or self.index is None
        found = self.indexes.vectors(encoder) if in_memory else self._indexed
        return ScopedVectors(
            found,
            partial(self.indexes.past_vectors, encoder=encoder),
            self.spaces if self.is_joint else None,
        )

    @cached_property
    def _indexed(self) -> VectorSearch:
        assert self.index is not None
        if self.indexes.complete is None and not any(self.store.node_counts(space) for space in self.spaces):
            return self.indexes.vectors(self.encoder.without_adapter())  # empty, and perhaps without an index
        indexer = indexer_of(self.store, self.index, self.encoder)
        collection = indexer.collection()
        # Counting rows would take most of the time of a search. Nobody else writes to an embedded index, whose
        # collection stays the same object until it is rebuilt; a server's is a new object each time, and is counted.
        # Another process, with another index, may have taken what was due out of the store.
        is_known = self.indexes.complete is collection and collection.has_written(self.indexes.unproven)
        if not is_known or any(self.store.outbox_size(space) for space in self.spaces):
            self._complete(indexer)
            self.indexes.complete = collection
        self.indexes.unproven = set()
        return collection

    def _complete(self, indexer: DescriptionIndexer) -> None:
        """Require that the index holds the searched spaces; what a server has lost in a crash is written again."""
        assert self.index is not None
        try:
            indexer.require_complete(self.spaces)
        except IndexMismatchError:
            if self.index.is_embedded or self.index.is_reader:
                raise
            indexer.repair(self.spaces)
            indexer.require_complete(self.spaces)


def indexer_of(store: Store, index: MilvusIndex, encoder: CachedTextEncoder) -> DescriptionIndexer:
    """The indexer of node descriptions.

    It indexes vectors of the text encoder without its adapter, so that v1 does not depend on what v2 has learnt.
    """
    from locigraph.retrieval.index.descriptions import DescriptionIndexer

    return DescriptionIndexer(store, index, encoder.without_adapter().model_id)


def texts_of(store: Store, *, is_joint: bool = False) -> NodeTexts:
    """A function that reads the texts of hits from the store, by joint IDs if several spaces are searched as one."""

    def read(space: SpaceId, node_ids: Sequence[NodeId], as_of: datetime | None) -> dict[NodeId, str]:
        return {node.id: node.description for node in store.nodes(space, ids=node_ids, as_of=as_of)}

    def read_joint(space: SpaceId, node_ids: Sequence[NodeId], as_of: datetime | None) -> dict[NodeId, str]:
        return read_by_space(node_ids, lambda each, own: read(each, own, as_of))

    return read_joint if is_joint else read


def named_reranker(model: str | os.PathLike[str]) -> Reranker:
    """The named reranker, loaded.

    Raises:
        TextEncoderError: If it cannot be loaded.
    """
    with _LOADING:  # of several questions that need it first, one loads it
        return _reranker(os.fspath(model))


def trained_reranker(model: str | None) -> TrainedReranker | None:
    """The named reranker, if it is one of ours and not a cross-encoder of another library.

    Raises:
        TextEncoderError: If it is damaged.
    """
    if model is None:
        return None
    from locigraph.assembly import defaults
    from locigraph.retrieval.text.pair_scorer import is_reranker, read_reranker

    folder = defaults.SHIPPED_RERANKER if model == DEFAULT else Path(model)
    return read_reranker(folder) if model == DEFAULT or is_reranker(folder) else None


_LOADING = Lock()


@lru_cache(1)
def _reranker(model: str) -> Reranker:
    from locigraph.retrieval.rerank import CrossEncoderReranker, LearntReranker

    trained = trained_reranker(model)
    return CrossEncoderReranker(model) if trained is None else LearntReranker(trained)  # takes seconds to load
