from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from locigraph.gnn.errors import GraphError, UnknownEdgeTypeError, UnknownNodeTypeError
from locigraph.gnn.hetero import (
    FORWARD_EDGE_TYPES,
    METADATA,
    NEXT_HOPS,
    check_receivers,
    inputs_of,
    reverse_of,
    to_hetero,
)
from locigraph.gnn.packed import EdgeType, GraphMetadata
from tests.fakes import make_turns
from tests.fakes_graph import CONTEXT, SKETCH, Extra, make_inputs, make_snapshot

TURNS = make_turns(["Did you see it? [shares a photo]", "two", "three", "four", "five", "six"], ["seven", "eight"])
EXTRAS = [
    Extra("knowledge_node", "Ann owns a canoe", (0, 1)),
    Extra("event_node", "Ann painted", (1,)),
    Extra("concept", "canoe_painting", (1,)),
    Extra("entity", "Ann", (0,)),
    Extra("reflection", "Ann likes boats", (0, 1)),
    Extra("sub_event", "Ann bought paint", (1,)),
]
FACT, EVENT, TOPIC, PERSON, INSIGHT, PART = range(8, 14)
EDGES = [
    (FACT, "DERIVED_FROM", 0), (FACT, "DERIVED_FROM", 1), (EVENT, "DERIVED_FROM", 1), (PART, "DERIVED_FROM", 1),
    (1, "HAS_CONCEPT", TOPIC), (FACT, "ABOUT_CONCEPT", TOPIC), (0, "MENTIONS", PERSON),
    (INSIGHT, "DERIVED_FROM_FACT", FACT), (EVENT, "CONTAINS", PART), (PERSON, "ADMIRES", FACT),
]  # fmt: skip
SNAPSHOT = make_snapshot(TURNS, EXTRAS, EDGES)


def rows_of(data: HeteroData, edge_type: EdgeType) -> set[tuple[int, int]]:
    """Edges of a relation as pairs of snapshot rows."""
    if edge_type not in data.edge_types:
        return set()
    source, target = data[edge_type].edge_index
    ends = data[edge_type[0]].row[source], data[edge_type[2]].row[target]
    return set(zip(*(end.tolist() for end in ends), strict=True))


def test_every_relation_has_its_reverse_and_every_node_type_receives() -> None:
    assert len(METADATA.edge_types) == 2 * len(FORWARD_EDGE_TYPES)
    for edge_type in FORWARD_EDGE_TYPES:
        assert reverse_of(edge_type) in METADATA.edge_types
    check_receivers(METADATA)


def test_reverse_edges_are_the_edges_turned_round() -> None:
    data = to_hetero(SNAPSHOT, SKETCH, CONTEXT)
    found = 0
    for edge_type in FORWARD_EDGE_TYPES:
        forward = rows_of(data, edge_type)
        assert rows_of(data, reverse_of(edge_type)) == {(b, a) for a, b in forward}
        found += len(forward)
    # 10 given, 5 + 1 steps, and 4 + 3 + 2 longer ones in the session of six.
    assert found == 10 + 6 + 9


def test_steps_of_several_turns_are_composed_and_never_cross_sessions() -> None:
    data = to_hetero(SNAPSHOT, SKETCH, CONTEXT)
    assert NEXT_HOPS == 4
    for hop in range(1, NEXT_HOPS + 1):
        name = "NEXT" if hop == 1 else f"NEXT_{hop}"
        within = {(i, i + hop) for i in range(6 - hop)} | ({(6, 7)} if hop == 1 else set())
        assert rows_of(data, ("episode", name, "episode")) == within


def test_rare_types_share_the_weights_of_the_nearest_and_coined_relations_are_related_to() -> None:
    data = to_hetero(SNAPSHOT, SKETCH, CONTEXT)
    assert data["knowledge_node"].row.tolist() == [FACT, INSIGHT]
    assert data["event_node"].row.tolist() == [EVENT, PART]
    assert rows_of(data, ("knowledge_node", "RELATED_TO", "knowledge_node")) == {(INSIGHT, FACT)}
    assert rows_of(data, ("event_node", "RELATED_TO", "event_node")) == {(EVENT, PART)}
    assert rows_of(data, ("entity", "RELATED_TO", "knowledge_node")) == {(PERSON, FACT)}


