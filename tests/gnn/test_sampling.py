from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from locigraph.gnn.errors import GraphError
from locigraph.gnn.hetero import reverse_of
from locigraph.gnn.packed import EdgeType, PackedGraph
from locigraph.gnn.sampling import (
    drop_edges,
    hide_sources_of_half,
    likely_false_negatives,
    random_half,
    split_supervision,
)
from tests.fakes import make_turns
from tests.fakes_graph import Extra, make_inputs, make_snapshot

FACT: EdgeType = ("knowledge_node", "DERIVED_FROM", "episode")
EVENT: EdgeType = ("event_node", "DERIVED_FROM", "episode")
RELATED: EdgeType = ("event_node", "RELATED_TO", "knowledge_node")
RELATED_BACK: EdgeType = ("knowledge_node", "RELATED_TO", "event_node")
TURNS = 12


def dense_graph(seed: int = 0) -> PackedGraph:
    """12 turns, 12 facts and 12 events with random edges, among them several relations between the same nodes."""
    extras = [Extra("knowledge_node", f"fact {i}") for i in range(TURNS)]
    extras += [Extra("event_node", f"event {i}") for i in range(TURNS)]
    draw = torch.Generator().manual_seed(seed)

    def end(first: int) -> int:
        return first + int(torch.randint(TURNS, (), generator=draw))

    edges = {(end(TURNS), "DERIVED_FROM", end(0)) for _ in range(30)}
    edges |= {(end(2 * TURNS), "DERIVED_FROM", end(0)) for _ in range(20)}
    for _ in range(20):
        fact, event = end(TURNS), end(2 * TURNS)
        edges |= {(event, "CAUSES", fact), (fact, "CAUSES", event)}
    snapshot = make_snapshot(make_turns([f"turn {i}" for i in range(TURNS)]), extras, sorted(edges))
    return make_inputs(snapshot).graph


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pairs(graph: PackedGraph, edge_type: EdgeType) -> set[tuple[int, int]]:
    edges = graph.edges_of(edge_type)
    return set(zip(graph.source[edges].tolist(), graph.target[edges].tolist(), strict=True))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 0.95))
def test_no_supervision_edge_its_reverse_or_a_parallel_relation_is_a_message_edge(seed: int, share: float) -> None:
    graph = dense_graph(seed)
    message, supervision = split_supervision(
        graph, [FACT, EVENT, RELATED, RELATED_BACK], share=share, generator=generator(seed)
    )
    hidden = {frozenset(ends) for s in supervision for ends in zip(s.source.tolist(), s.target.tolist(), strict=True)}
    carried = {frozenset(ends) for ends in zip(message.source.tolist(), message.target.tolist(), strict=True)}
    assert hidden
    assert not hidden & carried
    # All other edges, and only those, still carry messages.
    everything = [frozenset(ends) for ends in zip(graph.source.tolist(), graph.target.tolist(), strict=True)]
    assert message.num_edges == sum(ends not in hidden for ends in everything)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_supervision_edges_are_edges_and_negatives_are_not(seed: int, hard: bool) -> None:
    graph = dense_graph(seed)
    text = torch.randn(graph.num_nodes, 4, generator=generator(seed)) if hard else None
    _, supervision = split_supervision(
        graph, [FACT, EVENT], share=0.3, generator=generator(seed), text=text, hard_candidates=16
    )
    for chosen in supervision:
        edges = pairs(graph, chosen.edge_type)
        assert len(chosen.source) == max(1, int(0.3 * len(edges)))
        targets = graph.slice_of(chosen.edge_type[2])
        for source, target, negative in zip(
            chosen.source.tolist(), chosen.target.tolist(), chosen.negative.tolist(), strict=True
        ):
            assert (source, target) in edges
            assert (source, negative) not in edges
            assert targets.start <= negative < targets.stop


