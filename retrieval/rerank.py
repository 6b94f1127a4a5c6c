"""Reranking: a network that reads question and text together scores the best hits of a strategy again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.errors import abridged
from locigraph.kg.types import SpaceId
from locigraph.retrieval.errors import TextEncoderError
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever
from locigraph.retrieval.stopwatch import Stopwatch
from locigraph.retrieval.wrapping import WrappingRetriever

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

    from locigraph.retrieval.text.pair_scorer import TrainedReranker


class Reranker(ABC):
    """Scores hits again.

    Attributes:
        depth: Number of the best hits that it reads.
    """

    depth: int

    def rerank(self, query: str, hits: Sequence[Hit], texts: Sequence[str]) -> list[Hit]:
        """Hits in their new order, best first, with the signal ``rerank``; those beyond ``depth`` come last.

        Args:
            query: The question.
            hits: Hits, best first.
            texts: Text of each hit that is read, [hits].
        """
        head, tail = list(hits[: self.depth]), list(hits[self.depth :])
        if not head:
            return tail
        scores, signals = self._read(query, head, texts[: self.depth])
        rescored = [
            replace(hit, score=float(score), signals={**hit.signals, "rerank": float(signal)})
            for hit, score, signal in zip(head, scores, signals, strict=True)
        ]
        ordered = sorted(rescored, key=lambda hit: (-hit.score, hit.node_id))
        # The scores of the others go on from the lowest, and a hit takes the confidence of its new place.
        down = ordered[-1].score - head[-1].score
        placed = [replace(hit, confidence=before.confidence) for hit, before in zip(ordered, head, strict=True)]
        return placed + [replace(hit, score=hit.score + down) for hit in tail]

    @abstractmethod
    def _read(self, query: str, hits: Sequence[Hit], texts: Sequence[str]) -> tuple[Sequence[float], Sequence[float]]:
        """The new score of each hit, and what the network gave for it."""


def combined(scores: NDArray[np.float64], others: NDArray[np.float64], *, weight: float) -> NDArray[np.float64]:
    """The sum of two scores of the same hits, both standardised, the second with a weight, float64 [hits]."""
    return _standardised(scores) + weight * _standardised(others)


def _standardised(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    standardised: NDArray[np.float64] = (scores - scores.mean()) / (scores.std() + 1e-6)
    return standardised


class LearntReranker(Reranker):
    """Adds the scores of a reranker that ``locigraph train-reranker`` has trained to those of the strategy.

    Of a long text it reads the part that shares most words with the question.

    Args:
        trained: The reranker.

    Raises:
        TextEncoderError: If its weights do not fit the text encoder.
    """

    def __init__(self, trained: TrainedReranker) -> None:
        self.depth = int(trained.settings["depth"])
        self._scorer = trained.scorer()
        self._reading = Lock()  # tokenisers are not thread-safe, and memories of one process share a reranker
        self._weight = float(trained.settings["weight"])

    def _read(self, query: str, hits: Sequence[Hit], texts: Sequence[str]) -> tuple[Sequence[float], Sequence[float]]:
        """A sum of standardised scores, which tells only the order; and the network's own."""
        import torch

        from locigraph.retrieval.text.pair_scorer import window_for

        with self._reading, torch.inference_mode():
            read = self._scorer([query] * len(texts), [window_for(query, text) for text in texts])
        others = read.double().numpy()
        scores = combined(np.array([hit.score for hit in hits]), others, weight=self._weight)
        return scores.tolist(), others.tolist()


class CrossEncoderReranker(Reranker):
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
        self._reading = Lock()  # see ``LearntReranker``

    def _read(self, query: str, hits: Sequence[Hit], texts: Sequence[str]) -> tuple[Sequence[float], Sequence[float]]:
        """The cross-encoder's scores, as both."""
        with self._reading:
            scores = self._model.predict([(query, text) for text in texts], show_progress_bar=False)
        return scores, scores

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

    def __init__(self, retriever: Retriever, reranker: Reranker) -> None:
        super().__init__(retriever)
        self._reranker = reranker

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """See ``Retriever``; reranking is timed as searching. Adds the signal ``rerank``: what the reranker gave."""
        result = self._retriever.retrieve(query, space, as_of=as_of, top_k=max(top_k, self._reranker.depth))
        watch = Stopwatch()
        hits = self._reranker.rerank(query, result.hits, self.reworded(result.hits, space, as_of))
        return Result(tuple(hits), result.timing + watch.timing())
