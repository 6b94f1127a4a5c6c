"""Vector searches whose scope differs from that of the search below them: several spaces at once, or a past time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

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


class VectorsAsOf:
    """A vector search that compares a question as of a time with the nodes and wordings of that time.

    The vector index holds present wordings alone, and no node that was archived since.

    Args:
        present: Search over the present vectors.
        past: Returns the search over those of a time, or None if they are the present ones.
    """

    def __init__(self, present: VectorSearch, past: Callable[[SpaceId, datetime], VectorSearch | None]) -> None:
        self._present = present
        self._past = past

    def search(self, vector: NDArray[np.float32], scope: SearchFilter, *, top_k: int) -> list[VectorMatch]:
        """See ``VectorSearch``."""
        past = None
        if scope.as_of is not None and isinstance(scope.space, str):
            past = self._past(SpaceId(scope.space), scope.as_of)
        return (past or self._present).search(vector, scope, top_k=top_k)
