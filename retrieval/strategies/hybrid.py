"""v1: BM25 and ANN over node descriptions, fused by reciprocal rank. The strong baseline; it also builds the graph."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from locigraph.kg.schema import SEARCHABLE_TYPES
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.index.documents import LexicalIndex
from locigraph.retrieval.protocols import (
    DEFAULT_TOP_K,
    Hit,
    Result,
    SearchScope,
    TextEncoder,
    Timing,
    VectorMatch,
    VectorSearch,
)
from locigraph.retrieval.query_generator import QueryGenerator, RuleQueryGenerator
from locigraph.retrieval.rank_fusion import reciprocal_rank_fusion

# Chosen on the bundled corpus `threads`, on both its graphs, together with the depth (docs/experiments.md). With so few
# rankings the usual 60 hardly tells the first rank from the twentieth, and costs .02 to .04 of recall@10.
_RRF_K = 2


class HybridRetriever:
    """v1.

    For each query that the generator writes, both arms run in parallel over the active nodes of the searchable
    types; all their rankings are fused by RRF.

    Args:
        lexical: BM25 arm.
        vectors: ANN arm over description embeddings.
        encoder: Made those embeddings.
        generator: Writes the queries.
        depth: Candidates per arm.
        rrf_k: Constant of the fusion.
        types: Node types to search.
        name: In results.
    """

    def __init__(
        self,
        lexical: LexicalIndex,
        vectors: VectorSearch,
        encoder: TextEncoder,
        *,
        generator: QueryGenerator | None = None,
        depth: int = 50,
        rrf_k: int = _RRF_K,
        types: Sequence[str] = SEARCHABLE_TYPES,
        name: str = "v1",
    ) -> None:
        self.name = name
        self._lexical = lexical
        self._vectors = vectors
        self._encoder = encoder
        self._generator = generator or RuleQueryGenerator()
        self._depth = depth
        self._rrf_k = rrf_k
        self._types = tuple(types)
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="v1-arm")

    def close(self) -> None:
        """Stop the arms' threads."""
        self._pool.shutdown()

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """The best nodes for a query; see ``Retriever``. Signals: ``bm25``, ``ann`` (cosine)."""
        depth = max(self._depth, top_k)
        queries = self._generator.generate(query, asked_at=as_of)
        self._lexical.load(space, as_of)  # not timed: an index of the past is made for the asking, a live one is there
        started = time.perf_counter()
        vectors = self._encoder.encode([q.text for q in queries])
        encoded = time.perf_counter()
        lexical: dict[NodeId, float] = {}
        semantic: dict[NodeId, VectorMatch] = {}
        rankings: list[list[str]] = []
        for search_query, vector in zip(queries, vectors, strict=True):
            types = search_query.types or self._types
            scope = SearchScope(space, types, as_of)
            ann = self._pool.submit(self._vectors.search, vector, scope, top_k=depth)
            bm25 = self._lexical.search(search_query.text, space, types=types, as_of=as_of, top_k=depth)
            matches = ann.result()
            rankings.append([document.node_id for document, _ in bm25])
            rankings.append([match.node_id for match in matches])
            for document, score in bm25:
                lexical[document.node_id] = max(score, lexical.get(document.node_id, 0.0))
            for match in matches:
                held = semantic.get(match.node_id)
                if held is None or match.score > held.score:
                    semantic[match.node_id] = match
        fused = reciprocal_rank_fusion(rankings, rrf_k=self._rrf_k)
        hits = [
            hit
            for node_id, score in fused
            if (hit := self._hit(space, as_of, NodeId(node_id), score, lexical, semantic)) is not None
        ]
        ended = time.perf_counter()
        return Result(tuple(hits), Timing(1e3 * (encoded - started), 1e3 * (ended - encoded)))

    def _hit(
        self,
        space: SpaceId,
        as_of: datetime | None,
        node_id: NodeId,
        score: float,
        lexical: Mapping[NodeId, float],
        semantic: Mapping[NodeId, VectorMatch],
    ) -> Hit | None:
        document = self._lexical.document(space, node_id, as_of=as_of)
        if document is None:  # forgotten or archived since the index row was written
            return None
        signals = {"rrf": score}
        if node_id in lexical:
            signals["bm25"] = lexical[node_id]
        if node_id in semantic:
            signals["ann"] = semantic[node_id].score
        return Hit(node_id, document.type, document.description, document.turn_ids, score, signals)
