from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import HGTConv

from locigraph.gnn.encoders import (
    EDGE_FEATURES,
    GRAPH_ENCODERS,
    EncoderConfig,
    GraphEncoder,
    HGTConvEncoder,
    HGTEncoder,
    MixingEncoder,
)
from locigraph.gnn.errors import GraphError
from locigraph.gnn.features import GraphInputs, GraphReader, node_types
from locigraph.gnn.relations import BLOCKS, RELATIONS, network_relations
from locigraph.gnn.sketch import HashedFeatures
from locigraph.kg.registry import UnknownNameError
from locigraph.kg.schema import EPISODE
from locigraph.kg.snapshot import Snapshot
from locigraph.training.checkpoint import new_network
from locigraph.training.config import ModelConfig
from tests.fakes import make_turns
from tests.fakes_graph import HASHED, TEXT_DIM, Extra, make_inputs, make_snapshot

CONFIG = EncoderConfig(TEXT_DIM, HASHED, attention_dim=4)
#: Widths of the random graphs.
SMALL = EncoderConfig(5, HashedFeatures(4, 1, 2), attention_dim=2)
ALL_RELATIONS = ("DERIVED_FROM", "HAS_CONCEPT", "NEXT")
POSITION = {name: position for position, name in enumerate(RELATIONS)}
#: Positions among the features of an edge.
SIMILARITY, SAME_SPEAKER, GAP, SOURCE_ASKS, TARGET_HAS_FACT = 0, 1, 2, 4, 13

both_encoders = pytest.mark.parametrize("name", ["hgt", "mixing"])


def canoe_snapshot() -> Snapshot:
    """Turns 0, 1, 2 in a session; facts 3 and 4 drawn from turn 0, event 5 from turn 2, topic 6 of turn 1."""
    turns = make_turns(["I have a canoe", "What colour?", "Red as a lobster"])
    extras = [
        Extra("knowledge_node", "Ann owns a canoe", (0,)),
        Extra("knowledge_node", "It is red", (0,)),
        Extra("event_node", "Ann painted the canoe", (2,)),
        Extra("concept", "boat colours", (1,)),
    ]
    edges = [(3, "DERIVED_FROM", 0), (4, "DERIVED_FROM", 0), (5, "DERIVED_FROM", 2), (1, "HAS_CONCEPT", 6)]
    snapshot = make_snapshot(turns, extras, edges)
    valid_from = snapshot.valid_from.copy()
    valid_from[5] = valid_from[2] - 30 * 86_400  # the event was 30 days before the turn
    return replace(snapshot, valid_from=valid_from)


def canoe_talk() -> GraphInputs:
    inputs = make_inputs(canoe_snapshot())
    assert inputs.rows.tolist() == list(range(7))  # the names x[0] to x[6] below are rows of the snapshot
    return inputs


