"""Collections of graph embeddings: how they are named, and how all of them forget."""

from __future__ import annotations

from collections.abc import Sequence

from locigraph.retrieval.errors import IndexMismatchError
from locigraph.retrieval.index.milvus import MilvusIndex

#: Alias of the collection that v2 searches.
GRAPH_ALIAS = "graph_embeddings"
#: How the names of these collections begin.
PREFIX = "emb_"


def forget_in_collections(index: MilvusIndex, space: str, node_keys: Sequence[int]) -> None:
    """Remove nodes from every collection of graph embeddings, the kept previous one included."""
    for name in index.collections():
        if name.startswith(PREFIX):
            try:
                collection = index.open(name)
            except IndexMismatchError:
                continue  # not ours, or cut before it could describe itself and so before it held anything
            collection.forget_nodes(space, node_keys)
            collection.flush()
