"""A checkpoint at work: questions and graphs to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import torch
from numpy.typing import NDArray

from locigraph.gnn.hetero import METADATA, inputs_of, to_hetero
from locigraph.gnn.query import query_batch
from locigraph.kg.snapshot import Snapshot
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.protocols import Embed


class CheckpointQueryEncoder:
    """Questions to vectors.

    Args:
        checkpoint: Frozen.
        embed: The text encoder that the checkpoint names.
        device: Where to run.
    """

    def __init__(self, checkpoint: Checkpoint, embed: Embed, *, device: str = "cpu") -> None:
        self._checkpoint = checkpoint
        self._embed = embed
        self._device = device
        self._network = checkpoint.network.queries.to(device).eval()
        self.version: str = checkpoint.version

    def encode_query(self, text: str, *, asked_at: datetime | None = None) -> NDArray[np.float32]:
        """float32 [dim]; see ``retrieval.protocols.QueryEncoder``."""
        vector: NDArray[np.float32] = self.encode_queries([text], asked_at=[asked_at])[0]
        return vector

    def encode_queries(
        self, texts: Sequence[str], *, asked_at: Sequence[datetime | None] | None = None
    ) -> NDArray[np.float32]:
        """float32 [questions, dim]."""
        checkpoint = self._checkpoint
        batch = query_batch(texts, self._embed(texts), checkpoint.sketch, checkpoint.context, asked_at=asked_at)
        with torch.inference_mode():
            vectors = self._network(batch.to(self._device))
        return _array(vectors)


def encode_graph(checkpoint: Checkpoint, snapshot: Snapshot, *, device: str = "cpu") -> NDArray[np.float32]:
    """Vectors of all nodes of a snapshot.

    Args:
        checkpoint: Frozen.
        snapshot: With embeddings of the checkpoint's text encoder.
        device: Where to run.

    Returns:
        float32 [nodes, dim], in the snapshot's order.
    """
    inputs = inputs_of(to_hetero(snapshot, checkpoint.sketch, checkpoint.context), METADATA).to(device)
    network = checkpoint.network.nodes.to(device).eval()
    with torch.inference_mode():
        packed = _array(network(inputs).joined())
    vectors = np.empty_like(packed)
    vectors[inputs.rows.cpu().numpy()] = packed
    return vectors


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.float().cpu().numpy()
    return array
