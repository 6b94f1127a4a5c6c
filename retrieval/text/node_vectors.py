"""Embeds the descriptions of nodes that have no vector yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

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
    """Embed the nodes of spaces that have no vector of a text encoder yet.

    Args:
        store: The graph.
        spaces: The spaces.
        model: ID of the text encoder.
        embed: The text encoder; called once with the texts of all spaces, and not at all if no vector is missing.
        checks_vectors: Whether a damaged vector counts as missing; see ``Store.unembedded``.
        to_indexes: Whether the vectors are also to be written to the indexes; see ``Store.put_embeddings``.
    """
    found = {space: store.unembedded(space, model, checks_vectors=checks_vectors) for space in spaces}
    texts = [each.text for nodes in found.values() for each in nodes]
    if not texts:
        return
    vectors, start = embed(texts), 0
    for space, nodes in found.items():
        if nodes:
            store.put_embeddings(space, model, nodes, vectors[start : start + len(nodes)], to_indexes=to_indexes)
            start += len(nodes)