def test_nodes_carry_their_own_features_in_the_packed_order() -> None:
    inputs = make_inputs(SNAPSHOT)
    assert sorted(inputs.rows.tolist()) == list(range(SNAPSHOT.num_nodes))
    np.testing.assert_array_equal(inputs.text, SNAPSHOT.embeddings[inputs.rows])
    episodes = inputs.graph.slice_of("episode")
    assert inputs.rows[episodes].tolist() == list(range(8))
    asks, image, opens = (inputs.traits[episodes, column].tolist() for column in (1, 2, 3))
    assert asks == [1, 0, 0, 0, 0, 0, 0, 0]
    assert image == [1, 0, 0, 0, 0, 0, 0, 0]
    assert opens == [1, 1, 0, 0, 0, 0, 1, 1]
    # Turns by the same speaker share the speaker's part; structure has none.
    assert torch.equal(inputs.speakers[0], inputs.speakers[2])
    assert not torch.equal(inputs.speakers[0], inputs.speakers[1])
    assert not inputs.speakers[episodes.stop :].any()


def test_the_speakers_name_is_no_word_of_the_turn() -> None:
    turns = make_turns(["canoe", "canoe"])
    lexical = make_inputs(make_snapshot(turns)).lexical
    assert torch.equal(lexical[0], lexical[1])  # Ann's and Ben's


def test_a_node_type_that_would_receive_nothing_is_refused() -> None:
    mute = GraphMetadata(("episode", "concept"), (("concept", "ABOUT", "episode"),))
    with pytest.raises(GraphError, match="node type 'concept' is the target of no edge type"):
        check_receivers(mute)
    with pytest.raises(GraphError, match="'concept'"):
        to_hetero(make_snapshot(TURNS), SKETCH, CONTEXT, metadata=mute)


def test_a_snapshot_without_embeddings_is_refused() -> None:
    bare = replace(SNAPSHOT, embeddings=np.zeros((SNAPSHOT.num_nodes, 0), dtype=np.float32))
    with pytest.raises(GraphError, match="has no embeddings"):
        to_hetero(bare, SKETCH, CONTEXT)


def test_an_unknown_node_type_is_named() -> None:
    with pytest.raises(UnknownNodeTypeError, match="'mood'"):
        make_inputs(make_snapshot(TURNS, [Extra("mood", "glad")]))


def test_a_coined_label_between_any_two_types_is_seen_as_related_to() -> None:
    graph = make_inputs(make_snapshot(TURNS, EXTRAS, [(TOPIC, "ADMIRES", PERSON)])).graph
    edges = graph.edges_of(("concept", "RELATED_TO", "entity"))
    assert edges.stop - edges.start == 1


def test_a_type_that_the_metadata_lacks_is_refused() -> None:
    lacking = GraphMetadata(METADATA.node_types, tuple(t for t in METADATA.edge_types if "RELATED_TO" not in t[1]))
    with pytest.raises(UnknownEdgeTypeError, match="'concept', 'RELATED_TO', 'entity'"):
        to_hetero(make_snapshot(TURNS, EXTRAS, [(TOPIC, "ADMIRES", PERSON)]), SKETCH, CONTEXT, metadata=lacking)


def test_a_graph_of_turns_alone_has_all_types_and_no_other_edges() -> None:
    inputs = inputs_of(to_hetero(make_snapshot(make_turns(["alone"])), SKETCH, CONTEXT))
    assert (inputs.graph.num_nodes, inputs.graph.num_edges) == (1, 0)


def test_other_edges_leave_the_features_as_they_are() -> None:
    inputs = make_inputs(SNAPSHOT)
    fewer = inputs.with_graph(inputs.graph.without_edges(keep=torch.zeros(inputs.graph.num_edges, dtype=torch.bool)))
    assert fewer.graph.num_edges == 0
    assert fewer.text is inputs.text
    assert fewer.to("cpu").graph.num_nodes == inputs.graph.num_nodes


def test_chosen_nodes_take_texts_words_and_traits_of_another_graph() -> None:
    first = make_inputs(make_snapshot(make_turns(["a red canoe", "Yes"]), [], []))
    second = make_inputs(make_snapshot(make_turns(["a kite?", "No"]), [], []))
    mixed = first.with_features_of(second, torch.tensor([True, False]))
    for name in ("text", "lexical", "traits"):
        assert getattr(mixed, name)[0].equal(getattr(second, name)[0])
        assert getattr(mixed, name)[1].equal(getattr(first, name)[1])
    assert mixed.graph is first.graph
    assert mixed.context is first.context


def test_turns_and_events_are_dated_and_facts_are_not() -> None:
    day = 1_700_000_000
    held = np.full(SNAPSHOT.num_nodes, day, dtype=np.int64)
    inputs = make_inputs(replace(SNAPSHOT, valid_from=held, valid_to=held))
    at = {int(row): i for i, row in enumerate(inputs.rows.tolist())}
    dates = inputs.context[:, CONTEXT.speaker_dim :]
    assert dates[at[EVENT]].any()
    assert dates[at[0]].any()
    assert not dates[at[FACT]].any()
