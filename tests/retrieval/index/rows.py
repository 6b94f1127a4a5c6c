"""Rows and vectors for tests of the vector index."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.types import NodeId, TurnId
from locigraph.retrieval.index.milvus_collection import CollectionSpec, IndexRow

#: Describes the collections of most tests.
SPEC = CollectionSpec(8, "COSINE", "model", "schema")

#: Rows of the collection that tests of reading share, and the width of their vectors.
ROWS, DIM = 60, 8


def row(key: int, space: str = "harbor", *, kind: str = "episode", recorded_at: int = 0) -> IndexRow:
    return IndexRow(space, key, NodeId(f"n{key:03d}"), kind, recorded_at, (TurnId(f"t{key}"), TurnId("t,0")))


def random_vectors(count: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, DIM)).astype(np.float32)


def exact(query: NDArray[np.float32], vectors: NDArray[np.float32], metric: str) -> NDArray[np.float32]:
    if metric == "COSINE":
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        query = query / np.linalg.norm(query)
    scores: NDArray[np.float32] = vectors @ query
    return scores
