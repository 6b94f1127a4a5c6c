"""Embeds the descriptions of nodes that have no vector yet, in the store or only in a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.embedded_text import reads_turn_before
from locigraph.kg.errors import InvalidVectorError
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId


def embed_lacking(
    store: Store,
    spaces: Iterable[SpaceId],
    model: str,
    embed: Callable[[list[str]], NDArray[np.float32]],
    *,
    checks_vectors: bool,
    to_indexes: bool,
) -> None:
    """Embed the nodes of spaces that have no vector of a text encoder yet, and what changes meanwhile.

    Args:
        store: The graph.
        spaces: The spaces.
        model: ID of the text encoder.
        embed: The text encoder; called with the texts of all spaces at once, and not at all if no vector is missing.
        checks_vectors: Whether a damaged vector counts as missing; see ``Store.unembedded``.
        to_indexes: Whether the vectors are also to be written to the indexes; see ``Store.put_embeddings``.
    """
    lacking = {space: store.unembedded(space, model, checks_vectors=checks_vectors) for space in spaces}
    while texts := [each.text for nodes in lacking.values() for each in nodes]:
        vectors, start = embed(texts), 0
        for space, nodes in lacking.items():
            if nodes:
                store.put_embeddings(space, model, nodes, vectors[start : start + len(nodes)], to_indexes=to_indexes)
                start += len(nodes)
        # A node may have been added meanwhile, or another turn may stand before one whose text was read.
        lacking = {space: store.unembedded(space, model) for space, nodes in lacking.items() if nodes}


def embedded_snapshot(
    store: Store, space: SpaceId, model: str, embed: Callable[[Sequence[str]], NDArray[np.float32]]
) -> Snapshot:
    """The current graph of a space with text embeddings, for writers: those that the store lacks are written to it.

    A damaged vector counts as missing.

    Args:
        store: The graph.
        space: The space.
        model: ID of the text encoder.
        embed: The text encoder; called only if a vector is missing.

    Raises:
        UnknownSpaceError: If there is no such space.
    """

    def read(*, checks_vectors: bool) -> Snapshot:
        embed_lacking(store, [space], model, embed, checks_vectors=checks_vectors, to_indexes=False)
        return store.snapshot(space, embedding_model=model)

    try:
        return read(checks_vectors=False)
    except InvalidVectorError:  # rare, so vectors are checked only after a failure
        return read(checks_vectors=True)


def snapshot_with_vectors(
    store: Store,
    space: SpaceId,
    model: str,
    embed: Callable[[Sequence[str]], NDArray[np.float32]],
    *,
    as_of: datetime | None = None,
) -> Snapshot:
    """The graph of a space with text embeddings, for readers: those that the store lacks are computed, not written.

    A reader beside a writer needs this, since added nodes get vectors of an adapter only with the next search of the
    writer. The text cache holds the vectors of all other nodes.

    Args:
        store: The graph.
        space: The space.
        model: ID of the text encoder.
        embed: The text encoder; called with all texts, and only if one has no vector.
        as_of: Nothing recorded later is visible; None for now.

    Raises:
        UnknownSpaceError: If there is no such space.
        InvalidVectorError: If a vector is damaged.
    """
    try:
        return store.snapshot(space, as_of=as_of, embedding_model=model)
    except InvalidVectorError:
        if len(store.unembedded(space, model, checks_vectors=True)) > len(store.unembedded(space, model)):
            raise  # damaged, and not only lacking
        snapshot = store.snapshot(space, as_of=as_of)
        return replace(snapshot, embeddings=embed(snapshot.embedded_texts(turn_before=reads_turn_before(model))))
