"""The indexes of spaces that are held in memory, and how they are kept from one question to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from locigraph.kg.joint import side_by_side
from locigraph.kg.schema import EPISODE
from locigraph.kg.types import SpaceId

if TYPE_CHECKING:
    from locigraph.kg.snapshot import Snapshot
    from locigraph.kg.store import Store
    from locigraph.retrieval.index.documents import LexicalIndex
    from locigraph.retrieval.index.memory_vectors import MemoryVectors
    from locigraph.retrieval.index.milvus import Collection
    from locigraph.retrieval.text.text_encoder import CachedTextEncoder

# An index of words, or of vectors, takes about 2 KB for each node.
_NODES_KEPT = 50_000


class SpaceIndexes:
    """Indexes of spaces in memory; each is made when first used, and holds the spaces as they were then.

    Args:
        store: The graph.
        spaces: The spaces.
        is_joint: Whether they are one graph, see ``SearchParts``.

    Attributes:
        complete: The collection of the vector index that was found to hold all of the spaces; None if none was yet.
    """

    def __init__(self, store: Store, spaces: Sequence[SpaceId], *, is_joint: bool = False) -> None:
        self._store, self._spaces, self._is_joint = store, spaces, is_joint
        self.complete: Collection | None = None
        self._last: tuple[SpaceId, datetime | None, Snapshot] | None = None
        self._words: dict[tuple[str, ...] | None, LexicalIndex] = {}  # by node types
        self._vectors: dict[str, MemoryVectors] = {}

    def snapshot(self, space: SpaceId, as_of: datetime | None, model: str | None = None) -> Snapshot:
        """The graph of a space, or of all of them side by side where they are one.

        The last one that was read without embeddings is kept, since a budget needs the one that words are indexed from.
        """
        if model is None and self._last is not None and self._last[:2] == (space, as_of):
            return self._last[2]
        read = self._spaces if self._is_joint else [space]
        parts = [self._store.snapshot(each, as_of=as_of, embedding_model=model) for each in read]
        found = side_by_side(parts, space) if self._is_joint else parts[0]
        if model is None:
            self._last = space, as_of, found
        return found

    @property
    def words(self) -> LexicalIndex:
        """BM25 over all searchable nodes."""
        return self._words_of(None)

    @property
    def words_of_turns(self) -> LexicalIndex:
        """BM25 over turns alone: what is common in facts must not weigh on the words of turns."""
        return self._words_of((EPISODE,))

    def _words_of(self, types: tuple[str, ...] | None) -> LexicalIndex:
        from locigraph.retrieval.index.documents import LexicalIndex

        if types not in self._words:
            self._words[types] = LexicalIndex(self.snapshot, types=types)
        return self._words[types]

    def vectors(self, encoder: CachedTextEncoder) -> MemoryVectors:
        """The description embeddings of a text encoder, which the store must hold."""
        from locigraph.retrieval.index.memory_vectors import MemoryVectors

        found = self._vectors.get(encoder.model_id)
        if found is None:
            found = MemoryVectors()
            for space in self._spaces:
                found.add_snapshot(self._store.snapshot(space, embedding_model=encoder.model_id))
            self._vectors[encoder.model_id] = found  # not before it is whole
        return found

    @property
    def size(self) -> int:
        """Number of nodes that are held, each counted once for every index that holds it."""
        last = 0 if self._last is None else self._last[2].num_nodes
        words, vectors = self._words.values(), self._vectors.values()
        return last + sum(index.size for index in words) + sum(index.size for index in vectors)


class KeptIndexes:
    """Keeps the indexes of spaces from one question to the next, as long as the spaces do not change.

    It asks the store each time whether a space has changed, so whatever was added or forgotten before a question is
    asked, by this process or another, is seen by it. Nothing here is guarded against several threads.

    Args:
        store: The graph.
        most: Number of nodes in all indexes from which those that were not asked for longest are dropped. Those of the
            last question stay, whatever their size.
    """

    def __init__(self, store: Store, *, most: int = _NODES_KEPT) -> None:
        self._store, self._most = store, most
        self._kept: dict[tuple[bool, tuple[SpaceId, ...]], tuple[object, SpaceIndexes]] = {}  # used last at the end

    def of(self, spaces: Sequence[SpaceId], *, is_joint: bool) -> SpaceIndexes:
        """The indexes of spaces as they are now."""
        key = is_joint, tuple(spaces)
        versions = self._store.versions(spaces)  # before anything is read: a change from here on outdates what is made
        known, found = self._kept.pop(key, (None, None))
        if found is None or known != versions:
            found = SpaceIndexes(self._store, spaces, is_joint=is_joint)
        room = self._most
        for other in reversed(list(self._kept)):
            room -= self._kept[other][1].size
            if room < found.size:
                del self._kept[other]
        self._kept[key] = versions, found
        return found

    def drop(self, spaces: Iterable[SpaceId]) -> None:
        """Keep nothing of spaces, of which something is forgotten."""
        gone = {*spaces}
        for key in [key for key in self._kept if gone.intersection(key[1])]:
            del self._kept[key]
