"""In-memory indexes of spaces, and a cache that keeps them from one question to the next.

After a change only what has changed is read, so that the cost of a turn does not grow with its space.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from locigraph.kg.errors import InvalidVectorError
from locigraph.kg.joint import side_by_side
from locigraph.kg.schema import EPISODE, searchable_types
from locigraph.kg.times import epoch
from locigraph.kg.types import SpaceId
from locigraph.retrieval.text.node_vectors import snapshot_with_vectors

if TYPE_CHECKING:
    from locigraph.kg.snapshot import Snapshot
    from locigraph.kg.store import Store
    from locigraph.retrieval.index.documents import LexicalIndex
    from locigraph.retrieval.index.memory_vectors import MemoryVectors
    from locigraph.retrieval.index.milvus_collection import Collection
    from locigraph.retrieval.text.text_encoder import CachedTextEncoder

# An index of words, or of vectors, takes about 2 KB for each node.
_NODES_KEPT = 50_000


class SpaceIndexes:
    """Indexes of spaces in memory; each is made when first used.

    Args:
        store: The graph.
        spaces: The spaces.
        is_joint: Whether the spaces are searched as one graph; see ``SearchParts``.

    Attributes:
        complete: Collection of the vector index that was found to hold all rows of the spaces; None if none was yet.
        unproven: Nodes that have changed since, by space and key.
    """

    def __init__(self, store: Store, spaces: Sequence[SpaceId], *, is_joint: bool = False) -> None:
        self._store, self._spaces, self._is_joint = store, spaces, is_joint
        self.complete: Collection | None = None
        self.unproven: set[tuple[str, int]] = set()
        self._changed = 0  # nodes that were taken over since the indexes were made
        self._last: tuple[SpaceId, datetime | None, Snapshot] | None = None
        self._words: dict[tuple[str, ...] | None, LexicalIndex] = {}  # by node types
        self._vectors: dict[str, MemoryVectors] = {}
        self._past: tuple[SpaceId, datetime, str, MemoryVectors] | None = None

    def snapshot(self, space: SpaceId, as_of: datetime | None, encoder: CachedTextEncoder | None = None) -> Snapshot:
        """The graph of a space, or of all spaces side by side if they are searched as one.

        It has the embeddings of the encoder, if one is given. The last one read without embeddings is kept, since
        packing a context needs the one that was indexed for BM25.
        """
        if encoder is None and self._last is not None and self._last[:2] == (space, as_of):
            return self._last[2]
        read = self._spaces if self._is_joint else [space]
        parts = [self._read(each, as_of, encoder) for each in read]
        found = side_by_side(parts, space) if self._is_joint else parts[0]
        if encoder is None:
            self._last = space, as_of, found
        return found

    def _read(self, space: SpaceId, as_of: datetime | None, encoder: CachedTextEncoder | None) -> Snapshot:
        if encoder is None:
            return self._store.snapshot(space, as_of=as_of)
        return snapshot_with_vectors(self._store, space, encoder, as_of=as_of)

    @property
    def words(self) -> LexicalIndex:
        """BM25 over all searchable nodes."""
        return self._words_of(None)

    @property
    def words_of_turns(self) -> LexicalIndex:
        """BM25 over turns alone, so that word frequencies in facts do not change the weights of words in turns."""
        return self._words_of((EPISODE,))

    def _words_of(self, types: tuple[str, ...] | None) -> LexicalIndex:
        from locigraph.retrieval.index.documents import LexicalIndex

        if types not in self._words:
            self._words[types] = LexicalIndex(self.snapshot, types=types)
        return self._words[types]

    def vectors(self, encoder: CachedTextEncoder) -> MemoryVectors:
        """The description embeddings of a text encoder."""
        from locigraph.retrieval.index.memory_vectors import MemoryVectors

        found = self._vectors.get(encoder.model_id)
        if found is None:
            found = MemoryVectors()
            for space in self._spaces:
                found.add_snapshot(self._read(space, None, encoder))
            self._vectors[encoder.model_id] = found  # only once it is complete
        return found

    def past_vectors(self, space: SpaceId, as_of: datetime, encoder: CachedTextEncoder) -> MemoryVectors | None:
        """The description embeddings as of a time, of the wordings of that time; the last ones read are kept.

        None if nothing was said after that time, so that the present ones are the same.
        """
        from locigraph.retrieval.index.memory_vectors import MemoryVectors

        spoken = (self._last_spoken.get(each) for each in (self._spaces if self._is_joint else [space]))
        if all(last is None or epoch(as_of) >= epoch(last) for last in spoken):
            return None
        if self._past is None or self._past[:3] != (space, as_of, encoder.model_id):
            made = MemoryVectors()
            made.add_snapshot(self.snapshot(space, as_of, encoder))
            self._past = space, as_of, encoder.model_id, made
        return self._past[3]

    @cached_property
    def _last_spoken(self) -> dict[SpaceId, datetime | None]:
        return self._store.last_spoken(self._spaces)

    def updated(self, versions: Mapping[SpaceId, tuple[int, int]]) -> bool:
        """Take over what has changed of a single space since its version was read; False if it has to be read anew."""
        if self._is_joint or len(self._spaces) != 1:
            return False
        (space,) = self._spaces
        if space not in versions:
            return False
        part = self._store.part_since(space, versions[space][0], types=searchable_types())
        if part is None or len(part.nodes) > self._room():
            return False
        self._changed += len(part.nodes)
        self._last = self._past = None
        vars(self).pop("_last_spoken", None)
        last = self._last_spoken.get(space)
        snapshot = self._store.snapshot(space, part=part)
        self.unproven |= self._rewritten(space, snapshot)
        for words in self._words.values():
            words.update(space, snapshot, None if last is None else last.date())
        for model, vectors in [*self._vectors.items()]:
            try:
                vectors.update(self._store.snapshot(space, part=part, embedding_model=model))
            except InvalidVectorError:  # beside a writer, which makes an adapter's vectors later
                del self._vectors[model]
        return True

    def _rewritten(self, space: SpaceId, part: Snapshot) -> set[tuple[str, int]]:
        """The nodes of which a vector index needs another row; those that only gained source turns keep theirs."""
        words = self._words.get(None)
        found: set[tuple[str, int]] = set()
        for row in range(part.num_nodes):
            known = None if words is None else words.document(space, part.ids[row])
            if known is None or not part.active[row] or known.description != part.descriptions[row]:
                found.add((space, int(part.keys[row])))
        return found

    def _room(self) -> int:
        """Number of changed nodes that may be taken over: what they replace stays in an index of words as dead rows."""
        held = [each.size for each in self._words.values()] + [each.size for each in self._vectors.values()]
        return max(held, default=0) - self._changed

    @property
    def size(self) -> int:
        """Number of nodes that are held, each counted once for every index that holds it."""
        last = 0 if self._last is None else self._last[2].num_nodes
        last += 0 if self._past is None else self._past[3].size
        words, vectors = self._words.values(), self._vectors.values()
        return last + sum(index.size for index in words) + sum(index.size for index in vectors)


class KeptIndexes:
    """A cache of the indexes of spaces, which take over what changes, or are made anew; not thread-safe.

    It asks the store each time whether a space has changed, so that a question sees everything that this process or
    another has added or forgotten before it.

    Args:
        store: The graph.
        most: Number of nodes in all indexes above which the least recently used ones are dropped. Those of the last
            question stay, whatever their size.
    """

    def __init__(self, store: Store, *, most: int = _NODES_KEPT) -> None:
        self._store, self._most = store, most
        # By whether spaces are searched as one, and the spaces; those used last at the end.
        self._kept: dict[tuple[bool, tuple[SpaceId, ...]], tuple[Mapping[SpaceId, tuple[int, int]], SpaceIndexes]] = {}

    def of(self, spaces: Sequence[SpaceId], *, is_joint: bool) -> SpaceIndexes:
        """The indexes of spaces as they are now."""
        key = is_joint, tuple(spaces)
        versions = self._store.versions(spaces)  # read first, so that later changes make the indexes outdated
        known, found = self._kept.pop(key, ({}, None))
        if found is None or (known != versions and not found.updated(known)):
            found = SpaceIndexes(self._store, spaces, is_joint=is_joint)
        room = self._most
        for other in reversed(list(self._kept)):
            room -= self._kept[other][1].size
            if room < found.size:
                del self._kept[other]
        self._kept[key] = versions, found
        return found

    def drop(self, spaces: Iterable[SpaceId]) -> None:
        """Drop the indexes of spaces from which something is forgotten."""
        gone = {*spaces}
        for key in [key for key in self._kept if gone.intersection(key[1])]:
            del self._kept[key]
