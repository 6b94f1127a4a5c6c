"""Several queries for one question, under any strategy."""

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
    """A strategy that is asked each query of a question, and whose rankings RRF fuses.

    Of a query that names node types, hits of other types are left out; where none is of these types, as with a strategy
    that finds turns only, its ranking counts as it is.

    Args:
        retriever: The strategy.
        queries: Makes the queries of a question, at least one.
        last_day: Reads from which day a question of the present is asked.
    """

    def __init__(self, retriever: Retriever, queries: QueryGenerator, last_day: LastDay) -> None:
        super().__init__(retriever)
        self._queries = queries
        self._last_day = last_day

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """See ``Retriever``; making the queries is not timed. A single query's result is the strategy's own."""
        queries = self._queries(query, self._last_day(space) if as_of is None else as_of.date())
        found = [self._retriever.retrieve(each.text, space, as_of=as_of, top_k=top_k) for each in queries]
        if len(found) == 1:
            return found[0]
        rankings: list[list[NodeId]] = []
        hits: dict[NodeId, Hit] = {}
        for each, result in zip(queries, found, strict=True):
            fitting = [hit for hit in result.hits if each.types is None or hit.type in each.types] or result.hits
            rankings.append([hit.node_id for hit in fitting])
            for hit in fitting:
                hits.setdefault(hit.node_id, hit)
        fused = [
            replace(hits[node_id], score=score, signals={**hits[node_id].signals, "rrf": score})
            for node_id, score in reciprocal_rank_fusion(rankings, rrf_k=FEW_RRF_K)
        ]
        encode_ms = sum(result.timing.encode_ms for result in found)
        return Result(tuple(fused), Timing(encode_ms, sum(result.timing.search_ms for result in found)))


def with_queries(retriever: Retriever, queries: QueryGenerator | None, last_day: LastDay) -> Retriever:
    """A strategy that is asked the queries of a generator, or the question as it is where there is none.

    v1 stays as it is: it takes the generator itself, and fuses the rankings of all its searches. v2 makes one vector of
    all queries, and one search.
    """
    if queries is None or isinstance(retriever, HybridRetriever):
        return retriever
    if isinstance(retriever, GraphEmbeddingRetriever):
        return retriever.with_queries(queries, last_day)
    return MultiQueryRetriever(retriever, queries, last_day)
