"""Keeps the index of description embeddings equal to the store: drains the outbox, compares, rebuilds.

The store is the source of truth. An outbox row is acknowledged only after the index has flushed it, and writing it
twice changes nothing, so a crash at any point costs at most repeated work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from locigraph.kg.counts import counted
from locigraph.kg.errors import InvalidVectorError, LocigraphError
from locigraph.kg.schema import EPISODE, schema_hash, searchable_types
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.times import epoch
from locigraph.kg.types import NodeStatus, SpaceId
from locigraph.retrieval.errors import IndexMismatchError
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS, GRAPH_COLLECTION, REFRESH_LOCK
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_collection import FLAT_BELOW, Collection, CollectionSpec, IndexRow, IndexType

#: Collection of description embeddings.
DESCRIPTIONS = "descriptions"
_BATCH = 2_000
# Storage as float16 inside an index, and the order of sums, may change each component by this much.
_SAME_VECTOR = 1e-4


@dataclass(frozen=True, slots=True)
class Difference:
    """How the index rows of a space differ from the store: numbers of missing, surplus and changed rows."""

    space: SpaceId
    missing: int
    surplus: int
    changed: int

    @property
    def is_clean(self) -> bool:
        """Whether there is no difference."""
        return not (self.missing or self.surplus or self.changed)


class _Compared(NamedTuple):
    """The rows that a space should have, with vectors, by keys of nodes; and the keys in which the index differs."""

    due: dict[int, tuple[IndexRow, NDArray[np.float32]]]
    missing: list[int]
    surplus: list[int]
    changed: list[int]


class DescriptionIndexer:
    """Keeps the collection of description embeddings equal to the store's searchable nodes.

    Args:
        store: The graph.
        index: Vector index that holds the collection, or will.
        model: ID of the text encoder whose vectors are indexed.
    """

    def __init__(self, store: Store, index: MilvusIndex, model: str) -> None:
        self._store = store
        self._index = index
        self._model = model

    def collection(self) -> Collection:
        """The collection, after a check that it is the right one.

        Raises:
            IndexMismatchError: If it is absent, or holds nodes of another store, or vectors of another model or schema.
        """
        collection = self._opened()
        collection.require(version=self._model, schema=schema_hash())
        return collection

    def _opened(self) -> Collection:
        collection = self._index.open(DESCRIPTIONS)
        if self._is_of_another_store(collection):
            raise IndexMismatchError(
                f"index {self._index.uri!r} holds the nodes of another store; give each store its own index with "
                "--index.uri, or run locigraph verify --rebuild true to rebuild it from this store"
            )
        return collection

    def drain(self, *, progress: bool = False) -> int:
        """Write the nodes that the outbox lists; if there is no collection yet, write every node.

        If anything was forgotten, an embedded index is rebuilt as a whole, since deleted rows stay in its files. This
        also removes the graph embeddings until the next refresh, since those of neighbours may still carry what was
        forgotten. An index that another store has left behind, such as a deleted one of the same name, is rebuilt too.
        On a server, whose other users go on searching, the forgotten rows are deleted from all collections of the
        store; the server removes them from its files when it next compacts them.

        Returns:
            Number of outbox rows that were handled.

        Raises:
            InvalidVectorError: If the index must be rebuilt and a node has no vector of this indexer's model.
        """
        with self._store.held(DESCRIPTIONS):  # else two processes could write a row in the wrong order
            if self._index.is_embedded and (self._store.has_forgotten() or self._is_left_behind()):
                self._clear(InvalidVectorError)
            return self._write_due(progress)

    def _is_of_another_store(self, collection: Collection) -> bool:
        return not collection.spec.may_be_of(self._store.known_identity())

    def _is_left_behind(self) -> bool:
        """Whether the embedded index was left by another store; False if it is damaged, which its use will report."""
        try:
            collection = self._index.find(DESCRIPTIONS) if self._index.is_embedded else None
        except IndexMismatchError:
            return False
        return collection is not None and self._is_of_another_store(collection)

    def _write_due(self, progress: bool) -> int:
        collection: Collection | None = None
        total = 0
        if not self._index.has(DESCRIPTIONS):
            self._store.relist_outbox()  # rows that were acknowledged for another or a lost index are due again
        due = self._store.outbox_size() if progress else 0
        with tqdm(desc="index", total=due, unit="node", disable=not due) as bar:
            while rows := self._store.read_outbox(limit=_BATCH):
                # Of several rows about one node only the last counts.
                last = {(row.space, row.node_key): row.action for row in rows}
                for space in sorted({space for space, _ in last}):
                    upserts = [k for (s, k), action in last.items() if s == space and action == "upsert"]
                    deletes = [k for (s, k), action in last.items() if s == space and action == "delete"]
                    collection = self._write(space, upserts, deletes, collection)
                if collection is not None:
                    collection.flush()
                self._store.acknowledge_outbox(rows)
                total += len(rows)
                bar.update(len(rows))
        return total

    def _write(
        self, space: SpaceId, upserts: Sequence[int], deletes: Sequence[int], collection: Collection | None
    ) -> Collection | None:
        if collection is None and self._index.has(DESCRIPTIONS):
            collection = self.collection()
            collection.synchronise()  # another process may have written before this one took the lock
        nodes, keys, vectors = self._store.vectors_by_key(space, upserts, self._model)
        if collection is None:
            if not len(vectors):
                return None
            due = self._store.outbox_size()  # sets the index type; a collection that outgrows it can be rebuilt
            spec = CollectionSpec(
                vectors.shape[1], "COSINE", self._model, schema_hash(), index_type(due), self._store.identity()
            )
            collection = self._index.create(DESCRIPTIONS, spec)
        # A search costs time for every row of its space, so nodes of types that no search returns have no row.
        searchable = searchable_types()
        active = [i for i, n in enumerate(nodes) if n.status == NodeStatus.ACTIVE and n.type in searchable]
        if active:
            # See _description_rows.
            turns = self._store.turns_of_nodes(space, [keys[i] for i in active if nodes[i].type == EPISODE])
            collection.upsert(
                [
                    IndexRow(
                        space, keys[i], nodes[i].id, nodes[i].type, epoch(nodes[i].created_at), turns.get(keys[i], ())
                    )
                    for i in active
                ],
                vectors[active],
            )
        # Nodes that were archived or forgotten lose their row in the index. Those of types that are not searchable
        # never had one, and each deletion of an absent row would leave a record in the index's files.
        settled = {keys[i] for i in active} | {
            key for key, n in zip(keys, nodes, strict=True) if n.type not in searchable
        }
        collection.delete_nodes(space, [*deletes, *(key for key in upserts if key not in settled)])
        if deletes and not self._index.is_embedded:
            self._erase(space, deletes)
        return collection

    def _erase(self, space: SpaceId, keys: Sequence[int]) -> None:
        """Delete the rows of forgotten nodes from the collections of graph embeddings on a server.

        In the collection in use, vectors of other turns that carry something of them are computed anew, since the space
        is listed as changed. Earlier collections are dropped; a refresh in progress does so when it ends.
        """
        in_use, is_refreshed = self._index.alias_target(GRAPH_ALIAS), self._store.is_held(REFRESH_LOCK)
        for name in self._index.owned(GRAPH_COLLECTION, self._store.identity()):
            if name == in_use or is_refreshed:
                collection = self._index.open(name)
                collection.synchronise()
                collection.delete_nodes(space, keys)
            else:
                self._index.drop(name)

    def verify(self) -> list[Difference]:
        """Compare the rows and vectors of every space with the store; rows of a space that is gone are surplus."""
        if not self._index.has(DESCRIPTIONS) and self._is_nothing_due():
            return []
        collection = self.collection()
        known = set(self._store.spaces())
        collection.synchronise()
        differences = [
            Difference(SpaceId(space), 0, rows, 0)
            for space, rows in sorted(collection.counts().items())
            if space not in known
        ]
        for space in sorted(known):
            found = self._compared(space, collection)
            differences.append(Difference(space, len(found.missing), len(found.surplus), len(found.changed)))
        return differences

    def repair(self, spaces: Sequence[SpaceId]) -> None:
        """Write the rows of spaces that a server has lost or changed, and delete those that it should not have.

        A Milvus server that was killed may come back with rows that were deleted, and without rows that it had
        acknowledged. Spaces of which something is due are left to ``drain``.
        """
        with self._store.held(DESCRIPTIONS):
            collection = self.collection()
            collection.synchronise()
            for space in spaces:
                if self._store.outbox_size(space):
                    continue
                found = self._compared(space, collection)
                due = [*found.missing, *found.changed]
                if due:
                    collection.upsert([found.due[key][0] for key in due], np.stack([found.due[key][1] for key in due]))
                collection.delete_nodes(space, found.surplus)
            collection.flush()

    def _compared(self, space: SpaceId, collection: Collection) -> _Compared:
        snapshot = self._store.snapshot(space, embedding_model=self._model)
        rows = [int(row) for row in snapshot.active_rows(searchable_types())]
        made = _description_rows(space, snapshot, rows)
        due = {each.node_key: (each, snapshot.embeddings[row]) for each, row in zip(made, rows, strict=True)}
        stored = collection.rows(space)
        vectors = collection.vectors(space, list(stored))
        changed = [
            key
            for key, (row, vector) in due.items()
            if key in stored and (stored[key] != row or not is_same_vector(vectors.get(key), vector))
        ]
        missing = [key for key in due if key not in stored]
        return _Compared(due, missing, [key for key in stored if key not in due], changed)

    def require_complete(self, spaces: Sequence[SpaceId]) -> None:
        """Check that the collection holds all nodes of some spaces, since missing rows must not pass as empty results.

        Raises:
            IndexMismatchError: If a space is incomplete; names the first such space, and what to do.
        """
        collection = self.collection()
        collection.synchronise()
        for space in spaces:
            counts, stored = self._store.node_counts(space), collection.count(space)
            due = sum(counts[kind] for kind in searchable_types())
            waiting = self._store.outbox_size(space)
            if waiting or stored != due:
                # If the outbox is empty, the index has lost rows, or it belongs to another store of the same name.
                cure = "verify, which writes what is due" if waiting else "verify --rebuild true"
                raise IndexMismatchError(
                    f"space {space!r}: the index holds {stored} of {due} searchable nodes, and some may be outdated; "
                    f"run locigraph {cure}"
                )

    def rebuild(self, *, progress: bool = False) -> int:
        """Rebuild the index from the store, whatever state it is in; returns the number of outbox rows handled.

        This also removes the graph embeddings until the next refresh.

        Raises:
            IndexMismatchError: If a node has no vector of this indexer's model, or the index is on a server and the
                store holds no nodes; the index stays as it was.
        """
        if not self._index.is_embedded and self._is_nothing_due():
            raise IndexMismatchError("the store holds no nodes, so there is nothing to index; run locigraph build")
        with self._store.held(DESCRIPTIONS):
            self._clear(IndexMismatchError)
            return self._write_due(progress)  # lists every node, since there is no collection

    def _is_nothing_due(self) -> bool:
        return not any(self._store.node_counts(space) for space in self._store.spaces())

    def _clear(self, lacks_vectors: type[LocigraphError]) -> None:
        for space in self._store.spaces():
            lacking = self._store.unembedded(space, self._model, checks_vectors=True)
            if lacking:
                nodes = counted(len({each.node_id for each in lacking}), "node")
                raise lacks_vectors(
                    f"space {space!r}: {nodes} without a vector of text encoder "
                    f"{self._model!r}; name the text encoder that built the graph, or run locigraph build with this one"
                )
        self._index.clear(f"{DESCRIPTIONS}|{GRAPH_COLLECTION}", self._store.identity())


def _description_rows(space: str, snapshot: Snapshot, rows: Sequence[int]) -> list[IndexRow]:
    # Only episodes store their turns here. Other nodes gain turns without their row being written again, so their hits
    # take the turns from the lexical arm.
    with_turns = snapshot_rows(space, snapshot, np.asarray(rows, dtype=np.int64))
    return [row if row.type == EPISODE else replace(row, turn_ids=()) for row in with_turns]


def is_same_vector(stored: NDArray[np.float32] | None, due: NDArray[np.float32]) -> bool:
    """Whether the index holds the vector that it should; a vector with NaN is never the same."""
    return stored is not None and stored.shape == due.shape and bool(np.abs(stored - due).max() <= _SAME_VECTOR)


def index_type(rows: int) -> IndexType:
    """Exact search while it is cheap, approximate search for larger collections."""
    return "FLAT" if rows < FLAT_BELOW else "HNSW"


def snapshot_rows(space: str, snapshot: Snapshot, rows: NDArray[np.int64]) -> list[IndexRow]:
    """Index rows of the nodes in ``rows`` of a snapshot; ``space`` is their space or the view of it to write to."""
    return [
        IndexRow(
            space, int(snapshot.keys[row]), snapshot.ids[row], str(snapshot.types[row]),
            int(snapshot.recorded_at[row]), snapshot.turns_of[row],
        )
        for row in rows
    ]  # fmt: skip
