"""A graph as arrays, which training, refresh and evaluation read instead of the store's tables."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.embedded_text import in_context, turns_before
from locigraph.kg.schema import EPISODE, dated_types
from locigraph.kg.times import moment
from locigraph.kg.types import NodeId, SpaceId, TurnId

#: Stands for "no time" in the snapshot's integer time arrays.
NO_TIME = np.iinfo(np.int64).min
_OBJECT_BYTES = 60  # of a string or tuple, without its content


@dataclass(frozen=True)
class Snapshot:
    """The graph of one space as it was known at a given time; node rows are ordered by key, hence by age.

    Attributes:
        space: The space that was read.
        keys: Integer keys of the nodes in the store, ascending, int64 [nodes].
        ids: Node ids, [nodes].
        types: Node type names, [nodes].
        labels: Short names, [nodes].
        descriptions: What the nodes say, [nodes]; see ``embedded_texts`` for what a text encoder reads.
        active: False for archived nodes, bool [nodes].
        recorded_at: Recorded time of the node, seconds since 1970, int64 [nodes].
        valid_from: Start of the valid time, seconds since 1970 or ``NO_TIME``, int64 [nodes].
        valid_to: End of the valid time in the same form, int64 [nodes].
        embeddings: float32 [nodes, dim]; dim is 0 when no model was named.
        source, target: Node rows of the edges' ends, int64 [edges].
        relations: Relation labels, [edges].
        families: Family of each relation label, which is what the graph network reads, [edges].
        weights: float32 [edges].
        turn_ids, speakers, session_ids: One entry for each turn, in conversation order, [turns].
        spoken_at: When each turn was said, seconds since 1970 or ``NO_TIME``, int64 [turns].
        provenance: Pairs (node row, turn row), int64 [pairs, 2], sorted.
    """

    space: SpaceId
    keys: NDArray[np.int64]
    ids: tuple[NodeId, ...]
    types: NDArray[np.str_]
    labels: tuple[str, ...]
    descriptions: tuple[str, ...]
    active: NDArray[np.bool_]
    recorded_at: NDArray[np.int64]
    valid_from: NDArray[np.int64]
    valid_to: NDArray[np.int64]
    embeddings: NDArray[np.float32]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    relations: NDArray[np.str_]
    families: NDArray[np.str_]
    weights: NDArray[np.float32]
    turn_ids: tuple[TurnId, ...]
    speakers: tuple[str, ...]
    session_ids: tuple[str, ...]
    spoken_at: NDArray[np.int64]
    provenance: NDArray[np.int64]

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.ids)

    def active_rows(self, types: Collection[str] | None = None) -> NDArray[np.int64]:
        """Rows of the active nodes, of all types or of some, ascending."""
        wanted = self.active if types is None else self.active & np.isin(self.types, list(types))
        return np.flatnonzero(wanted)

    @cached_property
    def row_of(self) -> dict[NodeId, int]:
        """Row number by node id."""
        return {node: row for row, node in enumerate(self.ids)}

    @cached_property
    def place_of(self) -> dict[TurnId, int]:
        """Index of each turn in the conversation, from 0."""
        return {turn: place for place, turn in enumerate(self.turn_ids)}

    @cached_property
    def turns_of(self) -> tuple[tuple[TurnId, ...], ...]:
        """Source turns of every node, in conversation order, [nodes]."""
        groups: list[list[TurnId]] = [[] for _ in self.ids]
        for node, turn in self.provenance.tolist():
            groups[node].append(self.turn_ids[turn])
        return tuple(tuple(group) for group in groups)

    @cached_property
    def episode_rows(self) -> NDArray[np.int64]:
        """Row number of each turn's episode, [turns]; -1 for a turn not yet consolidated."""
        rows = np.full(len(self.turn_ids), -1, dtype=np.int64)
        episodes = self.types[self.provenance[:, 0]] == EPISODE
        pairs = self.provenance[episodes]
        rows[pairs[:, 1]] = pairs[:, 0]
        return rows

    def embedded_texts(self, *, turn_before: bool) -> tuple[str, ...]:
        """What a text encoder reads for each node, [nodes]: see ``kg.embedded_text``.

        Args:
            turn_before: Whether the encoder reads a turn together with the one before it.
        """
        if not turn_before:
            return self.descriptions
        texts, rows = list(self.descriptions), self.episode_rows.tolist()
        places = turns_before(self.session_ids, np.where(self.spoken_at == NO_TIME, 0, self.spoken_at).tolist())
        for row, place in zip(rows, places, strict=True):
            if place is not None and row >= 0 and rows[place] >= 0:
                texts[row] = in_context(self.descriptions[row], self.descriptions[rows[place]])
        return tuple(texts)

    @cached_property
    def first_turn_place(self) -> NDArray[np.int64]:
        """Index of each node's first source turn in the conversation, [nodes]; the number of turns if it has none."""
        first = np.full(self.num_nodes, len(self.turn_ids), dtype=np.int64)
        np.minimum.at(first, self.provenance[:, 0], self.provenance[:, 1])
        return first

    @cached_property
    def times(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First and last second of the time that each node refers to, or ``NO_TIME``, [nodes].

        For turns and events this is the valid time; for all other nodes, the time of the first source turn.
        """
        spoken = np.append(self.spoken_at, NO_TIME)[self.first_turn_place]
        own = np.isin(self.types, dated_types()) & (self.valid_from != NO_TIME)
        first = np.where(own, self.valid_from, spoken)
        return first, np.where(own & (self.valid_to != NO_TIME), self.valid_to, first)

    @cached_property
    def last_day(self) -> date | None:
        """The day of the latest turn; None if no turn has a date."""
        latest = int(self.spoken_at.max(initial=NO_TIME))
        return None if latest == NO_TIME else moment(latest).date()

    @cached_property
    def nbytes(self) -> int:
        """About how many bytes of memory the snapshot holds."""
        arrays = sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))
        texts = sum(map(len, self.descriptions)) + sum(map(len, self.labels))
        return arrays + texts + _OBJECT_BYTES * (4 * self.num_nodes + 3 * len(self.turn_ids))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that vectors are made from: nodes, edges, texts, embeddings, times; 12 hexadecimal digits."""
        digest = hashlib.sha256()
        for array in (
            self.keys, self.active, self.valid_from, self.valid_to, self.embeddings,
            self.source, self.target, self.weights, self.spoken_at, self.provenance,
        ):  # fmt: skip
            digest.update(np.ascontiguousarray(array).tobytes())
        for texts in (self.ids, self.descriptions, self.types, self.relations, self.speakers):
            digest.update("\x1f".join(texts).encode())
        return digest.hexdigest()[:12]
