"""Single-signal baselines over turns: plain dense retrieval and plain BM25."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Self

from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.schema import EPISODE
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.hits import hits_of_matches
from locigraph.retrieval.index.documents import LexicalIndex
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, NodeTexts, Result, Retriever, SearchFilter, VectorSearch
from locigraph.retrieval.stopwatch import Stopwatch

_TURNS = (EPISODE,)


class DenseRetriever(Retriever):
    """Ranks turns by the cosine between their embedding and the question's.

    Args:
        vectors: Index of description embeddings.
        encoder: Text encoder that made these embeddings.
        texts: Reads the texts of the hits.
        name: Name of the strategy in results.

    Source:
        The retriever of Lewis et al. 2020, "Retrieval-Augmented Generation", arXiv:2005.11401, section 2.2 (the inner
        product of two encoders' vectors); here one encoder produces both, and vectors have length 1.
    """

    def __init__(self, vectors: VectorSearch, encoder: TextEncoder, texts: NodeTexts, *, name: str = "dense") -> None:
        self.name = name
        self._vectors = vectors
        self._encoder = encoder
        self._texts = texts

    def limited_to(self, only: Callable[[str | None], frozenset[NodeId]]) -> Self:
        """See ``Retriever``: the index searches among these alone."""
        return self._changed(_only=only(EPISODE))

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """The nearest turns; see ``Retriever``. Signal: ``ann`` (cosine)."""
        watch = Stopwatch()
        vector = self._encoder.encode([query])[0]
        watch.encoded()
        matches = self._vectors.search(vector, SearchFilter(space, _TURNS, as_of, self._only), top_k=top_k)
        timing = watch.timing()
        # Called even when nothing was found, since an unknown space is an error and not an empty result.
        texts = self._texts(space, [match.node_id for match in matches], as_of)
        return Result(hits_of_matches(matches, texts, signal="ann"), timing)


class Bm25Retriever(Retriever):
    """Ranks turns by the BM25 score of their text for the question.

    Args:
        lexical: BM25 index of node descriptions.
    """

    name = "bm25"

    def __init__(self, lexical: LexicalIndex) -> None:
        self._lexical = lexical

    def limited_to(self, only: Callable[[str | None], frozenset[NodeId]]) -> Self:
        """See ``Retriever``: the index searches among these alone."""
        return self._changed(_only=only(EPISODE))

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """The turns with the highest scores; see ``Retriever``. Signal: ``bm25``."""
        self._lexical.load(space, as_of)  # not timed, as in v1
        watch = Stopwatch()
        scored = self._lexical.search(query, space, types=_TURNS, as_of=as_of, only=self._only, top_k=top_k)
        hits = tuple(Hit(d.node_id, d.type, d.description, d.turn_ids, score, {"bm25": score}) for d, score in scored)
        return Result(hits, watch.timing())