def test_a_hard_negative_is_the_likest_of_the_drawn_ones() -> None:
    graph = dense_graph()
    episodes = graph.slice_of("episode")
    text = torch.zeros(graph.num_nodes, 1)
    text[episodes, 0] = torch.arange(1, TURNS + 1, dtype=torch.float32)

    def mean_of_negatives(given_text: torch.Tensor | None) -> float:
        drawn = [
            split_supervision(graph, [FACT], share=0.5, generator=generator(s), text=given_text)[1][0].negative
            for s in range(20)
        ]
        return float(text[torch.cat(drawn), 0].mean())

    assert mean_of_negatives(text) > mean_of_negatives(None) + 2


def test_relations_with_fewer_than_two_edges_are_not_predicted() -> None:
    turns = make_turns(["one", "two"])
    graph = make_inputs(make_snapshot(turns, [Extra("knowledge_node", "fact")], [(2, "DERIVED_FROM", 0)])).graph
    message, supervision = split_supervision(graph, [FACT, EVENT], share=0.5, generator=generator(0))
    assert supervision == []
    assert message is graph


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0])
def test_a_share_outside_0_and_1_is_refused(share: float) -> None:
    with pytest.raises(GraphError, match="expected a number between 0 and 1"):
        split_supervision(dense_graph(), [FACT], share=share, generator=generator(0))


def test_the_same_seed_chooses_the_same_edges() -> None:
    first, second = (split_supervision(dense_graph(), [FACT], share=0.3, generator=generator(5))[1] for _ in range(2))
    assert torch.equal(first[0].source, second[0].source)
    assert torch.equal(first[0].negative, second[0].negative)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_the_chosen_half_keeps_no_edge_that_gives_the_answer_away(seed: int) -> None:
    graph = dense_graph(seed)
    message, chosen = hide_sources_of_half(graph, [FACT, EVENT], generator=generator(seed))
    targets = {target for kind in (FACT, EVENT) for _, target in pairs(graph, kind)}
    half = set(chosen.nonzero().flatten().tolist())
    assert half <= targets
    assert len(half) == len(targets) // 2
    for kind in (FACT, EVENT):
        kept = pairs(message, kind)
        assert kept == {(a, b) for a, b in pairs(graph, kind) if b not in half}
        assert pairs(message, reverse_of(kind)) == {(b, a) for a, b in kept}
    for kind in (("episode", "NEXT", "episode"), RELATED):
        assert pairs(message, kind) == pairs(graph, kind)


def test_a_view_keeps_about_the_asked_share_of_edges() -> None:
    graph = dense_graph()
    kept = [drop_edges(graph, share=0.25, generator=generator(s)).num_edges / graph.num_edges for s in range(20)]
    assert sum(kept) / 20 == pytest.approx(0.75, abs=0.03)
    assert drop_edges(graph, share=0.0, generator=generator(0)).num_edges == graph.num_edges
    assert drop_edges(graph, share=1.0, generator=generator(0)).num_edges == 0


def test_turns_that_say_what_an_answer_says_are_likely_false_negatives() -> None:
    text = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
    positive = torch.tensor([[True, False, False, False], [False, False, True, False], [False, True, False, True]])
    # Cosines: 0-1 .8, 0-3 .6, 1-2 .6, 1-3 .96, 2-3 .8.
    assert likely_false_negatives(text, positive, cosine=0.75).tolist() == [
        [False, True, False, False], [False, False, False, True], [True, False, True, False],
    ]  # fmt: skip
    assert not likely_false_negatives(text, positive, cosine=1.0).any()


@given(st.integers(0, 9), st.integers(0, 100))
def test_a_random_half_is_rounded_down_and_decided_by_the_seed(count: int, seed: int) -> None:
    nodes = torch.arange(0, 2 * count, 2)
    chosen = random_half(nodes, 20, generator=generator(seed))
    assert int(chosen.sum()) == count // 2
    assert set(chosen.nonzero().flatten().tolist()) <= set(nodes.tolist())
    assert chosen.equal(random_half(nodes, 20, generator=generator(seed)))
