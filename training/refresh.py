"""Batch refresh of the graph embeddings: encode, write, verify, flip the alias.

Readers see the old collection or the new, never a mixture. The collection's name is a hash of checkpoint and data, so
an interrupted refresh finds what it wrote and goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from locigraph.kg.schema import schema_hash
from locigraph.kg.snapshot import Snapshot
from locigraph.retrieval.errors import IndexMismatchError
from locigraph.retrieval.index.descriptions import index_type, snapshot_rows
from locigraph.retrieval.index.milvus import Collection, CollectionSpec, MilvusIndex
from locigraph.retrieval.protocols import SearchScope
from locigraph.retrieval.strategies.graph_embedding import DEFAULT_TYPES
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.errors import TrainingError
from locigraph.training.inference import encode_graph
from locigraph.training.views import View

#: Alias that v2 searches.
GRAPH_ALIAS = "graph_embeddings"
_PREFIX = "emb_"
_SAMPLE = 20
_SAMPLE_TOP_K = 10
# Below this share of the exact neighbours an approximate index is refused.
_LEAST_RECALL = 0.9


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a refresh did. ``sample_recall`` compares the index with exact search, 1 when they agree."""

    collection: str
    nodes: int
    written: int
    sample_recall: float


def refresh(
    index: MilvusIndex,
    checkpoint: Checkpoint,
    views: Sequence[View],
    load: Callable[[View], Snapshot],
    *,
    alias: str | None = GRAPH_ALIAS,
    types: Sequence[str] = DEFAULT_TYPES,
    device: str = "cpu",
    progress: str | None = "refresh",
) -> Refreshed:
    """Encode the views' graphs with a checkpoint and put the vectors of what is searched in use.

    Args:
        index: Where to write.
        checkpoint: Encodes.
        views: What to encode.
        load: Snapshot of a view, with embeddings.
        alias: Flipped to the new collection when it is complete and verified; the one before is kept, older ones are
            dropped. None flips nothing.
        types: Node types whose vectors are written: those that v2 searches. A search pays for every row of a tenant.
        device: Where to encode.
        progress: Name on the progress bar; None shows none.

    Raises:
        TrainingError: If two views have the same name, or the written collection does not verify; the alias still
            points at the old one.
    """
    if not views:
        raise TrainingError("there is no space to refresh; run locigraph build first")
    named = {view.name: view for view in reversed(views)}
    for view in views:
        if named[view.name] != view:  # each would be served the other's rows
            raise TrainingError(f"{view} and {named[view.name]} have the same name in a collection; rename a space")
    name, due = _due(checkpoint, views, load, types)
    total = sum(due.values())
    spec = CollectionSpec(
        checkpoint.network.nodes.config.vector_dim, "IP", checkpoint.version, schema_hash(), index_type(total)
    )
    collection = index.open_or_create(name, spec)
    written = 0
    with tqdm(desc=progress, total=total, unit="node", disable=progress is None) as bar:
        for view in views:
            if collection.count(view.name) != due[view]:
                snapshot = load(view)
                vectors = encode_graph(checkpoint, snapshot, device=device)
                rows = snapshot.active_rows(types)
                collection.upsert(snapshot_rows(view.name, snapshot, rows), vectors[rows])
                written += len(rows)
            bar.update(due[view])
    collection.flush()
    recall = _verify(collection, checkpoint, views, due, load, types, device)
    if alias is not None:
        previous = index.alias_target(alias)
        if previous != name:  # else nothing changed, and the version before stays the one before
            index.point(alias, name)
            _drop_older(index, keep={name, previous})
    return Refreshed(name, total, written, recall)


def _due(
    checkpoint: Checkpoint, views: Sequence[View], load: Callable[[View], Snapshot], types: Sequence[str]
) -> tuple[str, dict[View, int]]:
    """The name of the collection that is due, and how many rows each view has there."""
    digest = hashlib.sha256(f"{checkpoint.version} {sorted(types)}".encode())
    counts = {}
    for view in views:
        snapshot = load(view)
        digest.update(f"{view.name}={snapshot.fingerprint};".encode())
        counts[view] = len(snapshot.active_rows(types))
    return _PREFIX + digest.hexdigest()[:16], counts


def _verify(
    collection: Collection,
    checkpoint: Checkpoint,
    views: Sequence[View],
    due: dict[View, int],
    load: Callable[[View], Snapshot],
    types: Sequence[str],
    device: str,
) -> float:
    """Counts, finite numbers, and a sample of searches against exact ones."""
    for view in views:
        held = collection.count(view.name)
        if held != due[view]:
            raise TrainingError(
                f"collection {collection.name!r} holds {held} nodes of {view.name!r} but the graph has {due[view]}; "
                "run the refresh again"
            )
    view = max(views, key=lambda v: due[v])
    if not due[view]:
        return 1.0
    snapshot = load(view)
    rows = snapshot.active_rows(types)
    exact = encode_graph(checkpoint, snapshot, device=device)[rows]
    ids = [snapshot.ids[row] for row in rows]
    norms = np.linalg.norm(exact, axis=1)
    if not np.isfinite(norms).all() or float(norms.min()) == 0.0:
        raise TrainingError(f"checkpoint {checkpoint.version!r} encodes some nodes as zero or NaN; train again")
    found = 0.0
    picks = np.unique(np.linspace(0, len(ids) - 1, _SAMPLE).astype(int))
    top_k = min(_SAMPLE_TOP_K, len(ids))
    for pick in picks:
        scores = exact @ exact[pick]
        # Equal scores at the border are as good as each other.
        border = np.sort(scores)[-top_k] - 1e-4 * abs(scores).max()
        wanted = {ids[i] for i in np.flatnonzero(scores >= border)}
        matches = collection.search(exact[pick], SearchScope(view.name), top_k=top_k)
        found += sum(match.node_id in wanted for match in matches) / top_k
    recall = found / len(picks)
    if recall < _LEAST_RECALL:
        raise TrainingError(
            f"collection {collection.name!r} finds {recall:.0%} of the exact neighbours, at least {_LEAST_RECALL:.0%} "
            "is needed; the alias was not changed"
        )
    return recall


def _drop_older(index: MilvusIndex, *, keep: set[str | None]) -> None:
    for name in index.collections():
        if name.startswith(_PREFIX) and name not in keep:
            index.drop(name)


def forget_in_collections(index: MilvusIndex, space: str, node_keys: Sequence[int]) -> None:
    """Remove nodes from every collection of graph embeddings, the kept previous one included."""
    for name in index.collections():
        if name.startswith(_PREFIX):
            try:
                collection = index.open(name)
            except IndexMismatchError:
                continue  # not ours, or cut before it could describe itself and so before it held anything
            collection.forget_nodes(space, node_keys)
            collection.flush()
