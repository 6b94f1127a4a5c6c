"""Exact vector search in memory, for consolidation, which searches while it writes, and for some baselines.

Milvus Lite takes about 17 ms per thousand rows that are not yet flushed, and while a graph grows turn by turn no row is
flushed. A matrix product takes microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from locigraph.kg import products
from locigraph.kg.joint import by_space
from locigraph.kg.schema import searchable_types
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.times import epoch
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.protocols import SearchFilter, VectorMatch

_BLOCK = 16
_FEW = 8  # of so many rows one has to be searched for, to look up which these are
_ROW_BYTES = 500  # of a row's objects, without its vector


class MemoryVectors:
    """Rows of several spaces; the similarity is the cosine, which is the inner product since vectors have length 1."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[VectorMatch, int]]] = {}
        self._position: dict[str, dict[NodeId, int]] = {}
        #: By space, [dim, capacity]: a dimension of all vectors lies together, since a search reads those alone that a
        #: question has. Of the words' share of v2's vectors, which is most of them, these are a dozen.
        self._room: dict[str, NDArray[np.float32]] = {}

    @property
    def size(self) -> int:
        """Number of rows."""
        return sum(map(len, self._rows.values()))

    def add(self, space: str, rows: Sequence[tuple[VectorMatch, int]], vectors: NDArray[np.float32]) -> None:
        """Write rows, replacing those of the same node.

        Args:
            space: Space that the rows belong to.
            rows: For each row, the match that a search returns (its score is not used) and its node's recorded time.
            vectors: Embeddings of length 1, float32 [rows, dim].
        """
        if not rows:
            return
        present, position = self._rows.setdefault(space, []), self._position.setdefault(space, {})
        room = self._room.get(space)
        needed = len(present) + len(rows)
        if room is None or needed > room.shape[1]:
            grown = np.zeros((vectors.shape[1], _capacity(needed)), dtype=np.float32)
            if room is not None:
                grown[:, : len(present)] = room[:, : len(present)]
            room = self._room[space] = grown
        places = []
        for row in rows:
            at = position.setdefault(row[0].node_id, len(present))
            if at == len(present):
                present.append(row)
            else:
                present[at] = row
            places.append(at)
        room[:, places] = vectors.T

    def add_snapshot(self, snapshot: Snapshot, *, types: Sequence[str] | None = None) -> None:
        """Write the active nodes of a space.

        Args:
            snapshot: Graph of the space, with embeddings.
            types: Types of the nodes to write; None for all searchable types.
        """
        rows = snapshot.active_rows(searchable_types() if types is None else types)
        self.add_nodes(str(snapshot.space), snapshot, rows, snapshot.embeddings[rows])

    def add_nodes(self, space: str, snapshot: Snapshot, rows: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Write some nodes of a snapshot.

        Args:
            space: Name under which they are found: the space, or a view of it.
            snapshot: The graph.
            rows: Rows of the nodes in the snapshot.
            vectors: Their vectors, float32 [rows, dim].
        """
        matches = [
            (
                VectorMatch(snapshot.ids[row], str(snapshot.types[row]), snapshot.turns_of[row], 0.0),
                int(snapshot.recorded_at[row]),
            )
            for row in rows.tolist()
        ]
        self.add(space, matches, vectors)

    def update(self, part: Snapshot) -> None:
        """Take over what has changed of a space: nodes that are new or have changed, with embeddings if active."""
        for row in np.flatnonzero(~part.active).tolist():
            self.remove(str(part.space), part.ids[row])
        self.add_snapshot(part)

    def vector(self, space: str, node_id: NodeId) -> NDArray[np.float32] | None:
        """The vector of a node, float32 [dim]; None when there is none."""
        at = self._position.get(space, {}).get(node_id)
        return None if at is None else self._room[space][:, at].copy()

    def nbytes(self, space: str) -> int:
        """About how many bytes the rows of a space hold."""
        room = self._room.get(space)
        return 0 if room is None else room.nbytes + _ROW_BYTES * len(self._rows[space])

    @staticmethod
    def bytes_of(rows: int, dim: int) -> int:
        """About how many bytes a space of so many rows would hold."""
        return _capacity(rows) * dim * 4 + _ROW_BYTES * rows

    def remove(self, space: str, node_id: NodeId) -> None:
        """Remove the row of a node; does nothing when there is none."""
        at = self._position.get(space, {}).pop(node_id, None)
        if at is None:
            return
        present, room = self._rows[space], self._room[space]
        last = present.pop()
        if at < len(present):  # the last row takes its place
            present[at], room[:, at] = last, room[:, len(present)]
            self._position[space][last[0].node_id] = at

    def drop(self, space: str) -> None:
        """Remove all rows of a space."""
        for held in (self._rows, self._position, self._room):
            held.pop(space, None)

    def search(self, vector: NDArray[np.float32], scope: SearchFilter, *, top_k: int) -> list[VectorMatch]:
        """The most similar rows in the scope's spaces, best first; ties by node ID."""
        if not isinstance(scope.space, str):
            named = None if scope.only is None else by_space(scope.only)
            joint = [
                match.named_in(space)
                for space in scope.space
                for match in self.search(vector, replace(scope, space=space, only=_of(named, space)), top_k=top_k)
            ]
            return sorted(joint, key=lambda match: (-match.score, match.node_id))[:top_k]
        rows = self._rows.get(scope.space, [])
        if not rows:
            return []
        # Of whole blocks, at whose ends processors round otherwise: equal vectors are to have equal scores.
        blocks = self._room[scope.space][:, : len(rows) + -len(rows) % _BLOCK]
        scores = products.with_columns(blocks, vector, block=_BLOCK)[: len(rows)]
        latest = None if scope.as_of is None else epoch(scope.as_of)
        matches: list[VectorMatch] = []
        only = scope.only
        # Building a result for every row would outlast the search.
        if only is None or len(only) > len(rows) // _FEW:
            order = _best_first(scores, top_k)
        else:
            position = self._position[scope.space]
            order = _best_of(scores, [position[node] for node in only if node in position], top_k)
        for at in order:
            row, recorded_at = rows[at]
            if only is not None and row.node_id not in only:
                continue
            score = float(scores[at])
            if matches and len(matches) >= top_k and score < matches[-1].score:
                break
            if (scope.types is None or row.type in scope.types) and (latest is None or recorded_at <= latest):
                matches.append(VectorMatch(row.node_id, row.type, row.turn_ids, score))
        return sorted(matches, key=lambda match: (-match.score, match.node_id))[:top_k]


def _of(named: Mapping[SpaceId, Sequence[NodeId]] | None, space: str) -> frozenset[NodeId] | None:
    """The nodes of a space among those to which a search of several is limited."""
    return None if named is None else frozenset(named.get(SpaceId(space), ()))


def _capacity(rows: int) -> int:
    """Rows for which there is room once there are so many: some more, so that adding one seldom copies them."""
    wanted = rows + rows // 4 + 8
    return wanted + -wanted % _BLOCK


def _best_of(scores: NDArray[np.float32], places: Sequence[int], top_k: int) -> Iterator[int]:
    """Some positions of the scores, highest first, then by position."""
    among = np.sort(np.array(places, dtype=np.int64))
    for at in _best_first(scores[among], top_k):
        yield int(among[at])


def _best_first(scores: NDArray[np.float32], top_k: int) -> Iterator[int]:
    """Positions of the scores, highest first, then by position; sorting all of them would outlast the search."""
    count = 4 * top_k + 64  # more than top_k, since not all rows are of the types and the time that are asked for
    some = np.ones(len(scores), dtype=bool)
    if count < len(scores):
        some = scores > -np.partition(-scores, count)[count]
    for part in (some, ~some):  # the second is sorted only if the first is not enough
        places = np.flatnonzero(part)
        yield from places[np.argsort(-scores[places], kind="stable")].tolist()
