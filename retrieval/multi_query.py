"""Several queries for one question, with any strategy."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever, Timing
from locigraph.retrieval.query_generator import LastDay, QueryGenerator
from locigraph.retrieval.rank_fusion import FEW_RRF_K, reciprocal_rank_fusion
from locigraph.retrieval.strategies.graph_embedding import GraphEmbeddingRetriever
from locigraph.retrieval.strategies.hybrid import HybridRetriever
from locigraph.retrieval.wrapping import WrappingRetriever


class MultiQueryRetriever(WrappingRetriever):
    """Runs a strategy for each query of a question and fuses the rankings by RRF.

    If a query names node types, hits of other types are left out of its ranking; if no hit has one of these types, as
    with a strategy that finds turns only, the ranking is used unchanged.

    Args:
        retriever: The strategy.
        queries: Generates the queries of a question, at least one.
        last_day: Reads the day from which a question without ``as_of`` is asked.
    """

    def __init__(self, retriever: Retriever, queries: QueryGenerator, last_day: LastDay) -> None:
        super().__init__(retriever)
        self._queries = queries
        self._last_day = last_day

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """See ``Retriever``; generating queries is not timed. The result of a single query is returned unchanged."""
        queries = self._queries(query, self._last_day(space) if as_of is None else as_of.date())
        results = [self._retriever.retrieve(search.text, space, as_of=as_of, top_k=top_k) for search in queries]
        if len(results) == 1:
            return results[0]
        rankings: list[list[NodeId]] = []
        hits: dict[NodeId, Hit] = {}
        for search, result in zip(queries, results, strict=True):
            fitting = [hit for hit in result.hits if search.types is None or hit.type in search.types] or result.hits
            rankings.append([hit.node_id for hit in fitting])
            for hit in fitting:
                hits.setdefault(hit.node_id, hit)
        fused = [
            replace(hits[node_id], score=score, signals={**hits[node_id].signals, "rrf": score})
            for node_id, score in reciprocal_rank_fusion(rankings, rrf_k=FEW_RRF_K)
        ]
        return Result(tuple(fused), sum((result.timing for result in results), Timing()))


def with_queries(retriever: Retriever, queries: QueryGenerator | None, last_day: LastDay) -> Retriever:
    """Let a strategy search with the queries of a generator; without a generator the strategy is returned unchanged.

    v1 is returned unchanged too: it is constructed with the generator and fuses the rankings of all its searches. v2
    averages the vectors of all queries and runs one search.
    """
    if queries is None or isinstance(retriever, HybridRetriever):
        return retriever
    if isinstance(retriever, GraphEmbeddingRetriever):
        return retriever.with_queries(queries, last_day)
    return MultiQueryRetriever(retriever, queries, last_day)
