"""Keeps the graph embeddings that v2 searches up to date while the graph grows.

The store lists every space that has changed since it was embedded. A space is taken off the list only after the index
has flushed its vectors, and writing them is idempotent, so a crash at any point costs at most repeated work.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from locigraph.gnn.sketch import LexicalStatistics
from locigraph.kg.byte_cache import ByteCache
from locigraph.kg.counts import Counts, counted
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.errors import UnknownSpaceError
from locigraph.kg.schema import EPISODE, schema_hash
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.store.standing import Standing
from locigraph.kg.types import SpaceId
from locigraph.kg.views import View
from locigraph.retrieval.errors import IndexMismatchError
from locigraph.retrieval.index.descriptions import Difference, snapshot_rows
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS, REFRESH_LOCK
from locigraph.retrieval.index.hot_spaces import HotSearch, HotSpaces
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_collection import Collection
from locigraph.retrieval.index.unwritten_rows import MOST_ROWS, UnwrittenRows
from locigraph.retrieval.protocols import GraphVectors
from locigraph.retrieval.text.node_vectors import embed_lacking, embedded_snapshot, snapshot_with_vectors
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.embedding_refresh import (
    Refreshed,
    ViewState,
    ViewWriter,
    put_in_use,
    refresh,
    require_usable,
)
from locigraph.training.errors import StaleEmbeddingsError
from locigraph.training.inference import encode_anew, encode_graph

#: Scores in use are off by at most this share of their largest possible value.
TOLERANCE = 1e-3
# How far another summation order, or storage in an index, may move a vector, as a share of its length.
_ROUNDING = 1e-4
# Up to so many spaces are counted one by one; for more, all rows of the collection are counted at once.
_COUNTED_ONE_BY_ONE = 3
#: The words of a space are counted again, and all its turns encoded, when it has so many times the turns of last time.
#: Right before that v2 finds as much as with fresh counts (docs/results/word-counts-locomo.json).
RENEWED_AT = 1.25
# A change that reaches more nodes than this is not worth finding them: the space is encoded as a whole.
_MOST_REACHED = 4_000
_STATISTICS_BYTES = 64 * 2**20
_Vectors = dict[int, NDArray[np.float32]]  # by node key


@dataclass(frozen=True)
class Drift(Counts):
    """How far the graph embeddings in use are from those that a checkpoint computes for the current graph.

    Attributes:
        turns: Number of turns that should have a vector.
        missing: Number of turns without a vector.
        surplus: Number of rows whose turn no longer exists.
        moves: For each turn whose vector differs, the cosine distance between the vector in use and the current one.
    """

    turns: int = 0
    missing: int = 0
    surplus: int = 0
    moves: tuple[float, ...] = ()

    @property
    def stale(self) -> int:
        """Number of turns whose vector differs."""
        return len(self.moves)

    @property
    def share(self) -> float:
        """Share of the turns whose vector is missing or differs; 0 without turns."""
        return (self.missing + self.stale) / max(1, self.turns)

    @property
    def distances(self) -> dict[str, float]:
        """Median, 95th percentile and maximum of the distances in ``moves``; all 0 if no vector differs."""
        moves = self.moves or (0.0,)
        return {"median": float(np.median(moves)), "p95": float(np.percentile(moves, 95)), "max": max(moves)}


class LiveEmbeddings:
    """The collection of graph embeddings that is in use.

    A change moves the vectors of the turns that its edges reach, and these alone are encoded again. The weight of a
    word, which depends on how often it occurs in the whole space, stays what it was when the words of the space were
    last counted. They are counted again, and the space is encoded as a whole, when it has ``RENEWED_AT`` times as many
    turns, so that the cost of a turn does not grow with the space; and when something is forgotten. Right after that,
    the collection is what a full refresh would write, up to the tolerance, whatever has been appended or forgotten in
    between.

    Spaces that are written, or searched for the second time, are also kept in memory and searched there. An embedded
    index gets what changes in such spaces later, many rows at once.

    Args:
        store: The graph.
        index: Vector index that holds, or will hold, the collection.
        checkpoint: The checkpoint that encodes.
        encoder: The text encoder that the checkpoint names.
        device: Device on which graphs are encoded.
        tolerance: A turn's vector is written again if it would move by more than this share of its length.
    """

    def __init__(
        self,
        store: Store,
        index: MilvusIndex,
        checkpoint: Checkpoint,
        encoder: TextEncoder,
        *,
        device: str = "cpu",
        tolerance: float = TOLERANCE,
    ) -> None:
        self._store = store
        self._index = index
        self.checkpoint = checkpoint
        self.version = checkpoint.version
        self._encoder = encoder
        self._device = device
        self._tolerance = tolerance
        self._last = _LastWritten()
        self._was_in_use = False  # whether a collection of this checkpoint was, as far as this process has seen

    def update(self, *, progress: str | None = None, writer: ViewWriter | None = None) -> int:
        """Encode and write the spaces that have changed, or all if no collection of this checkpoint is in use.

        Returns:
            Number of spaces that were written. A full refresh shows a progress bar if it is given a name, and uses the
            ``writer``.
        """
        spaces = self._store.spaces()
        self._last.hot.keep_only(spaces)
        if not spaces:
            return 0
        collection = self._in_use()
        if collection is None:
            if self._refreshed(progress=progress, writer=writer, is_first=True) is not None:
                return len(spaces)
            collection = self._required()
        collection, written = self._write_due(collection, spaces)
        self._write_out(collection)
        return written

    def due(self, changed: Mapping[SpaceId, int]) -> list[SpaceId]:
        """The spaces among changed ones, each with the number of its last change, that searches have to wait for."""
        return [space for space, number in changed.items() if number > self._last.unwritten.reflects(space)]

    def current(self, standings: Mapping[SpaceId, Standing]) -> GraphVectors:
        """Bring the collection up to date for some spaces and return it; make it if this checkpoint has none in use.

        Args:
            standings: The spaces, and how they stand: those that stand as they did when they were last brought up to
                date here still are.
        """
        last = self._last.collection
        # Forgetting clears an embedded index, also of the spaces from which nothing was forgotten.
        if last is not None and self._index.is_open(GRAPH_ALIAS, last) and self.are_settled(standings):
            return self._searchable(last, [*standings])
        spaces, collection = [*standings], self._in_use()
        if collection is None:
            self._refreshed(is_first=True)
            collection = self._required()  # another process may have added turns since, which are due again
        found = self._searchable(self._write_due(collection, spaces)[0], spaces)
        if self._index.is_embedded:  # no other process writes to it
            self._last.settled |= standings
        return found

    def held(self, standings: Mapping[SpaceId, Standing]) -> GraphVectors | None:
        """The collection for searches of spaces that are settled and kept in memory; None if not all are."""
        last = self._last  # one and the same, whatever another thread puts in its place
        if last.collection is None or not last.are_settled(standings) or not last.hot.holds([*standings]):
            return None
        return HotSearch(last.collection, last.hot, is_hot_only=True)

    def are_settled(self, standings: Mapping[SpaceId, Standing]) -> bool:
        """Whether nothing has changed in spaces that stand so, and nothing is due, since they were last searched."""
        return self._last.are_settled(standings)

    def refresh(self, *, progress: str | None = None, writer: ViewWriter | None = None) -> Refreshed:
        """Encode every space into a new collection, put it in use, and add what arrived in the meantime.

        Meanwhile other processes go on with the collection in use. What they wrote to it only is listed as changed at
        the moment at which the new one takes its place, and at that moment none of them writes.

        Args:
            progress: Name on the progress bar; None shows none.
            writer: Writes the spaces, such as with several processes; None to do so in this one.

        Raises:
            IndexMismatchError: If the graph embeddings in use belong to another store.
        """
        done = self._refreshed(progress=progress, writer=writer)
        assert done is not None
        return done

    def _refreshed(
        self, *, progress: str | None = None, writer: ViewWriter | None = None, is_first: bool = False
    ) -> Refreshed | None:
        """See ``refresh``; with ``is_first`` nothing is done, and None returned, if another process was faster."""
        with self._store.held(REFRESH_LOCK):
            found = self._in_use() if is_first else self._of_this_store()
            if is_first and found is not None:
                return None
            spaces, forgotten = self._store.spaces(), self._store.forgotten_count()
            due, before = self._store.changed_spaces(), self._store.versions(spaces)
            turns = self._store.counts_of_type(EPISODE)
            views = {View(space): ViewState(turns[space], str(before[space])) for space in spaces if space in before}
            done = refresh(
                self._index,
                self.checkpoint,
                [*views],
                lambda view: self._snapshot(view.space),
                store=self._store.identity(),
                states=views,
                writer=writer,
                keep=self._store.put_word_statistics,
                alias=None,
                device=self._device,
                progress=progress,
            )
            with self._store.held(GRAPH_ALIAS):
                has_forgotten = self._store.forgotten_count() > forgotten
                put_in_use(
                    self._index,
                    GRAPH_ALIAS,
                    done.collection,
                    store=self._store.identity(),
                    keeps_previous=self._index.is_embedded or not has_forgotten,
                )
                self._store.keep_word_statistics([done.collection])
                known = self._store.spaces()
                now = self._store.versions(known)
                self._store.list_changed([space for space in known if now.get(space) != before.get(space)])
                as_before = {space for space in due if space in before and now.get(space) == before[space]}
                self._store.acknowledge_changes({space: due[space] for space in as_before})
                collection = self._index.open(done.collection)
                for space in before.keys() - {*known}:
                    collection.delete_space(space)
        self._write_due(self._required(), known)
        return done

    def drop(self, spaces: Sequence[SpaceId]) -> None:
        """Discard what is held in memory of spaces from which something is forgotten."""
        for space in spaces:
            self._last.forget(space)

    def readable(self, spaces: Sequence[SpaceId]) -> GraphVectors:
        """The collection for searches of some spaces, for readers; raises the errors of ``collection``."""
        return self._searchable(self.collection(spaces), spaces)

    def collection(self, spaces: Sequence[SpaceId]) -> Collection:
        """The collection, after a check that it is up to date for some spaces.

        Raises:
            StaleEmbeddingsError: If it is not, or no collection of this checkpoint is in use.
        """
        collection = self._in_use()
        cure = "run locigraph verify, which writes what is due, or locigraph refresh with this checkpoint"
        if collection is None:
            raise StaleEmbeddingsError(f"no graph embeddings of checkpoint {self.version!r} are in use; {cure}")
        self._synchronise(collection, spaces)
        changed = self._store.changed_spaces()
        for space in spaces:
            turns, stored = self._store.node_counts(space)[EPISODE], collection.count(space)
            if stored != turns or space in changed:
                raise StaleEmbeddingsError(
                    f"space {space!r}: {stored:,} of {counted(turns, 'turn')} have graph embeddings, and some may be "
                    f"outdated; {cure}"
                )
        return collection

    def verify(self, spaces: Sequence[SpaceId] | None = None) -> list[Difference]:
        """Compare the rows of spaces with their turns, and the vectors with those that the checkpoint computes now.

        Returns:
            The difference found for each of them, or of all; empty if no collection of this checkpoint is in use.
        """
        collection = self._in_use()
        if collection is None:
            return []
        self._write_out(collection)
        collection.synchronise()
        found = []
        for space in self._store.spaces() if spaces is None else spaces:
            snapshot = self._snapshot(space)
            due, stored, moved = self._compared(collection, snapshot, self._statistics(collection, space))
            rows = collection.rows(space)
            expected = snapshot_rows(space, snapshot, snapshot.active_rows((EPISODE,)))
            changed = {row.node_key for row in expected if row.node_key in rows and rows[row.node_key] != row}
            missing, surplus = len(due.keys() - stored.keys()), len(stored.keys() - due.keys())
            found.append(Difference(space, missing, surplus, len(changed.union(moved))))
        return found

    def verify_all(self, *, is_reader: bool) -> tuple[list[Difference], list[SpaceId]]:
        """Compare all spaces, and write those that are due.

        Args:
            is_reader: Whether nothing can be written; then these are not compared.

        Returns:
            (The differences, the spaces that stay due.)
        """
        listed = self._store.changed_spaces()
        # Compared before the update, since the update repairs the differences that it finds.
        found = self.verify([space for space in self._store.spaces() if space not in listed])
        if is_reader:
            return found, [*listed]
        self.update()
        compared = {each.space for each in found}
        return found + self.verify([space for space in self._store.spaces() if space not in compared]), []

    def drift(self, space: SpaceId) -> Drift:
        """Compare the vectors of a space that are in use, whichever checkpoint made them, with this checkpoint's.

        These are what a refresh would write, with the words of the space counted again.

        Nothing is written, not even the text embeddings of new nodes.

        Raises:
            IndexMismatchError: If the vectors in use have another width.
        """
        collection = self._index.find(GRAPH_ALIAS)
        if collection is not None:
            collection.synchronise()
        dim = self.checkpoint.vector_dim
        if collection is not None and collection.spec.dim != dim:
            raise IndexMismatchError(
                f"the graph embeddings in use have {collection.spec.dim} dimensions but those of checkpoint "
                f"{self.version!r} have {dim}, so they cannot be compared; run locigraph refresh with this checkpoint, "
                "or name another"
            )
        snapshot = snapshot_with_vectors(self._store, space, self._encoder)
        due, stored, moved = self._compared(collection, snapshot, None)
        moves = tuple(_cosine_distance(stored[key], due[key]) for key in moved)
        return Drift(len(due), len(due.keys() - stored.keys()), len(stored.keys() - due.keys()), moves)

    def _compared(
        self, collection: Collection | None, snapshot: Snapshot, statistics: LexicalStatistics | None
    ) -> tuple[_Vectors, _Vectors, list[int]]:
        """(Vectors by the checkpoint, vectors in the collection, both by node key; the keys at which they differ)."""
        space = snapshot.space
        rows, vectors = encode_graph(self.checkpoint, snapshot, device=self._device, statistics=statistics)
        due = dict(zip(snapshot.keys[rows].tolist(), vectors, strict=True))
        stored = {} if collection is None else collection.vectors(space, collection.node_keys(space))
        both = sorted(stored.keys() & due.keys())
        return due, stored, [key for key in both if not self._is_near(stored[key], due[key], rounding=_ROUNDING)]

    def _in_use(self) -> Collection | None:
        """The collection in use, if it is of this checkpoint.

        Raises:
            IndexMismatchError: If it is of another store.
            StaleEmbeddingsError: If another process has put one of another checkpoint in use since: to replace it in
                turn would have both encode everything with every question.
        """
        collection = self._of_this_store()
        if collection is None:
            return None
        is_ours = collection.spec.version == self.version and collection.spec.schema == schema_hash()
        if not is_ours and self._was_in_use:
            raise StaleEmbeddingsError(
                f"another process has put graph embeddings of checkpoint {collection.spec.version!r} in use, in place "
                f"of those of {self.version!r}; open the memory again"
            )
        self._was_in_use = is_ours
        return collection if is_ours else None

    def _of_this_store(self) -> Collection | None:
        """The collection in use, of any checkpoint."""
        collection = self._index.find(GRAPH_ALIAS)
        if collection is not None and not collection.spec.may_be_of(self._store.known_identity()):
            raise IndexMismatchError(
                f"index {self._index.uri!r} holds the graph embeddings of another store; give each store its "
                "own index with --index.uri"
            )
        return collection

    def _write_due(self, collection: Collection, spaces: Sequence[SpaceId]) -> tuple[Collection, int]:
        """Write the spaces that are due; returns the collection in use, and how many were written."""
        with self._store.reading():
            due = self._due(collection, spaces)
            changed = {space: self._changed_nodes(space)[1] for space in due}
        if due:
            self._embed({space: nodes for space, nodes in changed.items() if nodes})
            with self._store.held(GRAPH_ALIAS, is_shared=True):  # no refresh puts another collection in use meanwhile
                collection = self._required()
                written: dict[SpaceId, int] = {}
                for space in due:
                    with self._store.held(f"{GRAPH_ALIAS}/{space}"):
                        written |= self._write(collection, space)
                        if self._can_wait(space):
                            continue  # it can be made durable together with the next ones
                        self._acknowledge(collection, written)
                        written = {}
                        with suppress(UnknownSpaceError):  # forgotten by another process meanwhile
                            if not self._last.is_whole(space) and self._due(collection, [space]):
                                # Beside what had changed, it lacked rows.
                                self._acknowledge(collection, self._write(collection, space))
                self._acknowledge(collection, written)
                if len(self._last.unwritten) > MOST_ROWS:
                    self._write_out(collection)
        self._synchronise(collection, spaces)
        return collection, len(due)

    def _can_wait(self, space: SpaceId) -> bool:
        """Whether nobody else reads or writes the rows of a space, of which the collection lacks none."""
        return self._index.is_embedded and self._last.is_whole(space)

    def _write_out(self, collection: Collection) -> None:
        """Give the index what only searches in memory have found so far."""
        self._remember_writes_to(collection)
        self._acknowledge(collection, self._last.unwritten.write_to(collection))

    def _changed_nodes(self, space: SpaceId) -> tuple[int, frozenset[int] | None]:
        """See ``Store.changed_nodes``; without what searches in memory reflect already."""
        return self._store.changed_nodes(space, after=self._last.unwritten.reflects(space))

    def _embed(self, changed: Mapping[SpaceId, frozenset[int]]) -> None:
        """Embed the texts of what has changed in several spaces together, which takes less time than one by one."""
        with suppress(UnknownSpaceError):  # forgotten meanwhile
            embed_lacking(
                self._store,
                changed,
                self._encoder,
                checks_vectors=False,
                to_indexes=False,
                keys=frozenset[int]().union(*changed.values()),
                is_final=False,  # what is still lacking is found when the spaces are read
            )

    def _acknowledge(self, collection: Collection, written: Mapping[SpaceId, int]) -> None:
        """Make what was written durable, and the changes up to these numbers no longer due."""
        if written:
            collection.flush()
            # Unique, so that other processes see that the vectors were written again, though nothing else has changed.
            self._store.acknowledge_changes(written, by=f"{self._last.token}/{secrets.token_hex(4)}")

    def _required(self) -> Collection:
        """The collection in use, where there must be one."""
        collection = self._in_use()
        if collection is None:
            raise StaleEmbeddingsError(
                f"the graph embeddings of checkpoint {self.version!r} were replaced or removed by another process; run "
                "the command again"
            )
        return collection

    def _due(self, collection: Collection, spaces: Sequence[SpaceId]) -> list[SpaceId]:
        """The spaces among some whose embeddings changes have made out of date, or that lack rows."""
        self._remember_writes_to(collection)
        changed = {*self.due(self._store.changed_spaces())}
        unknown = [space for space in spaces if space not in changed and not self._last.is_whole(space)]
        if len(unknown) > _COUNTED_ONE_BY_ONE:
            stored, turns = collection.counts(), self._store.counts_of_type(EPISODE)
        else:
            stored = Counter({space: collection.count(space) for space in unknown})
            turns = Counter({space: self._store.node_counts(space)[EPISODE] for space in unknown})
        lacking = [space for space in unknown if not self._last.found(space, is_whole=stored[space] == turns[space])]
        return [space for space in spaces if space in changed or space in lacking]

    def _remember_writes_to(self, collection: Collection) -> None:
        if collection is not self._last.collection:
            self._last = _LastWritten(collection)

    def _write(self, collection: Collection, space: SpaceId) -> dict[SpaceId, int]:
        """Write a space; returns it with the number of the last change that is written, to be acknowledged."""
        self._remember_writes_to(collection)  # a refresh may have put another one in use since
        with self._store.reading():
            number, changed = self._changed_nodes(space)
            is_own = self._is_own(space)
        try:
            if not is_own:
                self._last.forget(space)
                collection.synchronise()
                number, changed = self._store.changed_nodes(space)  # also what the rows reflected that are dropped now
            if changed is not None and not changed:
                if collection.count(space) == self._store.node_counts(space)[EPISODE]:
                    self._last.found(space, is_whole=True)  # another process was faster
                    return {}
                changed = None
            written = None if changed is None else self._write_changed(collection, space, changed, number)
            if written is None:
                # Listed first: if the process dies after it has counted the words, all turns must be written by whoever
                # is next, since their vectors are still those of the earlier counts.
                self._store.list_changed([space])
                number, _ = self._store.changed_nodes(space)
                self._write_whole(collection, space)
                written = {space: number}
        except UnknownSpaceError:  # forgotten by another process meanwhile, which its indexer deletes
            self._last.forget(space)
            return {}
        return written

    def _is_own(self, space: SpaceId) -> bool:
        """Whether this process wrote the embeddings of a space last."""
        return self._last.is_token(self._store.embedded_by([space]).get(space))

    def _write_changed(
        self, collection: Collection, space: SpaceId, changed: frozenset[int], number: int
    ) -> dict[SpaceId, int] | None:
        """Write the turns that changed nodes reach, in an embedded index as soon as enough of them wait for it.

        Returns:
            As ``_write``; None, with nothing written, if the whole space must be.
        """
        relations = self.checkpoint.network.nodes.relations
        with self._store.reading():
            statistics = self._statistics(collection, space)
            if statistics is None or self._store.count_of_type(space, EPISODE) >= RENEWED_AT * statistics.turns:
                return None
            part = self._store.neighbourhood(
                space,
                changed,
                families={relation.family for relation in relations},
                hops=max((relation.hops for relation in relations), default=0),
                most=_MOST_REACHED,
            )
        if part is None:
            return None
        snapshot = embedded_snapshot(self._store, space, self._encoder, part=part)
        wanted = snapshot.active & np.isin(snapshot.keys, part.episodes)
        rows, vectors = encode_graph(
            self.checkpoint, snapshot, device=self._device, statistics=statistics, turns=np.flatnonzero(wanted)
        )
        require_usable(self.checkpoint, vectors)
        nodes = {int(snapshot.keys[row]): snapshot.ids[row] for row in rows.tolist()}
        known = self._last.hot.vectors(space, nodes)
        moved = self._moved(known, nodes, vectors)
        left = np.flatnonzero(~snapshot.active & np.isin(snapshot.keys, part.episodes))
        archived = {int(snapshot.keys[row]): snapshot.ids[row] for row in left.tolist()}
        gone, written = {*part.gone, *archived}, snapshot_rows(space, snapshot, rows[moved])
        if not gone and self._can_wait(space):
            self._last.hot.change(space, snapshot, rows[moved], vectors[moved])
            if space in self._last.hot:
                self._last.unwritten.add(space, number, written, vectors[moved])
                return {}
        self._write_out(collection)  # otherwise older rows of the same turns would be written later
        collection.upsert(written, vectors[moved])
        collection.delete_nodes(space, sorted(gone))
        self._last.hot.change(space, snapshot, rows[moved], vectors[moved], gone=archived.values())
        if part.gone:  # their IDs are not known any more
            self._last.hot.drop([space])
        return {space: number}

    def _write_whole(self, collection: Collection, space: SpaceId) -> None:
        """Count the words of a space again, and write all its turns whose vectors move."""
        self._write_out(collection)  # what is known of its rows is then what the collection holds
        snapshot = self._snapshot(space)
        statistics, rows, vectors = encode_anew(self.checkpoint, snapshot, device=self._device)
        require_usable(self.checkpoint, vectors)
        nodes = {int(snapshot.keys[row]): snapshot.ids[row] for row in rows.tolist()}
        known = self._last.hot.vectors(space, nodes)
        moved = self._moved(known, nodes, vectors)
        # Read before the rows are written, since rows that are not flushed are slow to list.
        held = collection.node_keys(space) if collection.count(space) else ()  # counting is quick for a new space
        surplus = {*held} - nodes.keys()
        counts = statistics or LexicalStatistics.of([])
        self._store.put_word_statistics(space, self._own_name(collection), counts.as_bytes())
        collection.upsert(snapshot_rows(space, snapshot, rows[moved]), vectors[moved])
        collection.delete_nodes(space, sorted(surplus))
        # What is in use of the turns that have not moved is what was written of them earlier.
        in_use, is_new = vectors.copy(), {*moved}
        for row, key in enumerate(nodes):
            if row not in is_new:
                in_use[row] = known[key]
        self._last.written(space, counts, snapshot, rows, in_use)

    def _statistics(self, collection: Collection, space: SpaceId) -> LexicalStatistics | None:
        """The counts of words with which the vectors of a space in a collection were made; None if unknown."""

        def read() -> LexicalStatistics | None:
            content = self._store.word_statistics(space, self._own_name(collection))
            return None if content is None else LexicalStatistics.from_bytes(content)

        self._remember_writes_to(collection)
        if not self._is_own(space):  # another process may count the words again
            return read()
        return self._last.statistics.get(space, read)

    def _own_name(self, collection: Collection) -> str:
        """Name of the collection itself, where it was opened by its alias."""
        self._remember_writes_to(collection)
        if not self._last.name:
            self._last.name = self._index.alias_target(collection.name) or collection.name
        return self._last.name

    def _searchable(self, collection: Collection, spaces: Sequence[SpaceId]) -> GraphVectors:
        """The collection for searches of spaces that are up to date in it."""
        self._remember_writes_to(collection)
        if not self._last.hot.holds(spaces):
            self._write_out(collection)
        self._fill(
            collection, [each for each in spaces if each not in self._last.hot and self._last.is_asked_again(each)]
        )
        return HotSearch(collection, self._last.hot)

    def _fill(self, collection: Collection, spaces: Sequence[SpaceId]) -> None:
        """Read spaces from the index into memory, if there is room: reading them again and again would be worse."""
        # Counted in the store, which reads an index alone: counting in an embedded index reads every row.
        rows = sum(self._store.count_of_type(space, EPISODE) for space in spaces)
        if spaces and self._last.hot.has_room(rows, collection.spec.dim):
            for space, found in collection.contents(spaces).items():
                self._last.hot.put_rows(SpaceId(space), found)

    def _synchronise(self, collection: Collection, spaces: Sequence[SpaceId]) -> None:
        """Let reads of a server see what other processes wrote of spaces that have changed since the last time."""
        if self._index.is_embedded:
            return
        writers = self._store.embedded_by(spaces)
        found = {space: (version, writers.get(space)) for space, version in self._store.versions(spaces).items()}
        if changed := [space for space, state in found.items() if self._last.seen.get(space) != state]:
            collection.synchronise()
            self._last.hot.drop(space for space in changed if not self._last.is_token(found[space][1]))
            self._last.seen |= found

    def _moved(self, known: _Vectors, keys: Iterable[int], due: NDArray[np.float32]) -> list[int]:
        """Positions of the vectors, given with the keys of their nodes, that are not near the known ones."""
        return [
            place
            for place, (key, new) in enumerate(zip(keys, due, strict=True))
            if not self._is_near(known.get(key), new)
        ]

    def _is_near(self, stored: NDArray[np.float32] | None, due: NDArray[np.float32], *, rounding: float = 0.0) -> bool:
        """Whether ``stored`` is a vector within the tolerance of ``due``; a vector with NaN never is."""
        most = (self._tolerance + rounding) * np.linalg.norm(due)
        return stored is not None and bool(np.linalg.norm(stored - due) <= most)

    def _snapshot(self, space: SpaceId) -> Snapshot:
        return embedded_snapshot(self._store, space, self._encoder)


@dataclass
class _LastWritten:
    """What this process knows of the collection that it writes to.

    Attributes:
        collection: The collection.
        name: Its own name; empty if it was not asked for yet.
        hot: Copies of its spaces.
        unwritten: Rows that only these copies hold so far.
        statistics: Counts of words of spaces that this process wrote last.
        seen: State of each space as of which everything written to a server can be read.
        settled: How spaces stood when they were last brought up to date.
        token: Names this process, and this collection, in the store.
    """

    collection: Collection | None = None
    name: str = ""
    hot: HotSpaces = field(default_factory=HotSpaces)
    unwritten: UnwrittenRows = field(default_factory=UnwrittenRows)
    statistics: ByteCache[SpaceId, LexicalStatistics | None] = field(
        default_factory=lambda: ByteCache(_STATISTICS_BYTES, lambda each: 0 if each is None else each.nbytes)
    )
    seen: dict[SpaceId, object] = field(default_factory=dict)
    settled: dict[SpaceId, Standing] = field(default_factory=dict)
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    _whole: set[SpaceId] = field(default_factory=set)
    _asked: set[SpaceId] = field(default_factory=set)

    def is_token(self, writer: str | None) -> bool:
        """Whether a writer, as the store names it, is this process."""
        return writer is not None and writer.partition("/")[0] == self.token

    def is_whole(self, space: SpaceId) -> bool:
        """Whether the collection was found to hold all turns of a space; it then loses none without a change of it."""
        return space in self._whole

    def are_settled(self, standings: Mapping[SpaceId, Standing]) -> bool:
        """See ``LiveEmbeddings.are_settled``."""
        return all(
            self.settled.get(space) == each and each.due <= self.unwritten.reflects(space)
            for space, each in standings.items()
        )

    def found(self, space: SpaceId, *, is_whole: bool) -> bool:
        """Note whether the collection holds all turns of a space; returns it."""
        if is_whole:
            self._whole.add(space)
        return is_whole

    def forget(self, space: SpaceId) -> None:
        """Note that another process may have written the space."""
        self._whole.discard(space)
        self.settled.pop(space, None)
        self.statistics.drop(space)
        self.hot.drop([space])
        self.unwritten.drop(space)

    def written(
        self,
        space: SpaceId,
        statistics: LexicalStatistics,
        snapshot: Snapshot,
        rows: NDArray[np.int64],
        vectors: NDArray[np.float32],
    ) -> None:
        """Note that the collection holds these turns of a space with these vectors, and no others."""
        self._whole.add(space)
        self.statistics.drop(space)
        self.statistics.get(space, lambda: statistics)
        self.hot.put(space, snapshot, rows, vectors)

    def is_asked_again(self, space: SpaceId) -> bool:
        """Whether the space was asked for before; the first time it is noted."""
        if space in self._asked:
            return True
        self._asked.add(space)
        return False


def _cosine_distance(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    cosine = float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))
    return max(0.0, 1.0 - cosine)
