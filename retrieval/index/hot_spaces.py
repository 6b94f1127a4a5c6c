"""Copies in memory of the spaces that are in use, from which searches are answered without asking the index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.errors import NotKeptError
from locigraph.retrieval.index.memory_vectors import MemoryVectors
from locigraph.retrieval.index.milvus_collection import IndexRow
from locigraph.retrieval.protocols import GraphVectors, SearchFilter, VectorMatch

_MOST_BYTES = 2**30


class HotSpaces:
    """Whole spaces of one collection in memory, with an exact search; the least recently used ones make room.

    The index stays the system of record: a copy is made from what is written to it, or read from it; a change of a copy
    may come before it (``UnwrittenRows``).

    Args:
        most: Bytes that all copies may hold together. One that is larger by itself is not kept.
    """

    def __init__(self, *, most: int = _MOST_BYTES) -> None:
        self._most = most
        self._vectors = MemoryVectors()
        self._used: dict[SpaceId, None] = {}  # most recently used last
        #: By which key the index holds each node; one that was removed and made again has another than before.
        self._keys: dict[SpaceId, dict[NodeId, int]] = {}
        self._lock = RLock()

    def __contains__(self, space: SpaceId) -> bool:
        return space in self._used

    def put(self, space: SpaceId, snapshot: Snapshot, rows: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Keep a space: the given rows of its snapshot, with their vectors, float32 [rows, dim], and no others."""
        with self._replaced(space):
            self._vectors.add_nodes(space, snapshot, rows, vectors)
            self._keys[space] = _keys(snapshot, rows)

    def put_rows(self, space: SpaceId, rows: Sequence[tuple[IndexRow, NDArray[np.float32]]]) -> None:
        """Keep a space as an index holds it: its rows with their vectors."""
        matches = [(VectorMatch(row.node_id, row.type, row.turn_ids, 0.0), row.recorded_at) for row, _ in rows]
        with self._replaced(space):
            if rows:
                self._vectors.add(space, matches, np.stack([vector for _, vector in rows]))
            self._keys[space] = {row.node_id: row.node_key for row, _ in rows}

    @contextmanager
    def _replaced(self, space: SpaceId) -> Iterator[None]:
        """Drop what is kept of a space, and keep what is added within the block."""
        with self._lock:
            self.drop([space])
            yield
            self._used[space] = None
            self._make_room()

    def change(
        self,
        space: SpaceId,
        snapshot: Snapshot,
        rows: NDArray[np.int64],
        vectors: NDArray[np.float32],
        *,
        gone: Iterable[NodeId] = (),
    ) -> None:
        """Replace or add some rows of a space, and remove others; does nothing if the space is not kept."""
        with self._lock:
            if space in self._used:
                self._vectors.add_nodes(space, snapshot, rows, vectors)
                self._keys[space] |= _keys(snapshot, rows)
                for node_id in gone:
                    self._vectors.remove(space, node_id)
                    self._keys[space].pop(node_id, None)
                self._make_room()

    def vectors(self, space: SpaceId, nodes: Mapping[int, NodeId]) -> dict[int, NDArray[np.float32]]:
        """Kept vectors of some nodes, given by their keys and IDs, by key; none of nodes that had another key."""
        keys = self._keys.get(space, {})
        same = ((key, node_id) for key, node_id in nodes.items() if keys.get(node_id) == key)
        found = ((key, self._vectors.vector(space, node_id)) for key, node_id in same)
        return {key: vector for key, vector in found if vector is not None}

    def has_room(self, rows: int, dim: int) -> bool:
        """Whether a space of so many rows can be kept without dropping another."""
        with self._lock:
            held = sum(map(self._vectors.nbytes, self._used))
            return held + MemoryVectors.bytes_of(rows, dim) <= self._most

    def keep_only(self, spaces: Collection[SpaceId]) -> None:
        """Drop all other spaces."""
        known = {*spaces}
        with self._lock:
            self.drop([space for space in self._used if space not in known])

    def drop(self, spaces: Iterable[SpaceId]) -> None:
        """Do not keep these spaces any longer."""
        with self._lock:
            for space in spaces:
                self._used.pop(space, None)
                self._keys.pop(space, None)
                self._vectors.drop(space)

    def holds(self, spaces: Sequence[SpaceId]) -> bool:
        """Whether all of these spaces are kept, which then count as used."""
        with self._lock:
            if not all(space in self._used for space in spaces):
                return False
            for space in spaces:
                self._used[space] = self._used.pop(space)
            return True

    def search(self, vector: NDArray[np.float32], scope: SearchFilter, *, top_k: int) -> list[VectorMatch] | None:
        """The most similar rows, best first, ties by node ID; None if not all asked spaces are kept."""
        with self._lock:  # for both: a space that is dropped in between would have no rows
            if not self.holds([SpaceId(space) for space in scope.spaces]):
                return None
            return self._vectors.search(vector, scope, top_k=top_k)

    def _make_room(self) -> None:
        held = {space: self._vectors.nbytes(space) for space in self._used}
        room = self._most - sum(held.values())
        for space in list(held):
            if room >= 0:
                break
            self.drop([space])
            room += held[space]


def _keys(snapshot: Snapshot, rows: NDArray[np.int64]) -> dict[NodeId, int]:
    return {snapshot.ids[row]: int(snapshot.keys[row]) for row in rows.tolist()}


class HotSearch:
    """A collection, searched in memory where all asked spaces are kept there.

    Args:
        collection: The collection.
        hot: Copies of some of its spaces, as they are now.
        is_hot_only: Whether to raise NotKeptError instead of asking the index.
    """

    def __init__(self, collection: GraphVectors, hot: HotSpaces, *, is_hot_only: bool = False) -> None:
        self._collection, self._hot, self._is_hot_only = collection, hot, is_hot_only
        self.name, self.version = collection.name, collection.version

    def search(self, vector: NDArray[np.float32], scope: SearchFilter, *, top_k: int) -> list[VectorMatch]:
        """The most similar rows, best first; see ``GraphVectors``."""
        found = self._hot.search(vector, scope, top_k=top_k)
        if found is None and self._is_hot_only:
            raise NotKeptError
        return self._collection.search(vector, scope, top_k=top_k) if found is None else found
