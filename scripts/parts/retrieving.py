"""Retrieval strategies by name, and what each needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache

from kg.errors import LocigraphError
from kg.store import Store
from kg.types import SpaceId
from retrieval.fusion import RRF_K
from retrieval.hybrid import HybridRetriever
from retrieval.indexer import DescriptionIndexer
from retrieval.lexical import LexicalIndex
from retrieval.memory_vectors import MemoryVectors
from retrieval.milvus import MilvusIndex
from retrieval.protocols import Retriever, VectorSearch
from retrieval.rerank import CrossEncoderReranker, RerankedRetriever
from retrieval.single_arm import Bm25Retriever, DenseRetriever
from retrieval.text_encoder import CachedTextEncoder
from retrieval.weighted_sum import WeightedSumRetriever
from scripts.parts.options import names
from training.refresh import forget_in_collections

#: Strategies that need a checkpoint.
TRAINED = ("v2", "v2-zero")
#: Strategies that search the vector index.
WITH_INDEX = ("v1", "v1-k60", "dense", *TRAINED)
#: Strategies with the text encoder's adapter, by those without; their vectors are searched in memory, exactly.
ADAPTED = {f"{name}-adapted": name for name in ("v1", "sum", "dense")}


def require_adapter(strategies: Sequence[str], adapter: str | None) -> None:
    """Refuse strategies of ``ADAPTED`` without an adapter.

    Raises:
        LocigraphError: Names the first.
    """
    wrong = [name for name in strategies if name in ADAPTED]
    if adapter is None and wrong:
        raise LocigraphError(f"strategy {wrong[0]!r} needs an adapter; name one with --encoder.adapter")


def claim(strategies: Sequence[str], baselines: str | None) -> tuple[str | None, list[str]]:
    """Which strategy is tested, and against which.

    Args:
        strategies: All that are run.
        baselines: Names separated by commas; None for v1 and sum (of which with the adapter what is run), or for all
            others where none of these is run.

    Returns:
        (v2, or v2-zero without it, or None without both; names of the baselines).

    Raises:
        LocigraphError: If a baseline is not among the strategies.
    """
    claimant = next((name for name in ("v2", "v2-zero") if name in strategies), None)
    others = [name for name in strategies if name != claimant]
    if baselines is not None:
        return claimant, names(baselines, others, "baseline")
    # Where v2's text encoder is adapted, so must be what it is tested against; v1 as it is besides.
    usual = ("v1", "v1-adapted", "sum-adapted") if any(name in ADAPTED for name in others) else ("v1", "sum")
    return claimant, [name for name in others if name in usual] or others


def unused_options(
    strategies: Sequence[str], *, checkpoint: str | None, adapter: str | None, only_v2: Mapping[str, object]
) -> list[str]:
    """Notes on options, perhaps of a shared configuration, that a choice of strategies leaves without use.

    Args:
        strategies: All that are run.
        checkpoint: Of v2-zero; None for none.
        adapter: Of the text encoder; None for none.
        only_v2: Options by name that only v2 uses; false where they have their default.
    """
    said = []
    if checkpoint is not None and "v2-zero" not in strategies:
        said.append("checkpoint was not used, since v2-zero was not run")
    if adapter is not None and not any(name in ADAPTED or name in TRAINED for name in strategies):
        said.append("encoder.adapter was not used, since no strategy that uses it was run")
    if "v2" not in strategies:
        said += [f"{name} was not used, since v2 was not run" for name, given in only_v2.items() if given]
    return said


def indexer_of(store: Store, index: MilvusIndex, encoder: CachedTextEncoder) -> DescriptionIndexer:
    """The indexer of descriptions, by which collections of graph embeddings forget what the store forgot.

    It holds vectors of the text encoder without its adapter: v1 is the same whatever v2 has learnt.
    """
    plain = encoder.without_adapter().model_id
    return DescriptionIndexer(
        store, index, plain, on_delete=lambda space, keys: forget_in_collections(index, space, keys)
    )


@contextmanager
def search_parts(
    store: Store,
    encoder: CachedTextEncoder,
    strategies: Sequence[str],
    *,
    spaces: Sequence[SpaceId],
    index: MilvusIndex | None = None,
) -> Iterator[tuple[LexicalIndex, dict[str, Retriever]]]:
    """Strategies that need no training over an indexed graph.

    Args:
        store: The graph.
        encoder: Text encoder; only strategies of ``ADAPTED`` use its adapter.
        strategies: Names; those that need training are passed over.
        spaces: That will be asked.
        index: Vector index; may be None if no strategy is of ``WITH_INDEX``.

    Yields:
        (index of the words of all nodes, retrievers by name).
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
            return DenseRetriever(vectors, used, turns, name=name)
        if kind == "v1-k60":
            hybrid = HybridRetriever(lexical, vectors, used, name=name, rrf_k=RRF_K)
        else:
            hybrid = HybridRetriever(lexical, vectors, used, name=name)
        closing.callback(hybrid.close)
        return hybrid

    with ExitStack() as closing:
        yield lexical, {name: made(name, closing) for name in strategies if name not in TRAINED}


def second_look(model: str | None) -> Callable[[Retriever], Retriever]:
    """Adds a cross-encoder to a strategy, or nothing where none is named."""
    if model is None:
        return lambda retriever: retriever
    reranker = CrossEncoderReranker(model)
    return lambda retriever: RerankedRetriever(retriever, reranker)
