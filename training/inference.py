"""Encodes questions, and the turns of a graph, with a checkpoint.

PyTorch is imported only when a graph is encoded; encoding a question to search stored vectors does not need it.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.schema import EPISODE
from locigraph.kg.snapshot import Snapshot
from locigraph.training.checkpoint import Checkpoint, hashed_features

if TYPE_CHECKING:
    from locigraph.gnn.features import GraphReader

_TURNS_AT_ONCE = 8_192  # about 300 MB with their neighbours


class CheckpointQueryEncoder:
    """Encodes questions with a checkpoint and the text encoder that it names."""

    def __init__(self, checkpoint: Checkpoint, encoder: TextEncoder) -> None:
        self._checkpoint = checkpoint
        self._encoder = encoder
        self.version: str = checkpoint.version

    def encode_query(self, text: str, *, asked_at: datetime | None = None) -> NDArray[np.float32]:
        """Vector of a question, float32 [dim]; see ``retrieval.protocols.QueryEncoder``."""
        hashed = hashed_features(self._checkpoint.model)
        features = hashed.questions([text], self._encoder.encode([text]), asked_at=[asked_at])[0]
        vector: NDArray[np.float32] = features * self._checkpoint.query_scale
        return vector


def reader_of(checkpoint: Checkpoint, snapshot: Snapshot) -> GraphReader:
    """Reads a snapshot for a checkpoint's encoder."""
    from locigraph.gnn.features import GraphReader

    return GraphReader(snapshot, hashed_features(checkpoint.model), checkpoint.network.nodes.relations)


def encode_graph(
    checkpoint: Checkpoint, snapshot: Snapshot, *, device: str = "cpu"
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Encode the turns of a snapshot that has embeddings of the checkpoint's text encoder, a block of turns at a time.

    Returns:
        (rows of the active turns in the snapshot, their vectors, float32 [turns, dim]); both empty if there are none.
    """
    if not len(snapshot.active_rows((EPISODE,))):
        return np.zeros(0, dtype=np.int64), np.zeros((0, checkpoint.vector_dim), dtype=np.float32)
    import torch

    reader, nodes = reader_of(checkpoint, snapshot), checkpoint.network.nodes.to(device).eval()
    vectors = np.empty((len(reader.turns), checkpoint.vector_dim), dtype=np.float32)
    done = 0
    with torch.inference_mode():
        for block in reader.blocks(_TURNS_AT_ONCE):
            vectors[done : done + block.num_turns] = nodes(block.to(device)).joined().float().cpu().numpy()
            done += block.num_turns
    return reader.turns, vectors
