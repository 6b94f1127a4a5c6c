"""Converts the graph network's input to PyG's ``HeteroData``, on which every model of PyTorch Geometric runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from locigraph.gnn.features import GraphInputs, node_types
from locigraph.gnn.relations import NetworkRelation
from locigraph.kg.schema import EPISODE

if TYPE_CHECKING:  # the import takes seconds, since it also loads data sets and transformers
    from torch_geometric.data import HeteroData


def to_hetero_data(inputs: GraphInputs, relations: Sequence[NetworkRelation]) -> HeteroData:
    """Convert a graph to ``HeteroData``, adding the reverse of every relation so that every node type gets messages.

    ``relations`` are those that the graph was made with.

    Returns:
        On the device of the graph's features. Each node store has ``x`` (text embeddings), ``lexical``, ``context``,
        ``traits`` and ``row``, the node's row in the snapshot; each edge store has ``edge_index``. Edge types are
        ``(source, name of the relation, "episode")`` and ``("episode", "rev_" + name, source)``.
    """
    from torch_geometric.data import HeteroData

    data = HeteroData()
    place = torch.empty_like(inputs.node_type)
    for position, kind in enumerate(node_types(relations)):
        nodes = (inputs.node_type == position).nonzero().squeeze(1)
        place[nodes] = torch.arange(len(nodes), device=nodes.device)
        store, there = data[kind], inputs.on_device(nodes)
        store.x, store.lexical, store.context = inputs.text[there], inputs.lexical[there], inputs.context[there]
        store.traits, store.row = inputs.traits[there], inputs.on_device(inputs.rows[nodes])
    for position, relation in enumerate(relations):
        edges = inputs.relation == position
        ends = inputs.on_device(torch.stack([place[inputs.source[edges]], place[inputs.target[edges]]]))
        data[relation.source, relation.name, EPISODE].edge_index = ends
        data[EPISODE, f"rev_{relation.name}", relation.source].edge_index = ends.flip(0)
    return data