def random_inputs(seed: int, *, turns: int = 6, others: int = 8, edges: int = 44) -> GraphInputs:
    """A graph of all relations with random features in double precision; parallel edges may occur."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    types = node_types(network_relations())
    kinds = torch.cat([torch.zeros(turns, dtype=torch.int64), 1 + torch.arange(others) % (len(types) - 1)])
    drawn = [torch.zeros(3, 0, dtype=torch.int64)]
    for position, relation in enumerate(network_relations()):
        nodes = (kinds == types.index(relation.source)).nonzero().flatten()
        count = edges // len(RELATIONS) if len(nodes) else 0
        source = nodes[torch.randint(max(1, len(nodes)), (count,), generator=generator)]
        target = torch.randint(turns, (count,), generator=generator)
        drawn.append(torch.stack([source, target, torch.full_like(target, position)]))
    edge_list = torch.cat(drawn, dim=1)
    source, target, relation_ids = edge_list[:, torch.argsort(edge_list[1], stable=True)]
    nodes_count = turns + others
    days = 19_000 + 40 * normal(nodes_count)
    days[::3] = math.nan
    return GraphInputs(
        text=torch.nn.functional.normalize(normal(nodes_count, SMALL.text_dim), dim=1),
        lexical=normal(nodes_count, 4),
        context=normal(nodes_count, 3),
        speakers=normal(nodes_count, 2),
        traits=normal(nodes_count, 4),
        days=days,
        node_type=kinds,
        rows=torch.arange(nodes_count),
        source=source,
        target=target,
        relation=relation_ids,
        num_turns=turns,
    )


def encoder_of(name: str, config: EncoderConfig = CONFIG, *, trained: bool = False) -> GraphEncoder:
    """With ``trained``, all weights are random, those that start at zero too."""
    torch.manual_seed(0)
    encoder = GRAPH_ENCODERS[name](config)
    if trained:
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter.normal_(0, 0.3)
    return encoder


# --- untrained -------------------------------------------------------------------------------------------------


@both_encoders
def test_untrained_encoders_give_the_hand_worked_mean_of_the_neighbours(name: str) -> None:
    inputs = canoe_talk()
    vectors = encoder_of(name)(inputs)
    x, words, c = inputs.text, inputs.lexical, inputs.context
    text = [
        0.5 * x[0] + 0.5 * (x[3] + x[4]) / 2 + 0.15 * x[1],
        0.5 * x[1] + 0.1 * x[6] + 0.15 * x[0] + 0.15 * x[2],
        0.5 * x[2] + 0.15 * x[5] + 0.15 * x[1],
    ]
    lexical = [
        0.5 * words[0] + 0.5 * (words[3] + words[4]) / 2 + 0.1 * words[1],
        0.5 * words[1] + 0.05 * words[6] + 0.1 * words[0] + 0.1 * words[2],
        0.5 * words[2] + 0.1 * words[5] + 0.1 * words[1],
    ]
    torch.testing.assert_close(vectors.text, torch.stack(text))
    torch.testing.assert_close(vectors.lexical, torch.stack(lexical))
    torch.testing.assert_close(vectors.context, torch.stack([c[0], c[1], c[2] + 0.5 * c[5]]))
    assert vectors.bias.tolist() == [[0], [0], [0]]


@settings(max_examples=20)
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(0, 8))
def test_untrained_encoders_agree_on_every_graph(seed: int, turns: int, others: int) -> None:
    inputs = random_inputs(seed, turns=turns, others=others)
    hgt, mixing = (encoder_of(name, SMALL).double()(inputs) for name in ("hgt", "mixing"))
    for f in fields(hgt):
        torch.testing.assert_close(getattr(hgt, f.name), getattr(mixing, f.name))


@both_encoders
def test_stored_vectors_are_the_blocks_side_by_side(name: str) -> None:
    vectors = encoder_of(name, trained=True)(canoe_talk())
    joined = vectors.joined()
    assert joined.shape == (3, 32 + 64 + 24 + 1)
    parts = joined.split([32, 64, 24, 1], dim=1)
    for part, block in zip(parts, ("text", "lexical", "context", "bias"), strict=True):
        assert torch.equal(part, getattr(vectors, block))


@both_encoders
def test_the_weights_that_are_given_back_remake_the_vectors(name: str) -> None:
    inputs = canoe_talk()
    vectors = encoder_of(name, trained=True)(inputs)
    assert vectors.own[:, BLOCKS.index("context")].tolist() == [1, 1, 1]
    for i, block in enumerate(BLOCKS):
        table = getattr(inputs, block)
        expected = vectors.own[:, i, None] * table[:3]
        for edge, (source, target) in enumerate(zip(inputs.source.tolist(), inputs.target.tolist(), strict=True)):
            expected[target] += vectors.edge[edge, i] * table[source]
        torch.testing.assert_close(getattr(vectors, block), expected)


# --- the formulas ----------------------------------------------------------------------------------------------


def test_mixing_with_priors_and_edge_features_is_worked_by_hand() -> None:
    inputs, encoder = canoe_talk(), encoder_of("mixing")
    with torch.no_grad():
        encoder.prior.zero_()
        encoder.own.copy_(torch.tensor([0.7, 2.0]))
        for relation, block, value in (("fact", 0, 0.4), ("event", 0, 0.3), ("next", 0, 0.2), ("previous", 1, 5.0)):
            encoder.prior[POSITION[relation], block] = value
        for relation, feature, block, value in (
            ("fact", SIMILARITY, 0, 3.0),
            ("event", GAP, 0, 0.7),
            ("previous_2", SAME_SPEAKER, 1, 0.25),
            ("previous", SOURCE_ASKS, 1, 1.5),
            ("next", TARGET_HAS_FACT, 0, 0.05),
        ):
            encoder.edge_features[POSITION[relation], feature, block] = value
    vectors = encoder(inputs)
    x, words = inputs.text, inputs.lexical
    likeness = [float(x[fact] @ x[0]) - 0.3 for fact in (3, 4)]
    gap = math.log1p(30) / 3.5
    text = [
        # Turn 0 has facts, so that the turn after it counts .2 + .05.
        0.7 * x[0] + (0.4 + 3 * likeness[0]) / 2 * x[3] + (0.4 + 3 * likeness[1]) / 2 * x[4] + 0.25 * x[1],
        0.7 * x[1] + 0.2 * x[2],
        0.7 * x[2] + (0.3 + 0.7 * gap) * x[5],
    ]
    torch.testing.assert_close(vectors.text, torch.stack(text))
    lexical = [
        2 * words[0],
        2 * words[1] + 5 * words[0],
        2 * words[2] + (5 + 1.5) * words[1] + 0.25 * words[0],  # turn 1 asks; Ann says turns 0 and 2
    ]
    torch.testing.assert_close(vectors.lexical, torch.stack(lexical))
    assert torch.equal(vectors.context, inputs.context[:3])


def test_an_end_without_date_has_no_gap_in_time() -> None:
    snapshot, encoder = canoe_snapshot(), encoder_of("mixing")
    with torch.no_grad():
        encoder.edge_features[:, GAP] = 1.0
    inputs = make_inputs(snapshot)
    logits = encoder.edge_logits(inputs, encoder.traits(inputs))[:, 0]
    by_relation = {
        name: logits[inputs.relation == POSITION[name]].tolist() for name in ("fact", "event", "topic", "next")
    }
    minute = math.log1p(1 / 1440) / 3.5
    assert by_relation["fact"] == [0, 0]
    assert by_relation["topic"] == [0]
    assert by_relation["event"] == pytest.approx([math.log1p(30) / 3.5], abs=1e-4)
    assert by_relation["next"] == pytest.approx([minute, minute], abs=5e-4)


def two_facts() -> GraphInputs:
    """One turn with the text (1, 0) and two facts with the texts (1, 0) and (2, 0)."""
    return GraphInputs(
        text=torch.tensor([[1.0, 0.0], [1.0, 0.0], [2.0, 0.0]]),
        lexical=torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]]),
        context=torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]]),
        speakers=torch.zeros(3, 1),
        traits=torch.zeros(3, 4),
        days=torch.full((3,), math.nan),
        node_type=torch.tensor([0, 1, 1]),
        rows=torch.arange(3),
        source=torch.tensor([1, 2]),
        target=torch.tensor([0, 0]),
        relation=torch.tensor([0, 0]),
        num_turns=1,
    )


def test_attention_to_two_facts_and_two_zero_neighbours_is_worked_by_hand() -> None:
    encoder = encoder_of("hgt", EncoderConfig(2, HashedFeatures(3, 1, 2), attention_dim=1))
    assert isinstance(encoder, HGTEncoder)
    with torch.no_grad():
        encoder.key.zero_()
        encoder.query.zero_()
        encoder.key[1, :, 0] = 1  # keys of the facts in each head: 1 and 2
        encoder.query[:, 0] = 1  # query of the turn in each head: 1
        # With the temperature .1 the logits are ln 2 and 2 ln 2 in the lexical head, -ln 2 and -2 ln 2 in that of
        # the text.
        encoder.matrix[POSITION["fact"], 1] = 0.1 * math.log(2)
        encoder.matrix[POSITION["fact"], 0] = -0.1 * math.log(2)
        encoder.prior[POSITION["fact"]] = torch.tensor([0.3, 0.5, 0.5])
    vectors = encoder(two_facts())
    # The two zero neighbours have the logit 0 in each head: shares 1/2, 1/4 of 2 + 3/4, that is 2, 1 of 11; then 2, 4
    # of 2 + 6. A weight is twice the prior times the share. Facts pass no context on, whatever the prior.
    expected = torch.tensor([[2 * 0.3 * 2 / 11, 2 * 0.5 * 2 / 8, 0.0], [2 * 0.3 * 1 / 11, 0.5, 0.0]])
    torch.testing.assert_close(vectors.edge, expected)
    # The turn's own share is .5; the texts of the facts are (1, 0) and (2, 0).
    assert vectors.text.tolist() == [[pytest.approx(0.5 + 0.6 * 2 / 11 + 0.6 / 11 * 2), 0]]
    assert vectors.lexical[0].tolist() == pytest.approx([0.5, 0.25, 0.5])
    assert vectors.context[0].tolist() == [1, 0, 0]


def test_edge_features_are_added_to_the_logits_of_attention() -> None:
    encoder, inputs = encoder_of("hgt", EncoderConfig(2, HashedFeatures(3, 1, 2), 4)), two_facts()
    inputs = replace(inputs, traits=torch.tensor([[0.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]))
    with torch.no_grad():
        encoder.edge_features[POSITION["fact"], SOURCE_ASKS, 0] = 0.1 * math.log(5)
    vectors = encoder(inputs)
    # Fact 1 asks: shares 5 and 1 of 2 + 6. The other blocks stay the mean.
    torch.testing.assert_close(vectors.edge, torch.tensor([[5 / 8, 0.25, 0], [1 / 8, 0.25, 0]]))


def slow_vectors(encoder: GraphEncoder, inputs: GraphInputs) -> Tensor:
    """The formulas of the module's docstring, edge by edge."""
    edges = list(zip(inputs.source.tolist(), inputs.target.tolist(), inputs.relation.tolist(), strict=True))
    facts = [sum(t == node and r == POSITION["fact"] for _, t, r in edges) for node in range(len(inputs.text))]
    counted = torch.tensor([[float(n > 0), math.log(1 + n)] for n in facts], dtype=torch.float64)
    traits = torch.cat([inputs.traits, counted], dim=1)

    def logit(s: int, t: int, r: int) -> Tensor:
        days = float(inputs.days[s] - inputs.days[t])
        pair = [
            float(inputs.text[s] @ inputs.text[t]) - 0.3,
            float(inputs.speakers[s] @ inputs.speakers[t]),
            0.0 if math.isnan(days) else math.log1p(abs(days)) / 3.5,
        ]
        result = torch.cat([torch.tensor(pair, dtype=torch.float64), traits[s], traits[t]]) @ encoder.edge_features[r]
        if isinstance(encoder, HGTEncoder):
            width = encoder.config.attention_dim
            keys = encoder.key[inputs.node_type[s]] @ inputs.text[s]
            queries = encoder.query @ inputs.text[t]
            heads = [slice(head * width, (head + 1) * width) for head in range(3)]
            scores = [keys[h] @ encoder.matrix[r, i] @ queries[h] / width**0.5 for i, h in enumerate(heads)]
            result = result + torch.stack(scores)
        return result

    rows = []
    for t in range(inputs.num_turns):
        own = torch.cat([encoder.own + traits[t] @ encoder.own_traits, torch.ones(1)])
        blocks = [own[i] * getattr(inputs, block)[t] for i, block in enumerate(BLOCKS)]
        for r in range(len(encoder.relations)):
            sources = [source for source, target, relation in edges if (target, relation) == (t, r)]
            logits = [logit(s, t, r) for s in sources]
            total = len(sources) + sum(torch.exp(each / 0.1) for each in logits)
            for s, each in zip(sources, logits, strict=True):
                if isinstance(encoder, HGTEncoder):
                    weight = 2 * encoder.prior[r] * torch.exp(each / 0.1) / total
                else:
                    weight = (encoder.prior[r] + each) / len(sources)
                passes = [block != "context" or encoder.relations[r].name == "event" for block in BLOCKS]
                blocks = [b + passes[i] * weight[i] * getattr(inputs, BLOCKS[i])[s] for i, b in enumerate(blocks)]
        rows.append(torch.cat([*blocks, traits[t] @ encoder.bias_traits]))
    return torch.stack(rows)


