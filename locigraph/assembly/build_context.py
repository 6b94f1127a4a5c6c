"""v1 as consolidation uses it: while the graph is built, it finds the nodes that a turn may change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from locigraph.consolidation.protocols import Found
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.schema import plannable_types
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.times import epoch
from locigraph.kg.types import Node, NodeId, NodeStatus, SpaceId, Turn
from locigraph.retrieval.index.documents import Document, LexicalIndex
from locigraph.retrieval.index.memory_vectors import MemoryVectors
from locigraph.retrieval.protocols import VectorMatch
from locigraph.retrieval.strategies.hybrid import HybridRetriever


class HybridContext:
    """Finds the context of a turn with v1, whose two indexes are in memory and updated by the pipeline itself.

    Args:
        store: The graph, with the nodes of earlier runs.
        encoder: The pipeline's encoder.
    """

    def __init__(self, store: Store, encoder: TextEncoder) -> None:
        self._store = store
        self._encoder = encoder
        self._vectors = MemoryVectors()
        self._lexical = LexicalIndex(self._load, types=plannable_types())
        self._retriever = HybridRetriever(self._lexical, self._vectors, encoder, types=plannable_types(), depth=20)

    def drop(self, space: SpaceId) -> None:
        """Discard a space from memory; it is read again when it is next needed."""
        self._lexical.drop(space)
        self._vectors.drop(space)

    def _load(self, space: SpaceId, as_of: datetime | None) -> Snapshot:
        # At the first search of a space: nodes of earlier runs are read once, later nodes are added by observe().
        snapshot = self._store.snapshot(space, as_of=as_of, embedding_model=self._encoder.model_id)
        self._vectors.add_snapshot(snapshot, types=plannable_types())
        return snapshot

    def find(self, turn: Turn, *, limit: int) -> Found:
        """The event and knowledge nodes nearest to a turn's words."""
        self._lexical.load(turn.space)
        hits = self._retriever.retrieve(turn.utterance, turn.space, top_k=limit).hits
        documents = (self._lexical.document(turn.space, hit.node_id) for hit in hits)
        # A late or retried turn is consolidated after later ones, and must neither change nor end what those said.
        latest = epoch(turn.recorded_at)
        known, later = list[NodeId](), list[NodeId]()
        for document in documents:
            if document is not None:
                (known if document.recorded_at <= latest else later).append(document.node_id)
        return Found(known[:limit], later)

    def observe(self, space: SpaceId, nodes: Sequence[Node], vectors: NDArray[np.float32]) -> None:
        """Update the indexes with the nodes that a turn created, reworded or archived."""
        for node in nodes:
            if node.status == NodeStatus.ARCHIVED:
                self._lexical.remove(space, node.id)
                self._vectors.remove(space, node.id)
        kept = [i for i, n in enumerate(nodes) if n.type in plannable_types() and n.status == NodeStatus.ACTIVE]
        for i in kept:
            node = nodes[i]
            document = Document(node.id, node.type, node.description, node.provenance, epoch(node.created_at))
            self._lexical.add(space, document)
        chosen = [nodes[i] for i in kept]
        matches = [(VectorMatch(n.id, n.type, n.provenance, 0.0), epoch(n.created_at)) for n in chosen]
        self._vectors.add(space, matches, vectors[kept])
