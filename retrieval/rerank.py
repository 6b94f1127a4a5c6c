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
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever, Timing
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
        read = self.read(query, texts[: self.depth])
        scores = self.scored(head, read)
        rescored = [
            replace(hit, score=float(score), signals={**hit.signals, "rerank": float(signal)})
            for hit, score, signal in zip(head, scores, read, strict=True)
        ]
        ordered = sorted(rescored, key=lambda hit: (-hit.score, hit.node_id))
        # The scores of the others go on from the lowest, and a hit takes the confidence of its new place.
        down = ordered[-1].score - head[-1].score
        placed = [replace(hit, confidence=before.confidence) for hit, before in zip(ordered, head, strict=True)]
        return placed + [replace(hit, score=hit.score + down) for hit in tail]

    @abstractmethod
    def read(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """What the network gives for each text, [texts]."""

    def scored(self, hits: Sequence[Hit], read: Sequence[float]) -> Sequence[float]:
        """The new score of each hit, [hits], from what the network gave for it: just this, unless overridden."""
        return read


class UnreadError(Exception):
    """Texts that a ``ReadAhead`` has yet to read.

    Attributes:
        texts: The texts.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__(f"{len(texts)} texts have to be read first")
        self.texts = texts


class ReadAhead(Reranker):
    """A reranker for one question that reads apart from reranking, so that no lock is held while it reads.

    ``rerank`` raises ``UnreadError`` for texts that ``read_ahead`` was not called with.

    Args:
        reranker: Reads and scores.
        query: The question.
    """

    def __init__(self, reranker: Reranker, query: str) -> None:
        self.depth = reranker.depth
        #: The time that reading took.
        self.timing = Timing(0, 0)
        self._reranker = reranker
        self._query = query
        self._read: dict[str, float] = {}

    def read_ahead(self, texts: Sequence[str]) -> None:
        """Read texts, which takes about half a second for fifty."""
        watch = Stopwatch()
        self._read.update(zip(texts, self._reranker.read(self._query, texts), strict=True))
        self.timing += watch.timing()

    def read(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """See ``Reranker``.

        Raises:
            UnreadError: If some have yet to be read.
        """
        unread = [text for text in texts if text not in self._read]
        if unread:
            raise UnreadError(unread)
        return [self._read[text] for text in texts]

    def scored(self, hits: Sequence[Hit], read: Sequence[float]) -> Sequence[float]:
        """See ``Reranker``."""
        return self._reranker.scored(hits, read)


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

    def read(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """See ``Reranker``."""
        import torch

        from locigraph.retrieval.text.pair_scorer import window_for

        with self._reading, torch.inference_mode():
            read = self._scorer([query] * len(texts), [window_for(query, text) for text in texts])
        given: list[float] = read.double().tolist()
        return given

    def scored(self, hits: Sequence[Hit], read: Sequence[float]) -> Sequence[float]:
        """A sum of standardised scores, which tells only the order."""
        scores: list[float] = combined(
            np.array([hit.score for hit in hits]), np.array(read), weight=self._weight
        ).tolist()
        return scores


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

    def read(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """See ``Reranker``."""
        with self._reading:
            scores: Sequence[float] = self._model.predict([(query, text) for text in texts], show_progress_bar=False)
        return scores

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
