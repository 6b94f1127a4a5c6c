"""Reranking: a cross-encoder scores the best hits of a strategy again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from locigraph.kg.errors import abridged
from locigraph.kg.types import SpaceId
from locigraph.retrieval.errors import TextEncoderError
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever
from locigraph.retrieval.stopwatch import Stopwatch
from locigraph.retrieval.wrapping import WrappingRetriever

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder


class CrossEncoderReranker:
    """Scores hits with a cross-encoder, which reads the query and the text of a hit together.

    Args:
        model: Hub name or directory of a sentence-transformers cross-encoder.
        depth: Number of the best hits to score again; the others keep their order behind them.

    Raises:
        TextEncoderError: If the model cannot be loaded or is no cross-encoder.
    """

    def __init__(self, model: str, *, depth: int = 50) -> None:
        self.depth = depth
        self._model = self._load(model)

    def rerank(self, query: str, hits: Sequence[Hit], texts: Sequence[str]) -> list[Hit]:
        """Hits in their new order, best first, with the cross-encoder's score as their score and as signal ``rerank``.

        Hits beyond ``depth`` keep the strategy's scores and order, and come last whatever their score.

        Args:
            query: The question.
            hits: Hits, best first.
            texts: Text of each hit that the cross-encoder reads, [hits].
        """
        head, tail = list(hits[: self.depth]), list(hits[self.depth :])
        if not head:
            return tail
        scores = self._model.predict([(query, text) for text in texts[: self.depth]], show_progress_bar=False)
        rescored = [
            replace(hit, score=float(score), signals={**hit.signals, "rerank": float(score)})
            for hit, score in zip(head, scores, strict=True)
        ]
        return sorted(rescored, key=lambda hit: (-hit.score, hit.node_id)) + tail

    def _load(self, model: str) -> CrossEncoder:
        from sentence_transformers import CrossEncoder
        from transformers import AutoConfig

        try:
            if not model:
                raise ValueError("its name is empty")
            config = AutoConfig.from_pretrained(model)
            heads = [name for name in config.architectures or () if name.endswith("ForSequenceClassification")]
            if not heads or config.num_labels != 1:  # otherwise the head would be random, or give several scores
                raise ValueError(
                    f"it is {config.architectures} with {config.num_labels} labels; a model with one score is needed"
                )
            return CrossEncoder(model)
        except (OSError, ValueError) as error:
            raise TextEncoderError(
                f"cross-encoder {model!r} cannot be loaded ({abridged(error)}); name a directory that holds one"
            ) from error


class RerankedRetriever(WrappingRetriever):
    """A strategy whose best hits are reranked.

    Args:
        retriever: The strategy; it is asked for at least as many hits as the reranker scores, and may supply the texts
            to score (see ``Retriever.reworded``).
        reranker: Scores the hits again.
    """

    def __init__(self, retriever: Retriever, reranker: CrossEncoderReranker) -> None:
        super().__init__(retriever)
        self._reranker = reranker

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """See ``Retriever``; reranking is timed as searching. Adds the signal ``rerank``, which is the hit's score."""
        result = self._retriever.retrieve(query, space, as_of=as_of, top_k=max(top_k, self._reranker.depth))
        watch = Stopwatch()
        hits = self._reranker.rerank(query, result.hits, self.reworded(result.hits, space, as_of))
        return Result(tuple(hits), result.timing + watch.timing())
