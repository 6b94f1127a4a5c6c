"""The trained model: a graph encoder and a query encoder, as one PyTorch module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from locigraph.gnn.encoders import GRAPH_ENCODERS, EncoderConfig
from locigraph.gnn.query import query_widths
from locigraph.gnn.query_encoder import QueryEncoder
from locigraph.training.checkpoint import features_of
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
        self.nodes = GRAPH_ENCODERS[model.encoder].make(config)
        self.queries = QueryEncoder(query_widths(text_dim, *features_of(model)))


def weights_of(network: GraphRetrieval) -> dict[str, NDArray[Any]]:
    """A copy of a network's weights by name, as a checkpoint holds them."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in network.state_dict().items()}


def network_of(model: ModelConfig, text_dim: int, weights: Mapping[str, NDArray[Any]]) -> GraphRetrieval:
    """Build a network with given weights, in evaluation mode.

    Raises:
        RuntimeError: If the weights do not fit the network.
    """
    network = GraphRetrieval(model, text_dim=text_dim)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return network.eval()
