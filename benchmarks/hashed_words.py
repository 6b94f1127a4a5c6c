"""A text encoder that runs no model: for measurements of everything but the encoding of texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.language.terms import terms
from locigraph.retrieval.text.text_encoder import CachedTextEncoder

#: Width of its vectors.
DIM = 384


class HashedWords(CachedTextEncoder):
    """A text encoder whose vectors are sums of hashed words."""

    def load(self) -> None:
        """Nothing to load."""

    def _run(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), DIM), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for term in terms(text) or [text]:
                row[sum(map(ord, term)) * 7919 % DIM] += 1
        unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit
