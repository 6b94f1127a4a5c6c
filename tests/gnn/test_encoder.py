from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from locigraph.gnn.encoder import EncoderConfig, NodeEncoder, without_relations
from locigraph.gnn.errors import GraphError
from locigraph.gnn.hetero import METADATA, GraphInputs, reverse_of
from locigraph.gnn.packed import EdgeType, PackedGraph
from tests.fakes import make_turns
from tests.fakes_graph import CONTEXT, SKETCH, TEXT_DIM, Extra, make_inputs, make_snapshot

FACT: EdgeType = ("knowledge_node", "DERIVED_FROM", "episode")
NEXT: EdgeType = ("episode", "NEXT", "episode")
PLAIN = EncoderConfig(
    text_dim=TEXT_DIM, lexical_dim=SKETCH.dim, context_dim=CONTEXT.dim, hidden_dim=8, layers=1, heads=2, free_dim=4,
    edge_gate=False, state_gate=False, dropout=0.0,
)  # fmt: skip
WITHOUT_STATES = replace(PLAIN, free_dim=0)
FULL = replace(PLAIN, layers=2, edge_gate=True, state_gate=True)


def three_turns() -> GraphInputs:
    """Turns 0, 1, 2 in a session; facts 3 and 4 were drawn from turn 0."""
    extras = [Extra("knowledge_node", "Ann owns a canoe", (0,)), Extra("knowledge_node", "It is red", (0,))]
    turns = make_turns(["I have a canoe", "What colour?", "Red as a lobster"])
    return make_inputs(make_snapshot(turns, extras, [(3, "DERIVED_FROM", 0), (4, "DERIVED_FROM", 0)]))


def encoder_of(config: EncoderConfig, *, trained: bool = False) -> NodeEncoder:
    """With ``trained``, all weights are random, those that start at zero too."""
    torch.manual_seed(0)
    encoder = NodeEncoder(config).eval()
    if trained:
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter.normal_(0, 0.3)
    return encoder


def test_mixing_of_three_turns_is_worked_by_hand() -> None:
    inputs, encoder = three_turns(), encoder_of(WITHOUT_STATES)
    with torch.no_grad():
        encoder.own.copy_(torch.tensor([0.5, 2.0]))
        for weights, table in (
            (encoder.text_weight, {FACT: 0.4, NEXT: 0.1, reverse_of(NEXT): 0.2}),
            (encoder.lexical_weight, {FACT: 3.0, NEXT: 5.0, reverse_of(NEXT): 7.0}),
            (encoder.context_weight, {NEXT: 0.25}),
        ):
            weights.zero_()
            for relation, value in table.items():
                weights[METADATA.edge_index(relation)] = value
        vectors = encoder(inputs)
    x, words, c = inputs.text, inputs.lexical, inputs.context  # rows 0-2 turns, 3-4 facts
    facts = (x[3] + x[4]) / 2
    expected = torch.stack([0.5 * x[0] + 0.4 * facts + 0.2 * x[1], 0.5 * x[1] + 0.1 * x[0] + 0.2 * x[2],
                            0.5 * x[2] + 0.1 * x[1], 0.5 * x[3], 0.5 * x[4]])  # fmt: skip
    torch.testing.assert_close(vectors.text, expected)
    facts = (words[3] + words[4]) / 2
    expected = torch.stack(
        [
            2 * words[0] + 3 * facts + 7 * words[1],
            2 * words[1] + 5 * words[0] + 7 * words[2],
            2 * words[2] + 5 * words[1],
            2 * words[3],
            2 * words[4],
        ]
    )
    torch.testing.assert_close(vectors.lexical, expected)
    expected = torch.stack([c[0], c[1] + 0.25 * c[0], c[2] + 0.25 * c[1], c[3], c[4]])
    torch.testing.assert_close(vectors.context, expected)
    assert vectors.states is None
    assert not vectors.bias.any()
    assert vectors.free.shape == (5, 0)


def test_stored_vectors_are_the_blocks_side_by_side() -> None:
    vectors = encoder_of(FULL, trained=True)(three_turns())
    joined = vectors.joined()
    assert joined.shape == (5, FULL.vector_dim)
    assert FULL.vector_dim == 32 + 64 + 4 + 24 + 1
    torch.testing.assert_close(joined[:, 32:96], vectors.lexical)
    torch.testing.assert_close(joined[:, -1:], vectors.bias)


def test_an_untrained_model_with_gates_gives_the_same_mixing_as_one_without() -> None:
    inputs = three_turns()
    plain, gated = encoder_of(WITHOUT_STATES)(inputs), encoder_of(FULL)(inputs)
    for name in ("text", "lexical", "context", "bias"):
        torch.testing.assert_close(getattr(gated, name), getattr(plain, name))


def test_a_relation_of_weight_0_changes_nothing_and_an_excluded_one_neither() -> None:
    inputs = three_turns()
    silent = encoder_of(WITHOUT_STATES)
    with torch.no_grad():
        for weights in (silent.text_weight, silent.lexical_weight, silent.context_weight):
            weights[METADATA.edge_index(FACT)] = 0
    excluded = encoder_of(replace(WITHOUT_STATES, excluded=("DERIVED_FROM",)))
    torch.testing.assert_close(excluded(inputs).text, silent(inputs).text)
    torch.testing.assert_close(excluded(inputs).lexical, silent(inputs).lexical)


