"""Optional second look at the best hits with a cross-encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from retrieval.errors import TextEncoderError
from retrieval.protocols import Hit

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder


class Reranker(Protocol):
    """Reorders hits."""

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The same hits, best first."""
        ...


class CrossEncoderReranker:
    """Scores query and description together.

    Args:
        model: Hub name or directory of a sentence-transformers cross-encoder.
        depth: How many of the best hits to rescore; the others keep their order behind them.
    """

    def __init__(self, model: str, *, depth: int = 50) -> None:
        self._name = model
        self._depth = depth
        self._model: CrossEncoder | None = None

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """Best first; the cross-encoder's score becomes the hit's score and signal ``rerank``."""
        head, tail = list(hits[: self._depth]), list(hits[self._depth :])
        if not head:
            return tail
        if self._model is None:
            self._model = self._load()
        scores = self._model.predict([(query, hit.description) for hit in head], show_progress_bar=False)
        rescored = [
            replace(hit, score=float(score), signals={**hit.signals, "rerank": float(score)})
            for hit, score in zip(head, scores, strict=True)
        ]
        return sorted(rescored, key=lambda hit: (-hit.score, hit.node_id)) + tail

    def _load(self) -> CrossEncoder:
        from sentence_transformers import CrossEncoder

        try:
            return CrossEncoder(self._name)
        except (OSError, ValueError) as error:
            raise TextEncoderError(
                f"cross-encoder {self._name!r} cannot be loaded ({str(error)[:200]}); name a directory that holds one"
            ) from error
