"""Batch refresh of the graph embeddings: encode, write, verify, flip the alias.

Readers see either the old collection or the new one, never a mixture. A collection's name is a hash of checkpoint and
data, so a refresh that was interrupted finds what it had written and continues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from locigraph.kg.counts import counted
from locigraph.kg.errors import UnknownSpaceError
from locigraph.kg.schema import EPISODE, schema_hash
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import SpaceId
from locigraph.kg.views import View
from locigraph.retrieval.index.descriptions import index_type, snapshot_rows
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS, GRAPH_COLLECTION, GRAPH_PREFIX
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_collection import Collection, CollectionSpec, IndexRow
from locigraph.retrieval.protocols import SearchFilter
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.errors import TrainingError
from locigraph.training.inference import encode_anew

_SAMPLE = 20
_SAMPLE_TOP_K = 10
# An approximate index that finds less than this share of the exact neighbours is refused.
_LEAST_RECALL = 0.9
# Snapshots are cached from fingerprinting to encoding, up to this many bytes of embeddings; others are read again.
_KEPT_BYTES = 2**29


#: The index rows of a view's turns, and their vectors.
Encoded = tuple[Sequence[IndexRow], NDArray[np.float32]]
#: Writes the rows of views into the collection of a name; yields each view with the number of rows, once they are
#: acknowledged, in any order. Writing a view twice must change nothing.
ViewWriter = Callable[[str, Sequence[View]], Iterator[tuple[View, int]]]
#: Keeps the counts of words of a space for a collection; see ``Store.put_word_statistics``.
StatisticsKeeper = Callable[[SpaceId, str, bytes], None]


@dataclass(frozen=True, slots=True)
class ViewState:
    """What is known of a view without reading it.

    Attributes:
        turns: Number of its turns.
        fingerprint: Differs for any two states of the view.
    """

    turns: int
    fingerprint: str


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
    states: Mapping[View, ViewState] | None = None,
    writer: ViewWriter | None = None,
    keep: StatisticsKeeper | None = None,
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
        load: Reads the snapshot of a view, with embeddings.
        store: Identity of the store that the graphs belong to; empty for graphs of a single comparison.
        states: What is known of each view; None to read it from the snapshots, which are then read a second time if
            they take too much memory together.
        writer: Writes the views; None to do so in this process (see ``local_writer``).
        keep: Called with the counts of words of each view that is encoded, before its vectors are written; None if they
            are not needed, since nothing will be added.
        alias: Alias that will point at the new collection once it is complete and verified. The previous collection is
            kept, and older ones of the store are dropped. None sets no alias.
        device: Device on which graphs are encoded.
        progress: Name on the progress bar; None shows none.

    Raises:
        TrainingError: If there are no views, two views have the same name, a vector is zero or not finite, or the
            written collection fails verification. The alias then still points at the old collection.
    """
    _require_names(views)
    states, kept = _states_of(views, load) if states is None else (states, {})
    digest = hashlib.sha256(f"{checkpoint.version}{store}".encode())
    due: dict[View, int] = {}
    for view in views:
        digest.update(f"{view.name}={states[view].fingerprint};".encode())
        due[view] = states[view].turns
    total = sum(due.values())
    dim = checkpoint.vector_dim
    spec = CollectionSpec(dim, "IP", checkpoint.version, schema_hash(), index_type(total), store)
    collection = index.open_or_create(GRAPH_PREFIX + digest.hexdigest()[:16], spec)
    largest = max(views, key=lambda view: due[view])
    sample: list[Encoded] = []

    def encode(view: View) -> Encoded:
        snapshot = kept.pop(view) if view in kept else load(view)
        found = encoded(checkpoint, view, snapshot, collection.name, device=device, keep=keep)
        if view == largest:
            sample.append(found)
        return found

    if writer is None:
        writer = local_writer(index, encode)
    stored: Mapping[str, int] = {}
    collection.synchronise()
    if collection.count():  # rows of an interrupted refresh
        collection.flush()
        stored = collection.counts()
    lacking = [view for view in due if stored.get(view.name, 0) != due[view]]
    written = 0
    with tqdm(desc=progress, total=total, unit="turn", disable=progress is None) as bar:
        bar.update(total - sum(due[view] for view in lacking))
        for view, rows in writer(collection.name, lacking):
            written += rows
            bar.update(due[view])
            due[view] = rows  # another process may have added turns, or forgotten the space, since they were counted
    collection.flush()
    collection.synchronise()
    _require_all(collection, due)
    recall = 1.0
    if due[largest]:
        reference = _as_stored(collection, largest.name, sample[0] if sample else encode(largest))
        recall = _sample_recall(collection, largest.name, *reference)
    if alias is not None:
        put_in_use(index, alias, collection.name, store=store)
    return Refreshed(collection.name, total, written, recall)