@pytest.mark.parametrize("name", ["DERIVED_FROM", "NEXT"])
def test_excluded_relations_are_as_if_their_edges_were_not_there(name: str) -> None:
    inputs = three_turns()
    relations = [METADATA.edge_types[i][1] for i in inputs.graph.relation_of_edge().tolist()]
    keep = torch.tensor([not relation.removeprefix("rev_").startswith(name) for relation in relations])
    assert 0 < int(keep.sum()) < len(keep)
    expected = encoder_of(FULL, trained=True)(inputs.with_graph(inputs.graph.without_edges(keep=keep)))
    found = encoder_of(replace(FULL, excluded=(name,)), trained=True)(inputs)
    torch.testing.assert_close(found.joined(), expected.joined())


def test_an_unknown_relation_to_exclude_is_refused() -> None:
    with pytest.raises(GraphError, match="relation 'NEXTT' is none of"):
        without_relations(three_turns().graph, ("NEXTT",))


def permuted(inputs: GraphInputs, order: Tensor) -> GraphInputs:
    """The same graph with its nodes renamed: node i becomes the old node ``order[i]``; types keep their place."""
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    graph = inputs.graph
    mixed = torch.cat([torch.randperm(b - a) + a for a, b in zip(graph.edge_ptr, graph.edge_ptr[1:], strict=False)])
    moved = PackedGraph(
        graph.metadata, graph.node_ptr, graph.edge_ptr, place[graph.source][mixed], place[graph.target][mixed]
    )
    features = {f.name: getattr(inputs, f.name)[order] for f in fields(inputs) if f.name != "graph"}
    return replace(inputs, graph=moved, **features)


@pytest.mark.parametrize("config", [WITHOUT_STATES, PLAIN, FULL])
def test_the_order_of_nodes_and_edges_does_not_matter(config: EncoderConfig) -> None:
    inputs, encoder = three_turns(), encoder_of(config, trained=True)
    for seed in range(3):
        torch.manual_seed(seed)
        order = torch.cat([torch.randperm(3), torch.randperm(2) + 3])
        torch.testing.assert_close(
            encoder(permuted(inputs, order)).joined(), encoder(inputs).joined()[order], atol=1e-5, rtol=1e-5
        )


def test_without_layers_states_see_the_node_itself_only() -> None:
    inputs = three_turns()
    nothing = inputs.graph.without_edges(keep=torch.zeros(inputs.graph.num_edges, dtype=torch.bool))
    none, one = (encoder_of(replace(FULL, layers=n, edge_gate=False), trained=True) for n in (0, 1))
    # Nodes 1 and 2 have no facts, so that their traits do not change with the edges.
    with_edges, without = (none(inputs.with_graph(g)).states for g in (inputs.graph, nothing))
    assert with_edges is not None
    torch.testing.assert_close(with_edges[1:3], without[1:3])
    with_edges, without = (one(inputs.with_graph(g)).states for g in (inputs.graph, nothing))
    assert with_edges is not None
    assert not torch.allclose(with_edges[1:3], without[1:3])


def test_a_hidden_fact_edge_is_hidden_from_the_traits_too() -> None:
    inputs = three_turns()
    nothing = inputs.graph.without_edges(keep=torch.zeros(inputs.graph.num_edges, dtype=torch.bool))
    encoder = encoder_of(WITHOUT_STATES)
    with torch.no_grad():
        encoder.trait_weight[-2:] = torch.tensor([1.0, 10.0])
    assert encoder(inputs).bias.flatten().tolist() == pytest.approx(
        [1 + 10 * torch.tensor(3.0).log().item(), 0, 0, 0, 0]
    )
    assert not encoder(inputs.with_graph(nothing)).bias.any()


def test_a_model_without_lexical_and_context_part_works() -> None:
    inputs = three_turns()
    bare = replace(
        inputs, lexical=inputs.lexical[:, :0], context=inputs.context[:, :0], speakers=inputs.speakers[:, :0]
    )
    vectors = encoder_of(replace(FULL, lexical_dim=0, context_dim=0), trained=True)(bare)
    assert vectors.joined().shape == (5, 32 + 4 + 1)
    assert torch.isfinite(vectors.joined()).all()


@pytest.mark.parametrize("name", ["text", "lexical", "context"])
def test_features_of_another_width_are_refused(name: str) -> None:
    inputs = three_turns()
    cut = replace(inputs, **{name: getattr(inputs, name)[:, 1:]})
    with pytest.raises(GraphError, match=f"{name} features have width"):
        encoder_of(PLAIN)(cut)


def test_every_weight_gets_a_gradient_that_is_finite() -> None:
    encoder = encoder_of(FULL, trained=True)
    encoder(three_turns()).joined().square().sum().backward()
    for name, parameter in encoder.named_parameters():
        if parameter.grad is not None:
            assert torch.isfinite(parameter.grad).all(), name
    for name in ("own", "text_weight", "lexical_weight", "edge_weight", "gate.scale", "free.weight"):
        gradient = encoder.get_parameter(name).grad
        assert gradient is not None, name
        assert gradient.any(), name
