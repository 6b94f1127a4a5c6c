"""Embeds the descriptions of nodes that have no vector yet, in the store or only in a snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from locigraph.kg.embedded_text import TextEncoder, reads_turn_before
from locigraph.kg.errors import InvalidVectorError
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.store.neighbourhood import Neighbourhood
from locigraph.kg.types import SpaceId


def embed_lacking(
    store: Store,
    spaces: Iterable[SpaceId],
    encoder: TextEncoder,
    *,
    checks_vectors: bool,
    to_indexes: bool,
    keys: Collection[int] | None = None,
    is_final: bool = True,
    progress: str | None = None,
) -> None:
    """Embed the nodes of spaces that have no vector of a text encoder yet, and what changes meanwhile.

    Args:
        store: The graph.
        spaces: The spaces.
        encoder: The text encoder; it reads the texts of all spaces at once.
        checks_vectors: Whether a damaged vector counts as missing; see ``Store.unembedded``.
        to_indexes: Whether the vectors are also to be written to the indexes; see ``Store.put_embeddings``.
        keys: Keys of the nodes to look at; None for all.
        is_final: Whether to look again for what was added meanwhile, until there is nothing.
        progress: Name on the progress bar; None shows none.
    """
    model = encoder.model_id
    lacking = {space: store.unembedded(space, model, checks_vectors=checks_vectors, keys=keys) for space in spaces}
    while texts := [each.text for nodes in lacking.values() for each in nodes]:
        vectors, start = encoder.encode(texts, progress=progress), 0
        for space, nodes in lacking.items():
            if nodes:
                store.put_embeddings(space, model, nodes, vectors[start : start + len(nodes)], to_indexes=to_indexes)
                start += len(nodes)
        if not is_final:
            return
        # A node may have been added meanwhile, or another turn may stand before one whose text was read.
        lacking = {space: store.unembedded(space, model, keys=keys) for space, nodes in lacking.items() if nodes}


def embedded_snapshot(
    store: Store, space: SpaceId, encoder: TextEncoder, *, part: Neighbourhood | None = None
) -> Snapshot:
    """The current graph of a space with text embeddings, for writers: those that the store lacks are written to it.

    A damaged vector counts as missing.

    Args:
        store: The graph.
        space: The space.
        encoder: The text encoder.
        part: The part of the space to read; None for all of it.

    Raises:
        UnknownSpaceError: If there is no such space.
    """

    keys = None if part is None else part.nodes
    # Usually nothing is lacking, and to read all vectors only to find damaged ones takes long.
    for checks_vectors in (False, True):
        with suppress(InvalidVectorError):
            return store.snapshot(space, embedding_model=encoder.model_id, part=part)
        embed_lacking(store, [space], encoder, checks_vectors=checks_vectors, to_indexes=False, keys=keys)
    return store.snapshot(space, embedding_model=encoder.model_id, part=part)


def snapshot_with_vectors(
    store: Store, space: SpaceId, encoder: TextEncoder, *, as_of: datetime | None = None
) -> Snapshot:
    """The graph of a space with text embeddings, for readers: those that the store lacks are computed, not written.

    A reader beside a writer needs this, since added nodes get vectors of an adapter only with the next search of the
    writer. The text cache holds the vectors of all other nodes.

    Args:
        store: The graph.
        space: The space.
        encoder: The text encoder; it reads all texts if one has no vector, and otherwise none.
        as_of: Nothing recorded later is visible; None for now.

    Raises:
        UnknownSpaceError: If there is no such space.
        InvalidVectorError: If a vector is damaged.
    """
    model = encoder.model_id
    try:
        return store.snapshot(space, as_of=as_of, embedding_model=model)
    except InvalidVectorError:
        if len(store.unembedded(space, model, checks_vectors=True)) > len(store.unembedded(space, model)):
            raise  # damaged, and not only lacking
        snapshot = store.snapshot(space, as_of=as_of)
        texts = snapshot.embedded_texts(turn_before=reads_turn_before(model))
        return replace(snapshot, embeddings=encoder.encode(texts))
