"""A vector search whose scope differs from that of the search below it: several spaces at once, or a past time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.types import SpaceId
from locigraph.retrieval.protocols import SearchFilter, VectorMatch, VectorSearch


class ScopedVectors:
    """A vector search that compares a question as of a time with the nodes and wordings of that time.

    The vector index holds present wordings alone, and no node that was archived since.

    Args:
        present: Search over the present vectors.
        past: Returns the search over those of a time, or None if they are the present ones.
        together: Spaces that are searched as one, whatever space the filter names; None for the space that it names.
    """

    def __init__(
        self,
        present: VectorSearch,
        past: Callable[[SpaceId, datetime], VectorSearch | None],
        together: Sequence[SpaceId] | None = None,
    ) -> None:
        self._present = present
        self._past = past
        self._together = None if together is None else tuple(together)

    def search(self, vector: NDArray[np.float32], scope: SearchFilter, *, top_k: int) -> list[VectorMatch]:
        """See ``VectorSearch``."""
        if scope.as_of is not None and isinstance(scope.space, str):
            past = self._past(SpaceId(scope.space), scope.as_of)
            if past is not None:
                return past.search(vector, scope, top_k=top_k)
        if self._together is not None:
            scope = replace(scope, space=self._together)
        return self._present.search(vector, scope, top_k=top_k)
