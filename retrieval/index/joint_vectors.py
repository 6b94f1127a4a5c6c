"""Vector search over several spaces at once, for strategies that search a single space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.types import SpaceId
from locigraph.retrieval.protocols import SearchFilter, VectorMatch, VectorSearch


class JointVectors:
    """A vector search that always covers the same spaces together, whatever space the filter names.

    Args:
        vectors: The underlying search.
        spaces: The spaces.
    """

    def __init__(self, vectors: VectorSearch, spaces: Sequence[SpaceId]) -> None:
        self._vectors = vectors
        self._spaces = tuple(spaces)

    def search(self, vector: NDArray[np.float32], scope: SearchFilter, *, top_k: int) -> list[VectorMatch]:
        """See ``VectorSearch``."""
        return self._vectors.search(vector, replace(scope, space=self._spaces), top_k=top_k)