@both_encoders
@settings(max_examples=12)
@given(seed=st.integers(0, 2**31), turns=st.integers(1, 5), others=st.integers(0, 6))
def test_vectors_equal_a_slow_loop_over_the_edges(name: str, seed: int, turns: int, others: int) -> None:
    encoder = encoder_of(name, SMALL, trained=True).double()
    inputs = random_inputs(seed, turns=turns, others=others)
    with torch.no_grad():
        torch.testing.assert_close(encoder(inputs).joined(), slow_vectors(encoder, inputs), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("zeros", [True, False], ids=["with zero neighbours", "without"])
@pytest.mark.parametrize("seed", range(3))
def test_attention_is_that_of_pyg_s_hgtconv(seed: int, zeros: bool) -> None:
    """The values are 1 in a place of each fact's own, so that PyG's output is its attention.

    Where PyG has zero neighbours, a fact of zeros that is joined to a turn once for each of its facts, the attention
    is the same; where it has none, each edge's share of the turn's attention is.
    """
    torch.manual_seed(seed)
    turns, facts, free, scale = 4, 5, 6, 1e6
    is_edge = torch.rand(facts, turns) < 0.6
    is_edge[0, 0] = is_edge[1, 0] = True  # something to choose between
    target, fact = is_edge.T.nonzero().T
    # Behind the random features, those that name the fact; one more fact, of zeros, is PyG's alone.
    x_facts = torch.cat([torch.randn(facts + 1, free), torch.eye(facts + 1, facts)], dim=1).double()
    x_facts[facts] = 0
    x_turns = torch.cat([torch.randn(turns, free), torch.zeros(turns, facts)], dim=1).double()

    encoder = HGTEncoder(EncoderConfig(free + facts, HashedFeatures(1, 0, 1), attention_dim=facts)).double()
    position, kind = POSITION["fact"], node_types(encoder.relations).index("knowledge_node")
    with torch.no_grad():
        encoder.matrix[position] = 0.02 * torch.randn(3, facts, facts)
    nodes = turns + facts
    inputs = replace(
        random_inputs(seed, turns=turns, others=facts),
        text=torch.cat([x_turns, x_facts[:facts]]),
        lexical=torch.zeros(nodes, 1).double(),
        context=torch.zeros(nodes, 1).double(),
        node_type=torch.tensor([0] * turns + [kind] * facts),
        source=turns + fact,
        target=target,
        relation=torch.full_like(target, position),
    )
    with torch.no_grad():
        logits = encoder.edge_logits(inputs, encoder.traits(inputs))
        attention = encoder.attention(inputs, logits)

    edge_type = ("knowledge_node", "DERIVED_FROM", "episode")
    conv = HGTConv(free + facts, 3 * facts, (["knowledge_node", "episode"], [edge_type]), heads=3).double()
    of_fact, of_turn = conv.kqv_lin.lins["knowledge_node"], conv.kqv_lin.lins["episode"]
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.zero_()
        key, _, value = of_fact.weight.split(3 * facts)
        key.copy_(encoder.key[kind])
        value[:, free:] = scale * torch.eye(facts).repeat(3, 1)  # so large that GELU is the identity
        of_turn.weight[3 * facts : 6 * facts] = encoder.query
        conv.k_rel.weight.copy_(encoder.matrix[position])
        conv.v_rel.weight.copy_(torch.eye(facts).expand(3, -1, -1))
        conv.p_rel["__".join(edge_type)].fill_(1 / 0.1)
        conv.out_lin.lins["episode"].weight.copy_(torch.eye(3 * facts))
        edges = torch.stack([fact, target])
        if zeros:
            edges = torch.cat([edges, torch.stack([torch.full_like(target, facts), target])], dim=1)
        out = conv({"knowledge_node": x_facts, "episode": x_turns}, {edge_type: edges})["episode"]
    expected = out.view(turns, 3, facts)[target, :, fact] / scale

    if not zeros:
        sums = torch.zeros(turns, 3).double().index_add(0, target, attention)
        assert (sums[target] < 1).all()
        attention = attention / sums[target]
    torch.testing.assert_close(attention, expected, atol=1e-6, rtol=0)
    # Far from a mean, or the comparison would say little.
    assert float((expected - 1 / is_edge.sum(0)[target][:, None] / (2 if zeros else 1)).abs().max()) > 0.1


def test_attention_stays_below_one_and_may_leave_a_relation_out_altogether() -> None:
    encoder, inputs = encoder_of("hgt", SMALL), two_facts()
    assert isinstance(encoder, HGTEncoder)
    for logit, share in ((-50.0, 0.0), (0.0, 0.25), (50.0, 0.5)):
        attention = encoder.attention(inputs, torch.full((2, 3), logit))
        assert attention.flatten().tolist() == pytest.approx([share] * 6)
    single = inputs.with_edges(torch.tensor([True, False]))
    assert encoder.attention(single, torch.full((1, 3), 0.1 * math.log(3))).tolist() == [[pytest.approx(0.75)] * 3]


@both_encoders
def test_any_pairs_have_logits_in_the_order_in_which_they_come(name: str) -> None:
    encoder, inputs = encoder_of(name, SMALL, trained=True).double(), random_inputs(3)
    traits = encoder.traits(inputs)
    order = torch.randperm(len(inputs.source), generator=torch.Generator().manual_seed(0))
    mixed = replace(inputs, source=inputs.source[order], target=inputs.target[order], relation=inputs.relation[order])
    found, expected = encoder.edge_logits(mixed, traits), encoder.edge_logits(inputs, traits)
    torch.testing.assert_close(found, expected[order])
    assert expected.any(dim=1).all()


# --- what must not matter --------------------------------------------------------------------------------------


def permuted(inputs: GraphInputs, generator: torch.Generator) -> tuple[GraphInputs, Tensor]:
    """The same graph with its nodes renamed and its edges in another order: turn i is the old turn ``order[i]``."""
    turns, nodes = inputs.num_turns, len(inputs.text)
    order = torch.cat(
        [torch.randperm(turns, generator=generator), turns + torch.randperm(nodes - turns, generator=generator)]
    )
    place = torch.argsort(order)
    target = place[inputs.target]
    shuffled = torch.randperm(len(target), generator=generator)
    edges = shuffled[torch.argsort(target[shuffled], stable=True)]  # any order within a turn
    names = ("text", "lexical", "context", "speakers", "traits", "days", "node_type", "rows")
    nodes_moved = {name: getattr(inputs, name)[order] for name in names}
    moved = replace(
        inputs,
        **nodes_moved,
        source=place[inputs.source][edges],
        target=target[edges],
        relation=inputs.relation[edges],
    )
    return moved, order[:turns]


@both_encoders
@settings(max_examples=15)
@given(seed=st.integers(0, 2**31))
def test_the_order_of_nodes_and_edges_does_not_matter(name: str, seed: int) -> None:
    encoder, inputs = encoder_of(name, SMALL, trained=True).double(), random_inputs(seed)
    moved, order = permuted(inputs, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        expected = encoder(inputs).joined()[order]
        torch.testing.assert_close(encoder(moved).joined(), expected, atol=1e-9, rtol=1e-9)


@both_encoders
def test_an_archived_neighbour_counts_for_nothing(name: str) -> None:
    snapshot, encoder = canoe_snapshot(), encoder_of(name, trained=True)
    active = snapshot.active.copy()
    active[4] = False
    never = make_snapshot(
        make_turns(["I have a canoe", "What colour?", "Red as a lobster"]),
        [Extra("knowledge_node", "Ann owns a canoe", (0,)), Extra("event_node", "Ann painted the canoe", (2,)),
         Extra("concept", "boat colours", (1,))],
        [(3, "DERIVED_FROM", 0), (4, "DERIVED_FROM", 2), (1, "HAS_CONCEPT", 5)],
    )  # fmt: skip
    never.valid_from[4] = snapshot.valid_from[5]
    found = encoder(make_inputs(replace(snapshot, active=active))).joined()
    torch.testing.assert_close(found, encoder(make_inputs(never)).joined())
    assert not torch.allclose(found[0], encoder(make_inputs(snapshot)).joined()[0])


def with_shared_weights(part: GraphEncoder, whole: GraphEncoder) -> GraphEncoder:
    """``part``, whose relations are some of ``whole``'s, with the weights that they have there."""
    rows = [whole.relations.index(relation) for relation in part.relations]
    state = whole.state_dict()
    for name in ("prior", "edge_features", "matrix"):
        if name in state:
            state[name] = state[name][rows]
    if "key" in state:
        types = node_types(whole.relations)
        state["key"] = state["key"][[types.index(kind) for kind in node_types(part.relations)]]
    part.load_state_dict(state)
    return part


@both_encoders
@pytest.mark.parametrize(
    ("excluded", "lost"),
    [("fact", "knowledge_node"), ("DERIVED_FROM", "event_node knowledge_node"), ("topic", "concept")],
)
def test_an_excluded_relation_is_as_if_its_edges_were_not_there(name: str, excluded: str, lost: str) -> None:
    snapshot, whole = canoe_snapshot(), encoder_of(name, trained=True)
    part = with_shared_weights(encoder_of(name, replace(CONFIG, excluded_relations=(excluded,))), whole)
    found = part(GraphReader(snapshot, HASHED, part.relations).inputs()).joined()
    is_lost = np.isin(snapshot.types, lost.split())
    keep = ~(is_lost[snapshot.source] | is_lost[snapshot.target])
    edges = {key: getattr(snapshot, key)[keep] for key in ("source", "target", "relations", "families", "weights")}
    torch.testing.assert_close(found, whole(make_inputs(replace(snapshot, **edges))).joined())
    assert not torch.allclose(found, whole(make_inputs(snapshot)).joined())


@both_encoders
def test_turns_alone_are_their_own_features(name: str) -> None:
    for inputs, encoder in (
        (make_inputs(make_snapshot(make_turns(["a canoe"]))), encoder_of(name)),
        # All relations are excluded, so that no parameter but the turns' own remains.
        (GraphReader(canoe_snapshot(), HASHED, ()).inputs(),
         encoder_of(name, replace(CONFIG, excluded_relations=ALL_RELATIONS))),
    ):  # fmt: skip
        vectors = encoder(inputs)
        torch.testing.assert_close(vectors.text, 0.5 * inputs.text)
        torch.testing.assert_close(vectors.lexical, 0.5 * inputs.lexical)
        torch.testing.assert_close(vectors.context, inputs.context)
        assert vectors.edge.shape == (0, 3)
        vectors.joined().square().sum().backward()
        assert encoder.own.grad is not None
        assert encoder.own.grad.all()


@both_encoders
def test_a_hidden_fact_is_hidden_from_the_traits_too(name: str) -> None:
    inputs, encoder = canoe_talk(), encoder_of(name)
    with torch.no_grad():
        encoder.bias_traits[-2:] = torch.tensor([[1.0], [10.0]])

    def bias(keep: Tensor) -> list[float]:
        found: list[float] = encoder(inputs.with_edges(keep)).bias.flatten().tolist()
        return found

    is_fact = inputs.relation == POSITION["fact"]
    assert bias(torch.ones_like(is_fact)) == pytest.approx([1 + 10 * math.log(3), 0, 0])
    assert bias(~(is_fact & (inputs.source == 4))) == pytest.approx([1 + 10 * math.log(2), 0, 0])
    assert bias(~is_fact) == [0, 0, 0]


@both_encoders
def test_a_model_without_context_works(name: str) -> None:
    inputs = canoe_talk()
    bare = replace(inputs, context=inputs.context[:, :0], speakers=inputs.speakers[:, :0])
    vectors = encoder_of(name, replace(CONFIG, hashed=HashedFeatures(64, 0, 0)), trained=True)(bare)
    assert vectors.joined().shape == (3, 32 + 64 + 1)
    assert torch.isfinite(vectors.joined()).all()


@both_encoders
@pytest.mark.parametrize(("block", "width"), [("text", 32), ("lexical", 64), ("context", 24)])
def test_features_of_another_width_are_refused(name: str, block: str, width: int) -> None:
    inputs = canoe_talk()
    cut = replace(inputs, **{block: getattr(inputs, block)[:, 1:]})
    with pytest.raises(GraphError, match=f"{block} features have width {width - 1} but .* made for {width}"):
        encoder_of(name)(cut)


# --- numbers and gradients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@both_encoders
def test_huge_logits_overflow_neither_vectors_nor_gradients(name: str, dtype: torch.dtype) -> None:
    encoder = encoder_of(name, SMALL, trained=True).to(dtype)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.mul_(1e4)
    inputs = random_inputs(1)
    names = ("text", "lexical", "context", "speakers", "traits", "days")
    cast: dict[str, Any] = {name: getattr(inputs, name).to(dtype) for name in names}
    inputs = replace(inputs, **cast)
    logits = encoder.edge_logits(inputs, encoder.traits(inputs))
    assert float(logits.detach().abs().max()) > (1e10 if name == "hgt" else 1e4)  # exp overflows above 709
    joined = encoder(inputs).joined()
    assert joined.dtype == dtype
    assert torch.isfinite(joined).all()
    joined.mean().backward()
    for key, parameter in encoder.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key


@both_encoders
def test_numerical_gradients_agree(name: str) -> None:
    inputs = random_inputs(5, turns=3, others=4, edges=22)
    encoder = encoder_of(name, SMALL, trained=True).double()
    names = [key for key, _ in encoder.named_parameters()]

    def run(*parameters: Tensor) -> Tensor:
        joined: Tensor = torch.func.functional_call(
            encoder, dict(zip(names, parameters, strict=True)), (inputs,)
        ).joined()
        return joined

    assert torch.autograd.gradcheck(run, tuple(encoder.parameters()), fast_mode=True)


def gradients(encoder: GraphEncoder, inputs: GraphInputs, wanted: Tensor) -> dict[str, Tensor]:
    """Gradient of the squared error by each parameter."""
    encoder.zero_grad()
    (encoder(inputs).joined() - wanted).square().sum().backward()
    return {name: parameter.grad for name, parameter in encoder.named_parameters() if parameter.grad is not None}


@both_encoders
def test_every_weight_of_every_relation_and_type_learns_within_three_steps(name: str) -> None:
    # The gradient of edge features waits for a prior that is not 0, that of keys and queries for the matrices.
    inputs, encoder = random_inputs(2), encoder_of(name, SMALL).double()
    wanted = torch.randn(6, 5 + 4 + 3 + 1, generator=torch.Generator().manual_seed(0)).double()
    waits = {"key", "query", "matrix", "edge_features"} if name == "hgt" else set()
    for step in range(3):
        found = gradients(encoder, inputs, wanted)
        assert list(found) == [key for key, _ in encoder.named_parameters()]
        for key, gradient in found.items():
            if step == 2 or key not in waits:
                # Each relation in each block or head that it passes on; some features are always 0, as facts have no
                # facts of their own.
                learns = gradient.any(dim=1 if key == "edge_features" else -1)
                if key in ("edge_features", "matrix"):
                    learns = learns | (encoder.block_mask == 0).reshape(
                        len(encoder.relations), 3, *[1] * (learns.dim() - 2)
                    )
                if key == "key":  # of the context's head, that of the events alone
                    kinds = node_types(encoder.relations)
                    learns.view(len(kinds), 3, -1)[[kind != "event_node" for kind in kinds], 2] = True
                assert learns.all(), f"{key} at step {step}"
            if step == 0 and key in ("key", "query"):
                assert not gradient.any()  # or the test of the later steps would say nothing
        with torch.no_grad():
            for key, parameter in encoder.named_parameters():
                parameter.sub_(1e-3 * found[key])


@both_encoders
def test_training_finds_the_weights_of_another_encoder(name: str) -> None:
    inputs = random_inputs(4)
    teacher, student = encoder_of(name, SMALL).double(), encoder_of(name, SMALL).double()
    with torch.no_grad():
        teacher.prior.add_(0.3)
        teacher.edge_features[POSITION["fact"], SIMILARITY] = 0.5
        wanted = teacher(inputs).joined()
    optimiser = torch.optim.Adam(student.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        gradients(student, inputs, wanted)
        losses.append((student(inputs).joined() - wanted).square().sum().item())
        optimiser.step()
    assert losses[-1] < 0.05 * losses[0]


@both_encoders
def test_graphs_moved_to_a_device_give_the_same_vectors(name: str) -> None:
    inputs, encoder = canoe_talk(), encoder_of(name, trained=True)
    assert torch.equal(encoder(inputs.to("cpu")).joined(), encoder(inputs).joined())
    assert torch.equal(encoder(inputs.to(torch.device("cpu"))).joined(), encoder(inputs).joined())


# --- the table -------------------------------------------------------------------------------------------------


class OwnWordsEncoder(MixingEncoder):
    """Takes nothing from any neighbour."""

    name = "toy"

    def edge_weights(self, inputs: GraphInputs, logits: Tensor) -> Tensor:
        return torch.zeros_like(logits)


@pytest.fixture
def toy() -> Iterator[type[GraphEncoder]]:
    yield GRAPH_ENCODERS.add(OwnWordsEncoder)
    GRAPH_ENCODERS.remove("toy")


def test_the_table_holds_three_encoders_with_descriptions() -> None:
    assert list(GRAPH_ENCODERS) == ["hgt", "mixing", "hgtconv"]
    assert all(row.description for row in GRAPH_ENCODERS.values())


def test_hgtconv_adds_what_the_published_layer_makes_of_the_same_graph() -> None:
    inputs, encoder = canoe_talk(), encoder_of("hgtconv", trained=True)
    assert isinstance(encoder, HGTConvEncoder)
    plain = MixingEncoder(CONFIG)
    plain.load_state_dict({name: value for name, value in encoder.state_dict().items() if name in plain.state_dict()})
    kinds, relations = node_types(encoder.relations), encoder.relations
    x = {kind: inputs.text[inputs.node_type == at] for at, kind in enumerate(kinds)}
    place = torch.stack([(inputs.node_type[:row] == inputs.node_type[row]).sum() for row in range(len(inputs.text))])
    pairs = torch.stack([place[inputs.source], inputs.target])
    edges = {(row.source, row.name, EPISODE): pairs[:, inputs.relation == at] for at, row in enumerate(relations)}
    assert encoder.layer is not None
    ours, theirs = encoder(inputs), plain(inputs)
    torch.testing.assert_close(ours.text, theirs.text + encoder.share * encoder.layer(x, edges)[EPISODE])
    assert not torch.allclose(ours.text, theirs.text)
    for block in ("lexical", "context", "bias"):
        torch.testing.assert_close(getattr(ours, block), getattr(theirs, block))


def test_hgtconv_starts_as_relation_mixing_and_its_layer_learns() -> None:
    inputs, encoder = canoe_talk(), encoder_of("hgtconv")
    torch.testing.assert_close(encoder(inputs).joined(), encoder_of("mixing")(inputs).joined())
    optimiser = torch.optim.SGD(encoder.parameters(), lr=0.5)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    for _ in range(2):  # the layer itself moves once its share does
        optimiser.zero_grad()
        encoder(inputs).text.square().sum().backward()
        optimiser.step()
    moved = {name for name, value in encoder.state_dict().items() if not torch.equal(value, before[name])}
    assert "share" in moved
    assert any(name.startswith("layer.") for name in moved)


def test_hgtconv_encodes_a_turn_without_edges_alike_alone_and_among_others() -> None:
    inputs, encoder = canoe_talk(), encoder_of("hgtconv", trained=True)
    among = encoder(inputs.with_edges(inputs.target != 0)).text[0]
    alone = encoder(inputs.with_edges(torch.zeros(len(inputs.source), dtype=torch.bool))).text[0]
    torch.testing.assert_close(among, alone)
    assert not torch.allclose(alone, encoder(inputs).text[0])


def test_hgtconv_without_relations_is_the_turn_alone() -> None:
    inputs = canoe_talk().with_edges(torch.zeros(len(canoe_talk().source), dtype=torch.bool))
    made = encoder_of("hgtconv", replace(CONFIG, excluded_relations=("*",)))(inputs)
    torch.testing.assert_close(made.text, 0.5 * inputs.text[: inputs.num_turns])


def test_an_encoder_that_was_added_to_the_table_can_be_chosen_by_its_name(toy: type[GraphEncoder]) -> None:
    network = new_network(ModelConfig(encoder="toy", lexical_dim=64, speaker_dim=8, date_dim=16), 32)
    assert isinstance(network.nodes, OwnWordsEncoder)
    inputs = canoe_talk()
    torch.testing.assert_close(network.nodes(inputs).text, 0.5 * inputs.text[:3])


def test_an_unknown_encoder_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="graph encoder 'toy' is not known; known: hgt, mixing, hgtconv"):
        new_network(ModelConfig(encoder="toy"), 32)
    with pytest.raises(UnknownNameError, match="'hgtt' is not known; nearest is 'hgt'; known: hgt, mixing, hgtconv"):
        new_network(ModelConfig(encoder="hgtt"), 32)


def test_a_model_s_sizes_and_excluded_relations_reach_the_encoder() -> None:
    model = ModelConfig(lexical_dim=64, speaker_dim=8, date_dim=16, attention_dim=5, excluded_relations=["NEXT"])
    network = new_network(model, 32)
    assert network.nodes.config == EncoderConfig(
        32, HashedFeatures(64, 8, 16), attention_dim=5, excluded_relations=("NEXT",)
    )
    assert [relation.name for relation in network.nodes.relations] == ["fact", "event", "topic"]
    assert network.nodes.edge_features.shape == (3, EDGE_FEATURES, 3)


def test_the_shared_encoder_leaves_the_weights_of_edges_to_the_rows_of_the_table() -> None:
    with pytest.raises(NotImplementedError):
        GraphEncoder(CONFIG)(canoe_talk())
