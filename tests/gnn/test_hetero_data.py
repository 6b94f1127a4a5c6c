from __future__ import annotations

import torch
from torch_geometric.nn import HGTConv

from locigraph.gnn.hetero_data import to_hetero_data
from locigraph.gnn.relations import network_relations
from tests.fakes import make_turns
from tests.fakes_graph import TEXT_DIM, Extra, make_inputs, make_snapshot


def test_a_space_as_hetero_data_has_its_nodes_edges_and_their_reverse() -> None:
    extras = [Extra("knowledge_node", "Ann owns a canoe", (0,)), Extra("knowledge_node", "It is red", (1,))]
    inputs = make_inputs(
        make_snapshot(make_turns(["A canoe", "A red one"]), extras, [(2, "DERIVED_FROM", 0), (3, "DERIVED_FROM", 1)])
    )
    data = to_hetero_data(inputs, network_relations())
    assert data["knowledge_node"].row.tolist() == [2, 3]
    assert data["knowledge_node", "fact", "episode"].edge_index.tolist() == [[0, 1], [0, 1]]
    assert data["episode", "rev_fact", "knowledge_node"].edge_index.tolist() == [[0, 1], [0, 1]]
    assert data["episode", "previous", "episode"].edge_index.tolist() == [[0], [1]]
    assert data["episode", "next", "episode"].edge_index.tolist() == [[1], [0]]
    assert torch.equal(data["episode"].x, inputs.text[:2])


def test_a_model_of_pyg_runs_on_it() -> None:
    inputs = make_inputs(make_snapshot(make_turns(["A canoe", "A red one"])))
    data = to_hetero_data(inputs, network_relations(["DERIVED_FROM", "HAS_CONCEPT"]))
    out = HGTConv(TEXT_DIM, 8, data.metadata(), heads=2)(data.x_dict, data.edge_index_dict)
    assert out["episode"].shape == (2, 8)
