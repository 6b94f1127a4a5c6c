"""Retrievers and indexers made of store, index and text encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import cache

from locigraph.kg.store import Store
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.index.descriptions import DescriptionIndexer
from locigraph.retrieval.index.documents import LexicalIndex
from locigraph.retrieval.index.memory_vectors import MemoryVectors
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.protocols import NodeTexts, Retriever, VectorSearch
from locigraph.retrieval.rank_fusion import USUAL_RRF_K
from locigraph.retrieval.rerank import CrossEncoderReranker, RerankedRetriever
from locigraph.retrieval.strategies.hybrid import HybridRetriever
from locigraph.retrieval.strategies.single_signal import Bm25Retriever, DenseRetriever
from locigraph.retrieval.strategies.weighted_sum import WeightedSumRetriever
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.scripts.parts.strategies import ADAPTED, TRAINED
from locigraph.training.refresh import forget_in_collections


def indexer_of(store: Store, index: MilvusIndex, encoder: CachedTextEncoder) -> DescriptionIndexer:
    """The indexer of descriptions, by which collections of graph embeddings forget what the store forgot.

    It holds vectors of the text encoder without its adapter: v1 is the same whatever v2 has learnt.
    """
    plain = encoder.without_adapter().model_id
    return DescriptionIndexer(
        store, index, plain, on_delete=lambda space, keys: forget_in_collections(index, space, keys)
    )


def texts_of(store: Store) -> NodeTexts:
    """Reads the texts of the hits of a search from the store."""

    def read(space: SpaceId, node_ids: Sequence[NodeId], as_of: datetime | None) -> dict[NodeId, str]:
        return {node.id: node.description for node in store.nodes(space, ids=node_ids, as_of=as_of)}

    return read


@contextmanager
def search_parts(
    store: Store,
    encoder: CachedTextEncoder,
    strategies: Sequence[str],
    *,
    spaces: Sequence[SpaceId],
    index: MilvusIndex | None = None,
) -> Iterator[dict[str, Retriever]]:
    """Strategies that need no training over an indexed graph.

    Args:
        store: The graph.
        encoder: Text encoder; only strategies of ``ADAPTED`` use its adapter.
        strategies: Names; those that need training are passed over.
        spaces: That will be asked.
        index: Vector index; may be None if no strategy is of ``WITH_INDEX``.

    Yields:
        Retrievers by name.
    """
    lexical = LexicalIndex(lambda space, as_of: store.snapshot(space, as_of=as_of))
    # An index of their own: what is common in facts must not weigh on words of turns.
    turns = LexicalIndex(lambda space, as_of: store.snapshot(space, as_of=as_of), types=("episode",))

    @cache
    def indexed() -> VectorSearch:
        assert index is not None
        indexer = indexer_of(store, index, encoder)
        indexer.require_complete(spaces)
        return indexer.collection()

    @cache
    def in_memory() -> VectorSearch:
        vectors = MemoryVectors()
        for space in spaces:
            vectors.add_snapshot(store.snapshot(space, embedding_model=encoder.model_id))
        return vectors

    def made(name: str, closing: ExitStack) -> Retriever:
        used = encoder if name in ADAPTED else encoder.without_adapter()
        kind = ADAPTED.get(name, name)
        if kind == "bm25":
            return Bm25Retriever(turns)
        if kind == "sum":
            return WeightedSumRetriever(
                lambda space, as_of: store.snapshot(space, as_of=as_of, embedding_model=used.model_id), used, name=name
            )
        vectors = in_memory() if name in ADAPTED else indexed()
        if kind == "dense":
            return DenseRetriever(vectors, used, texts_of(store), name=name)
        if kind == "v1-k60":
            hybrid = HybridRetriever(lexical, vectors, used, name=name, rrf_k=USUAL_RRF_K)
        else:
            hybrid = HybridRetriever(lexical, vectors, used, name=name)
        closing.callback(hybrid.close)
        return hybrid

    with ExitStack() as closing:
        yield {name: made(name, closing) for name in strategies if name not in TRAINED}


def second_look(model: str | None) -> Callable[[Retriever], Retriever]:
    """Adds a cross-encoder to a strategy, or nothing where none is named."""
    if model is None:
        return lambda retriever: retriever
    reranker = CrossEncoderReranker(model)
    return lambda retriever: RerankedRetriever(retriever, reranker)