def _require_names(views: Sequence[View]) -> None:
    """Raise TrainingError if there are no views, or searches of one would find the rows of another."""
    if not views:
        raise TrainingError("there is no space to refresh; run locigraph build first")
    named = {view.name: view for view in reversed(views)}
    for view in views:
        if named[view.name] != view:
            raise TrainingError(
                f"{view} and {named[view.name]} would have the same name in the collection; rename a space"
            )


def _states_of(
    views: Sequence[View], load: Callable[[View], Snapshot]
) -> tuple[dict[View, ViewState], dict[View, Snapshot]]:
    """What is known of each view, and as many of the snapshots that were read for it as there is room for."""
    states: dict[View, ViewState] = {}
    kept: dict[View, Snapshot] = {}
    room = _KEPT_BYTES
    for view in views:
        snapshot = load(view)
        states[view] = ViewState(len(snapshot.active_rows((EPISODE,))), snapshot.fingerprint)
        room -= snapshot.embeddings.nbytes
        if room > 0:
            kept[view] = snapshot
    return states, kept


def _require_all(collection: Collection, turns: Mapping[View, int]) -> None:
    """Raise TrainingError unless a collection holds so many turns of each view."""
    stored = collection.counts()
    for view, number in turns.items():
        if stored.get(view.name, 0) != number:
            raise TrainingError(
                f"collection {collection.name!r} holds {counted(stored.get(view.name, 0), 'turn')} of {view.name!r} "
                f"but the graph has {number}; run the refresh again"
            )


def encoded(
    checkpoint: Checkpoint,
    view: View,
    snapshot: Snapshot,
    collection: str,
    *,
    device: str = "cpu",
    keep: StatisticsKeeper | None = None,
) -> Encoded:
    """The index rows of a view's turns and their vectors, float32 [turns, dim], for a collection.

    Raises:
        TrainingError: If a vector is zero or not finite.
    """
    statistics, rows, vectors = encode_anew(checkpoint, snapshot, device=device)
    require_usable(checkpoint, vectors)
    if keep is not None and statistics is not None:
        keep(view.space, collection, statistics.as_bytes())
    return snapshot_rows(view.name, snapshot, rows), vectors


def local_writer(index: MilvusIndex, encode: Callable[[View], Encoded]) -> ViewWriter:
    """Writes views in this process, one after another, so that the memory for the largest is all that is needed."""

    def write(name: str, views: Sequence[View]) -> Iterator[tuple[View, int]]:
        collection = index.open(name)
        for view in views:
            try:
                rows, vectors = encode(view)
            except UnknownSpaceError:  # forgotten by another process meanwhile
                yield view, 0
                continue
            are_new = not index.is_embedded and not collection.count(view.name)
            collection.upsert(rows, vectors, are_new=are_new)
            yield view, len(rows)

    return write


def put_in_use(index: MilvusIndex, alias: str, name: str, *, store: str, keeps_previous: bool = True) -> None:
    """Point an alias at a collection, and drop the store's other collections except, if it is kept, the previous one.

    If the alias points at it already, nothing changes, and the previous collection is kept as well.
    """
    previous = index.alias_target(alias)
    if previous == name and keeps_previous:
        return
    index.point(alias, name)
    for other in index.owned(GRAPH_COLLECTION, store):
        if other != name and not (keeps_previous and other == previous):
            index.drop(other)


def require_usable(checkpoint: Checkpoint, vectors: NDArray[np.float32]) -> None:
    """Raise TrainingError if a vector is zero or holds NaN."""
    norms = np.linalg.norm(vectors, axis=1)
    if not (np.isfinite(norms) & (norms > 0)).all():
        raise TrainingError(f"checkpoint {checkpoint.version!r} encodes some turns as zero or NaN; train again")


def _as_stored(collection: Collection, name: str, encoded_now: Encoded) -> Encoded:
    """What was encoded of a view, or what the collection has of it if the graph has changed since that was written."""
    if sorted(row.node_key for row in encoded_now[0]) == collection.node_keys(name):
        return encoded_now
    stored = collection.rows(name)
    vectors = collection.vectors(name, [*stored])
    return [stored[key] for key in vectors], np.stack([*vectors.values()])


def _sample_recall(collection: Collection, name: str, rows: Sequence[IndexRow], exact: NDArray[np.float32]) -> float:
    """Recall of a sample of searches in the index against exact search; raises TrainingError if it is too low."""
    ids = [row.node_id for row in rows]
    if not ids:
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
