"""v1: BM25 and ANN over node descriptions, fused by reciprocal rank. Consolidation also searches with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import datetime
from functools import partial
from typing import Self

from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.schema import searchable_types
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.index.documents import LexicalIndex
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever, SearchFilter, VectorSearch
from locigraph.retrieval.query_generator import QueryGenerator, generate_queries
from locigraph.retrieval.rank_fusion import FEW_RRF_K, reciprocal_rank_fusion
from locigraph.retrieval.stopwatch import Stopwatch


class HybridRetriever(Retriever):
    """v1: runs a BM25 and an ANN search for each generated query, and fuses all rankings by RRF.

    Args:
        lexical: BM25 arm.
        vectors: ANN arm over description embeddings.
        encoder: Text encoder that made these embeddings.
        queries: Generates the search queries of a question, at least one.
        uses_windows: Whether the found nodes that fall into the time named by a query form one more ranking.
        depth: Number of candidates per arm.
        rrf_k: Constant of reciprocal rank fusion.
        ann_weight: Weight of a ranking of the ANN arm in the fusion; one of the BM25 arm has weight 1.
        types: Node types to search; None for all searchable types.
        name: Name of the strategy in results.
        pool: Runs the ANN search in parallel with the BM25 search; None runs them in turn, for vectors in memory.
    """

    def __init__(
        self,
        lexical: LexicalIndex,
        vectors: VectorSearch,
        encoder: TextEncoder,
        *,
        queries: QueryGenerator = generate_queries,
        uses_windows: bool = False,
        depth: int = 50,
        rrf_k: int = FEW_RRF_K,
        ann_weight: float = 1.0,
        types: Sequence[str] | None = None,
        name: str = "v1",
        pool: Executor | None = None,
    ) -> None:
        self.name = name
        self._lexical = lexical
        self._vectors = vectors
        self._encoder = encoder
        self._queries = queries
        self._uses_windows = uses_windows
        self._depth = depth
        self._rrf_k = rrf_k
        self._weights = {"bm25": 1.0, "ann": ann_weight}
        self._types = searchable_types() if types is None else tuple(types)
        self._pool = pool

    def limited_to(self, only: Callable[[str | None], frozenset[NodeId]]) -> Self:
        """See ``Retriever``: both arms look for these alone."""
        return self._changed(_only=only(None))

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """The best nodes for a query; see ``Retriever``. Signals: ``bm25``, ``ann`` (cosine)."""
        depth = max(self._depth, top_k)
        # Not timed: an open memory keeps this index until the space changes, and an evaluation builds it once.
        self._lexical.load(space, as_of)
        queries = self._queries(query, self._lexical.last_day(space, as_of) if as_of is None else as_of.date())
        watch = Stopwatch()
        vectors = self._encoder.encode([search_query.text for search_query in queries])
        watch.encoded()
        rankings: list[list[NodeId]] = []
        weights: list[float] = []
        signals: defaultdict[NodeId, dict[str, float]] = defaultdict(dict)

        def take(signal: str, ranked: Sequence[tuple[NodeId, float]], window: tuple[int, int] | None) -> None:
            lists = [[node_id for node_id, _ in ranked]]
            if window is not None and self._uses_windows:
                documents = ((node_id, self._lexical.document(space, node_id, as_of=as_of)) for node_id in lists[0])
                lists.append([node_id for node_id, document in documents if document and document.touches(window)])
            rankings.extend(lists)
            weights.extend([self._weights[signal]] * len(lists))
            for node_id, score in ranked:  # several queries may find a node: its best score is shown
                signals[node_id][signal] = max(score, signals[node_id].get(signal, score))

        for search_query, vector in zip(queries, vectors, strict=True):
            types = self._types if search_query.types is None else search_query.types
            search = partial(self._vectors.search, vector, SearchFilter(space, types, as_of, self._only), top_k=depth)
            ann = search if self._pool is None else self._pool.submit(search).result
            bm25 = self._lexical.search(
                search_query.text, space, types=types, as_of=as_of, only=self._only, top_k=depth
            )
            take("bm25", [(document.node_id, score) for document, score in bm25], search_query.window)
            take("ann", [(match.node_id, match.score) for match in ann()], search_query.window)
        hits = []
        for node_id, score in reciprocal_rank_fusion(rankings, rrf_k=self._rrf_k, weights=weights):
            document = self._lexical.document(space, node_id, as_of=as_of)
            if document is not None:  # None: forgotten or archived after the index row was written
                shown = {"rrf": score, **signals[node_id]}
                hits.append(Hit(node_id, document.type, document.description, document.turn_ids, score, shown))
        return Result(tuple(hits), watch.timing())
