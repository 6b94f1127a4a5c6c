"""Baselines of one signal over turns: plain dense retrieval and plain BM25."""

from __future__ import annotations

import time
from datetime import datetime

from locigraph.kg.types import SpaceId
from locigraph.retrieval.index.documents import LexicalIndex
from locigraph.retrieval.protocols import (
    DEFAULT_TOP_K,
    Hit,
    Result,
    SearchScope,
    TextEncoder,
    Timing,
    VectorSearch,
)

_TURNS = ("episode",)


class DenseRetriever:
    """Cosine of question and turn, as in plain RAG.

    Args:
        vectors: Index of description embeddings.
        encoder: Made them.
        lexical: Holds the nodes' texts.
        name: In results.
    """

    def __init__(
        self, vectors: VectorSearch, encoder: TextEncoder, lexical: LexicalIndex, *, name: str = "dense"
    ) -> None:
        self.name = name
        self._vectors = vectors
        self._encoder = encoder
        self._lexical = lexical

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """The nearest turns; see ``Retriever``. Signal: ``ann`` (cosine)."""
        self._lexical.load(space, as_of)  # refuses a tenant that does not exist, whom the index would give no hits
        started = time.perf_counter()
        vector = self._encoder.encode([query])[0]
        encoded = time.perf_counter()
        matches = self._vectors.search(vector, SearchScope(space, _TURNS, as_of), top_k=top_k)
        hits = []
        for match in matches:
            document = self._lexical.document(space, match.node_id, as_of=as_of)
            if document is not None:
                hits.append(
                    Hit(
                        match.node_id, match.type, document.description, match.turn_ids, match.score,
                        {"ann": match.score},
                    )
                )  # fmt: skip
        ended = time.perf_counter()
        return Result(tuple(hits), Timing(1e3 * (encoded - started), 1e3 * (ended - encoded)))


class Bm25Retriever:
    """BM25 of question and turn.

    Args:
        lexical: Index of node descriptions.
    """

    name = "bm25"

    def __init__(self, lexical: LexicalIndex) -> None:
        self._lexical = lexical

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """The turns that share most with the query; see ``Retriever``. Signal: ``bm25``."""
        self._lexical.load(space, as_of)
        started = time.perf_counter()
        found = self._lexical.search(query, space, types=_TURNS, as_of=as_of, top_k=top_k)
        hits = tuple(Hit(d.node_id, d.type, d.description, d.turn_ids, score, {"bm25": score}) for d, score in found)
        return Result(hits, Timing(0.0, 1e3 * (time.perf_counter() - started)))
