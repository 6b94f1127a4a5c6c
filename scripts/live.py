"""v2 over the embeddings that a refresh has put in use."""

from __future__ import annotations

from pathlib import Path

from locigraph.kg.errors import LocigraphError
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.strategies.graph_embedding import GraphEmbeddingRetriever
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.scripts.strategies import texts_of
from locigraph.training.checkpoint import load_checkpoint
from locigraph.training.inference import CheckpointQueryEncoder


def graph_retriever(
    graph: Store, index: MilvusIndex, encoder: CachedTextEncoder, checkpoint: str, space: SpaceId
) -> GraphEmbeddingRetriever:
    """The retriever over a space whose turns all have embeddings.

    Raises:
        CheckpointError: If the checkpoint cannot be used.
        LocigraphError: If some turns have no embedding yet.
    """
    loaded = load_checkpoint(Path(checkpoint), text_encoder=encoder.model_id)
    collection = index.open(GRAPH_ALIAS)
    turns, held = graph.node_counts(space)["episode"], collection.count(space)
    if held < turns:
        raise LocigraphError(
            f"space {space!r}: {held} of {turns} turns have graph embeddings; run locigraph refresh with checkpoint "
            f"{checkpoint!r}"
        )
    return GraphEmbeddingRetriever(collection, CheckpointQueryEncoder(loaded, encoder.encode), texts_of(graph))
