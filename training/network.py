"""The trained model: a graph encoder and a query encoder, as one PyTorch module."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from torch import nn

from locigraph.gnn.encoders import GRAPH_ENCODERS, EncoderConfig, QueryEncoder
from locigraph.training.checkpoint import hashed_features
from locigraph.training.config import ModelConfig


class GraphRetrieval(nn.Module):
    """The model that is trained and that a checkpoint holds: a graph encoder and a query encoder.

    Args:
        model: The graph encoder and its widths.
        text_dim: Width of the text embeddings.

    Raises:
        UnknownNameError: If the graph encoder is not in its table.
    """

    def __init__(self, model: ModelConfig, *, text_dim: int) -> None:
        super().__init__()
        config = EncoderConfig(
            text_dim=text_dim,
            lexical_dim=model.lexical_dim,
            context_dim=model.speaker_dim + model.date_dim,
            attention_dim=model.attention_dim,
            excluded_relations=tuple(model.excluded_relations),
        )
        self.nodes = GRAPH_ENCODERS[model.encoder](config)
        self.queries = QueryEncoder(hashed_features(model).widths(text_dim))

    def weights(self) -> dict[str, NDArray[Any]]:
        """A copy of the weights by name, as a checkpoint holds them."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.state_dict().items()}
