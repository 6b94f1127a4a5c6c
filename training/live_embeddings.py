"""Keeps the graph embeddings that v2 searches equal to the graph while it grows.

The store lists every space that has changed since it was embedded. A space is taken off the list only after the index
has flushed its vectors, and writing them twice changes nothing, so a crash at any point costs at most repeated work.
"""

from __future__ import annotations

from locigraph.gnn.features import TURN
from locigraph.kg.schema import schema_hash
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.kg.views import View
from locigraph.retrieval.index.descriptions import Difference, is_same_vector, snapshot_rows
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.milvus import Collection, MilvusIndex
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.embedding_refresh import Refreshed, refresh, require_usable
from locigraph.training.errors import StaleEmbeddingsError
from locigraph.training.inference import encode_graph
from locigraph.training.protocols import Embed


class LiveEmbeddings:
    """The collection of graph embeddings that is in use.

    A changed space is encoded as a whole: the weights of its words depend on how often they occur in all of it. So the
    collection is always what a full refresh would write, whatever has been appended or forgotten in between.

    Args:
        store: The graph.
        index: Vector index that holds the collection, or will.
        checkpoint: The checkpoint that encodes.
        embed: The text encoder that the checkpoint names.
        text_encoder: ID under which the store keeps that encoder's vectors.
        device: Device on which graphs are encoded.

    Attributes:
        checkpoint: The checkpoint that encodes.
        version: The checkpoint's version, which the collection carries.
    """

    def __init__(
        self,
        store: Store,
        index: MilvusIndex,
        checkpoint: Checkpoint,
        embed: Embed,
        *,
        text_encoder: str,
        device: str = "cpu",
    ) -> None:
        self._store = store
        self._index = index
        self.checkpoint = checkpoint
        self.version = checkpoint.version
        self._embed = embed
        self._text_encoder = text_encoder
        self._device = device

    def update(self, *, progress: str | None = None) -> int:
        """Encode and write what has changed; everything where no collection of this checkpoint is in use.

        Args:
            progress: Name on the progress bar of a full refresh; None shows none.

        Returns:
            Number of spaces that were written.
        """
        spaces = self._store.spaces()
        if not spaces:
            return 0
        found = self._in_use()
        if found is None:
            self.refresh(progress=progress)
            return len(spaces)
        return self._write_due(found, spaces)

    def current(self, space: SpaceId) -> Collection:
        """The collection, after it was brought up to date for a space; made where none of this checkpoint is in use."""
        found = self._in_use()
        if found is None:
            self.refresh()
            return self.collection(space)
        self._write_due(found, [space])
        return found

    def refresh(self, *, progress: str | None = None) -> Refreshed:
        """Encode every space into a new collection, put it in use, and add what arrived in the meantime."""
        spaces = self._store.spaces()
        due = self._store.changed_spaces()
        done = refresh(
            self._index,
            self.checkpoint,
            [View(space) for space in spaces],
            lambda view: self._snapshot(view.space),  # read when needed: all of a large store would not fit in memory
            device=self._device,
            progress=progress,
        )
        for space, number in due.items():
            self._store.acknowledge_change(space, number)
        found = self._in_use()
        assert found is not None
        self._write_due(found, self._store.spaces())
        return done

    def collection(self, space: SpaceId) -> Collection:
        """The collection, for readers, after a check that it holds the space as it is.

        Raises:
            StaleEmbeddingsError: If it does not, or there is none of this checkpoint.
        """
        found = self._in_use()
        cure = "run locigraph build again, or locigraph refresh with this checkpoint"
        if found is None:
            raise StaleEmbeddingsError(f"no graph embeddings of checkpoint {self.version!r} are in use; {cure}")
        turns, held = self._store.node_counts(space)[TURN], found.count(space)
        if held != turns or space in self._store.changed_spaces():
            raise StaleEmbeddingsError(
                f"space {space!r}: {held} of {turns} turns have graph embeddings, or earlier ones; {cure}"
            )
        return found

    def verify(self) -> list[Difference]:
        """Compare the vectors of every space with those that the checkpoint gives its turns now."""
        found = self._in_use()
        if found is None:
            return []
        differences = []
        for space in self._store.spaces():
            snapshot = self._snapshot(space)
            rows, vectors = encode_graph(self.checkpoint, snapshot, device=self._device)
            due = dict(zip(snapshot.keys[rows].tolist(), vectors, strict=True))
            held = found.vectors(space, found.node_keys(space))
            changed = sum(not is_same_vector(held[key], due[key]) for key in held.keys() & due.keys())
            differences.append(Difference(space, len(due.keys() - held.keys()), len(held.keys() - due.keys()), changed))
        return differences

    def _in_use(self) -> Collection | None:
        if not self._index.has(GRAPH_ALIAS):
            return None
        found = self._index.open(GRAPH_ALIAS)
        is_ours = found.spec.version == self.version and found.spec.schema == schema_hash()
        return found if is_ours else None

    def _write_due(self, collection: Collection, spaces: list[SpaceId]) -> int:
        due = self._store.changed_spaces()
        written = 0
        for space in spaces:
            if space not in due and collection.count(space) == self._store.node_counts(space)[TURN]:
                continue
            snapshot = self._snapshot(space)
            rows, vectors = encode_graph(self.checkpoint, snapshot, device=self._device)
            require_usable(self.checkpoint, vectors)
            collection.upsert(snapshot_rows(space, snapshot, rows), vectors)
            present = {*snapshot.keys[rows].tolist()}
            collection.delete_nodes(space, [key for key in collection.node_keys(space) if key not in present])
            collection.flush()
            self._store.acknowledge_change(space, due.get(space, 0))
            written += 1
        return written

    def _snapshot(self, space: SpaceId) -> Snapshot:
        return embedded_snapshot(self._store, space, self._text_encoder, self._embed)


def embedded_snapshot(store: Store, space: SpaceId, model: str, embed: Embed) -> Snapshot:
    """The present graph of a space with vectors of a text encoder, which its new nodes are given first."""
    lacking = store.unembedded(space, model)
    if lacking:
        vectors = embed([each.text for each in lacking])
        store.put_embeddings(space, model, lacking, vectors, to_indexes=False)
    return store.snapshot(space, embedding_model=model)
