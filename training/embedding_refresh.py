"""Batch refresh of the graph embeddings: encode, write, verify, flip the alias.

Readers see either the old collection or the new one, never a mixture. A collection's name is a hash of checkpoint and
data, so a refresh that was interrupted finds what it had written and continues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from locigraph.kg.counts import counted
from locigraph.kg.schema import EPISODE, schema_hash
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.views import View
from locigraph.retrieval.index.descriptions import index_type, snapshot_rows
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS, GRAPH_COLLECTION, GRAPH_PREFIX
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_collection import Collection, CollectionSpec
from locigraph.retrieval.protocols import SearchFilter
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.errors import TrainingError
from locigraph.training.inference import encode_graph

_SAMPLE = 20
_SAMPLE_TOP_K = 10
# An approximate index that finds less than this share of the exact neighbours is refused.
_LEAST_RECALL = 0.9
# Snapshots are cached from fingerprinting to encoding, up to this many bytes of embeddings; others are read again.
_KEPT_BYTES = 2**29


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The result of a refresh.

    Attributes:
        collection: Name of the collection.
        turns: Number of turns in it.
        written: Number of turns that this refresh wrote; an interrupted one may have written the others.
        sample_recall: Recall of a sample of searches against exact search; 1 if they agree.
    """

    collection: str
    turns: int
    written: int
    sample_recall: float


def refresh(
    index: MilvusIndex,
    checkpoint: Checkpoint,
    views: Sequence[View],
    load: Callable[[View], Snapshot],
    *,
    store: str = "",
    alias: str | None = GRAPH_ALIAS,
    device: str = "cpu",
    progress: str | None = "refresh",
) -> Refreshed:
    """Encode the turns of some views with a checkpoint and put their vectors in use.

    Only turns are written, since only turns are searched and every further row of a space would slow its searches down.

    Args:
        index: Vector index to write to.
        checkpoint: The checkpoint that encodes.
        views: Spaces, or views of them, to encode.
        load: Reads the snapshot of a view, with embeddings. Each is read once, unless they take too much memory
            together.
        store: Identity of the store that the graphs belong to; empty for graphs of a single comparison.
        alias: Alias that will point at the new collection once it is complete and verified. The previous collection is
            kept, and older ones of the store are dropped. None sets no alias.
        device: Device on which graphs are encoded.
        progress: Name on the progress bar; None shows none.

    Raises:
        TrainingError: If there are no views, two views have the same name, a vector is zero or not finite, or the
            written collection fails verification. The alias then still points at the old collection.
    """
    if not views:
        raise TrainingError("there is no space to refresh; run locigraph build first")
    named = {view.name: view for view in reversed(views)}
    for view in views:
        if named[view.name] != view:  # searches of one would find the rows of the other
            raise TrainingError(
                f"{view} and {named[view.name]} would have the same name in the collection; rename a space"
            )
    digest = hashlib.sha256(f"{checkpoint.version}{store}".encode())
    due: dict[View, int] = {}
    kept: dict[View, Snapshot] = {}
    room = _KEPT_BYTES
    for view in views:
        snapshot = load(view)
        digest.update(f"{view.name}={snapshot.fingerprint};".encode())
        due[view] = len(snapshot.active_rows((EPISODE,)))
        room -= snapshot.embeddings.nbytes
        if room > 0:
            kept[view] = snapshot
    total = sum(due.values())
    dim = checkpoint.vector_dim
    spec = CollectionSpec(dim, "IP", checkpoint.version, schema_hash(), index_type(total), store)
    collection = index.open_or_create(GRAPH_PREFIX + digest.hexdigest()[:16], spec)
    largest = max(views, key=lambda view: due[view])
    sample: tuple[list[str], NDArray[np.float32]] | None = None
    if collection.count():  # rows of an interrupted refresh
        collection.flush()
    # Counted before anything is written, since a count reads all rows that are not flushed, whatever their space.
    complete = {view for view in due if collection.count(view.name) == due[view]}
    written = 0
    with tqdm(desc=progress, total=total, unit="turn", disable=progress is None) as bar:
        for view, turns in due.items():
            if view not in complete or view == largest:
                snapshot = kept.get(view) or load(view)
                rows, vectors = encode_graph(checkpoint, snapshot, device=device)
                require_usable(checkpoint, vectors)
                if view not in complete:
                    collection.upsert(snapshot_rows(view.name, snapshot, rows), vectors)
                    written += len(rows)
                if view == largest:
                    sample = [snapshot.ids[row] for row in rows], vectors
            bar.update(turns)
    collection.flush()
    for view, turns in due.items():
        stored = collection.count(view.name)
        if stored != turns:
            raise TrainingError(
                f"collection {collection.name!r} holds {counted(stored, 'turn')} of {view.name!r} but the graph "
                f"has {turns}; run the refresh again"
            )
    assert sample is not None
    recall = _sample_recall(collection, largest.name, *sample)
    if alias is not None:
        _put_in_use(index, alias, collection.name, store=store)
    return Refreshed(collection.name, total, written, recall)


def _put_in_use(index: MilvusIndex, alias: str, name: str, *, store: str) -> None:
    """Point an alias at a collection, and drop the store's other collections except the previous one."""
    previous = index.alias_target(alias)
    if previous == name:  # nothing changed: keep the previous collection as well
        return
    index.point(alias, name)
    for other in index.owned(GRAPH_COLLECTION, store):
        if other not in (name, previous):
            index.drop(other)


def require_usable(checkpoint: Checkpoint, vectors: NDArray[np.float32]) -> None:
    """Raise TrainingError if a vector is zero or holds NaN."""
    norms = np.linalg.norm(vectors, axis=1)
    if not (np.isfinite(norms) & (norms > 0)).all():
        raise TrainingError(f"checkpoint {checkpoint.version!r} encodes some turns as zero or NaN; train again")


def _sample_recall(collection: Collection, name: str, ids: Sequence[str], exact: NDArray[np.float32]) -> float:
    """Recall of a sample of searches in the index against exact search; raises TrainingError if it is too low."""
    if not len(ids):
        return 1.0
    shares = 0.0
    picks = np.unique(np.linspace(0, len(ids) - 1, _SAMPLE).astype(int))
    top_k = min(_SAMPLE_TOP_K, len(ids))
    for pick in picks.tolist():
        scores = exact @ exact[pick]
        # Turns with (almost) the same score at the cut-off are equally good.
        border = np.sort(scores)[-top_k] - 1e-4 * abs(scores).max()
        wanted = {ids[i] for i in np.flatnonzero(scores >= border).tolist()}
        matches = collection.search(exact[pick], SearchFilter(name), top_k=top_k)
        shares += sum(match.node_id in wanted for match in matches) / top_k
    recall = shares / len(picks)
    if recall < _LEAST_RECALL:
        raise TrainingError(
            f"collection {collection.name!r} finds {recall:.0%} of the exact neighbours, at least {_LEAST_RECALL:.0%} "
            "is needed; the alias was not changed"
        )
    return recall
