"""Rows that searches in memory find already, and that an embedded index gets later, many at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.types import SpaceId
from locigraph.retrieval.index.milvus_collection import Collection, IndexRow

#: So many rows are written together. Writing one durably takes longer than encoding it.
MOST_ROWS = 100


class UnwrittenRows:
    """Rows of changed turns that the collection lacks so far.

    Their changes stay listed in the store until the collection has them, so a process that dies leaves at most
    ``MOST_ROWS`` turns to be encoded again. Not thread-safe, except for ``reflects``.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[SpaceId, int], tuple[IndexRow, NDArray[np.float32]]] = {}  # by space and node key
        self._numbers: dict[SpaceId, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def reflects(self, space: SpaceId) -> int:
        """Number of the last change of a space that these rows reflect; 0 if none."""
        return self._numbers.get(space, 0)

    def add(self, space: SpaceId, number: int, rows: Sequence[IndexRow], vectors: NDArray[np.float32]) -> None:
        """Keep rows, float32 [rows, dim], in place of earlier ones of the same nodes.

        Args:
            space: The space.
            number: Number of the last change that they reflect.
            rows: The rows.
            vectors: Their vectors.
        """
        for row, vector in zip(rows, vectors, strict=True):
            self._rows[space, row.node_key] = row, vector
        self._numbers[space] = number

    def write_to(self, collection: Collection) -> dict[SpaceId, int]:
        """Write them, not yet durably; returns the number of the last change of each space, to be acknowledged.

        If that fails, nothing is forgotten.
        """
        if self._rows:
            rows, vectors = zip(*self._rows.values(), strict=True)
            collection.upsert(rows, np.stack(vectors))
        numbers = self._numbers
        self._rows, self._numbers = {}, {}
        return numbers

    def drop(self, space: SpaceId) -> None:
        """Keep nothing of a space: what it lacks is encoded again, since its changes are still listed."""
        if self._numbers.pop(space, None) is not None:
            self._rows = {key: row for key, row in self._rows.items() if key[0] != space}
