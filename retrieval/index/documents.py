"""The lexical arm: one BM25 index per space over the descriptions of its nodes."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.language.terms import terms
from locigraph.kg.schema import searchable_types
from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.types import NodeId, SpaceId, TurnId
from locigraph.retrieval.index.bm25 import Bm25Index
from locigraph.retrieval.protocols import SnapshotLoader

# Number of indexes as of past times that are kept, since questions about a conversation often share one ``as_of``.
_PAST_KEPT = 8


@dataclass(frozen=True, slots=True)
class Document:
    """A node as the lexical arm holds it; ``first`` and ``last`` bound the time it is about (``Snapshot.times``)."""

    node_id: NodeId
    type: str
    description: str
    turn_ids: tuple[TurnId, ...]
    recorded_at: int
    first: int = NO_TIME
    last: int = NO_TIME

    def touches(self, window: tuple[int, int]) -> bool:
        """Whether the time that it is about overlaps a window of seconds."""
        return self.first != NO_TIME and self.first <= window[1] and self.last >= window[0]


class _Space:
    def __init__(self) -> None:
        self.index: Bm25Index[NodeId] = Bm25Index()
        self.documents: dict[NodeId, Document] = {}
        # By row of the index, removed rows included. An array of numbers is read by NumPy without a copy.
        self.types = array("q")
        self.ids: list[NodeId] = []
        self._number_of: dict[str, int] = {}
        self.last_day: date | None = None

    def add(self, document: Document) -> None:
        self.index.add(document.node_id, terms(document.description))
        self.documents[document.node_id] = document
        self.types.append(self._number_of.setdefault(document.type, len(self._number_of)))
        self.ids.append(document.node_id)

    def of_types(self, types: Sequence[str]) -> NDArray[np.bool_]:
        """Whether each row is of one of the types."""
        wanted = np.fromiter((kind in types for kind in self._number_of), dtype=bool, count=len(self._number_of))
        return wanted[np.asarray(self.types)] if len(wanted) else np.zeros(0, dtype=bool)

    def remove(self, node_id: NodeId) -> None:
        if node_id in self.documents:
            self.index.remove(node_id)
            del self.documents[node_id]


class LexicalIndex:
    """BM25 over the nodes of each space; a space is loaded when it is first asked for, and then kept up to date by
    ``add`` and ``remove``.

    Args:
        load: Reads the graph of a space; embeddings are not used.
        types: Node types to hold; None for all searchable types.
    """

    def __init__(self, load: SnapshotLoader, *, types: Sequence[str] | None = None) -> None:
        self._load = load
        self._types = frozenset(searchable_types() if types is None else types)
        self._spaces: dict[SpaceId, _Space] = {}
        self._past: OrderedDict[tuple[SpaceId, datetime], _Space] = OrderedDict()

    @property
    def size(self) -> int:
        """Number of nodes held, summed over the present and all past times."""
        return sum(len(loaded.documents) for loaded in (*self._spaces.values(), *self._past.values()))

    def add(self, space: SpaceId, document: Document) -> None:
        """Add a node, or replace it."""
        if document.type in self._types:
            self._space(space).add(document)

    def remove(self, space: SpaceId, node_id: NodeId) -> None:
        """Remove a node; does nothing when the index does not hold it."""
        self._space(space).remove(node_id)

    def update(self, space: SpaceId, part: Snapshot, last_day: date | None) -> None:
        """Take over what has changed of a space that is loaded; indexes as of past times are loaded again.

        Args:
            space: The space.
            part: The nodes that are new or have changed, archived ones included, with all their source turns.
            last_day: The day of the last turn of the space.
        """
        for key in [key for key in self._past if key[0] == space]:
            del self._past[key]
        if (loaded := self._spaces.get(space)) is None:
            return
        loaded.last_day = last_day
        for row in np.flatnonzero(~part.active).tolist():
            loaded.remove(part.ids[row])
        for document in _documents(part, self._types):
            loaded.add(document)

    def drop(self, space: SpaceId) -> None:
        """Discard the indexes of a space; they are loaded again when next needed."""
        self._spaces.pop(space, None)
        for key in [key for key in self._past if key[0] == space]:
            del self._past[key]

    def load(self, space: SpaceId, as_of: datetime | None = None) -> None:
        """Load a space now rather than at its first search; does nothing when it is loaded."""
        self._space(space, as_of)

    def document(self, space: SpaceId, node_id: NodeId, *, as_of: datetime | None = None) -> Document | None:
        """A node as it was known at ``as_of`` (None: now); None when the index does not hold it."""
        return self._space(space, as_of).documents.get(node_id)

    def last_day(self, space: SpaceId, as_of: datetime | None = None) -> date | None:
        """The day of the last turn when the space was loaded; None if the space has no dates."""
        return self._space(space, as_of).last_day

    def search(
        self,
        query: str,
        space: SpaceId,
        *,
        types: Sequence[str] | None = None,
        as_of: datetime | None = None,
        only: frozenset[NodeId] | None = None,
        top_k: int,
    ) -> list[tuple[Document, float]]:
        """The nodes with the highest BM25 scores, best first, over the texts known at ``as_of`` (None: now).

        Nodes that share no term with the query are never among them. ``types`` and ``only``, the IDs of nodes, limit
        the search; None allows all.
        """
        loaded = self._space(space, as_of)
        allowed = np.ones(len(loaded.types), dtype=bool) if types is None else loaded.of_types(types)
        if only is not None:
            allowed &= np.fromiter((node in only for node in loaded.ids), dtype=bool, count=len(loaded.ids))
        scored = loaded.index.search(terms(query), top_k=top_k, allowed=allowed)
        return [(loaded.documents[node_id], score) for node_id, score in scored]

    def _space(self, space: SpaceId, as_of: datetime | None = None) -> _Space:
        if as_of is None:
            if space not in self._spaces:
                self._spaces[space] = self._read(space, None)
            return self._spaces[space]
        key = space, as_of
        if key not in self._past:
            self._past[key] = self._read(space, as_of)
            if len(self._past) > _PAST_KEPT:
                self._past.popitem(last=False)
        self._past.move_to_end(key)
        return self._past[key]

    def _read(self, space: SpaceId, as_of: datetime | None) -> _Space:
        loaded, snapshot = _Space(), self._load(space, as_of)
        loaded.last_day = snapshot.last_day
        for document in _documents(snapshot, self._types):
            loaded.add(document)
        return loaded


def _documents(snapshot: Snapshot, types: Collection[str]) -> Iterator[Document]:
    """The active nodes of some types, oldest first."""
    first, last = snapshot.times
    for row in snapshot.active_rows(types).tolist():
        yield Document(
            snapshot.ids[row], str(snapshot.types[row]), snapshot.descriptions[row], snapshot.turns_of[row],
            int(snapshot.recorded_at[row]), int(first[row]), int(last[row]),
        )  # fmt: skip
