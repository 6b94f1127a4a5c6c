from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from locigraph.gnn.encoders import GRAPH_ENCODERS, EncoderConfig
from locigraph.gnn.errors import GraphError
from locigraph.gnn.features import node_types
from locigraph.gnn.relations import BLOCKS, MAX_HOPS, RELATIONS, NetworkRelation, network_relations
from locigraph.kg.schema import NODE_TYPES, RELATION_LABELS
from tests.fakes import make_turns
from tests.fakes_graph import HASHED, TEXT_DIM, Extra, make_inputs, make_snapshot

CONFIG = EncoderConfig(TEXT_DIM, HASHED, attention_dim=4)


def test_the_table_holds_facts_events_topics_and_four_turns_on_either_side() -> None:
    assert list(RELATIONS) == [
        "fact", "event", "topic", "previous", "next",
        "previous_2", "previous_3", "previous_4", "next_2", "next_3", "next_4",
    ]  # fmt: skip
    assert [row.hops for row in RELATIONS.values()] == [1, 1, 1, 1, 1, 2, 3, MAX_HOPS, 2, 3, MAX_HOPS]
    assert [name for name, row in RELATIONS.items() if row.is_reversed] == [
        "topic", "next", "next_2", "next_3", "next_4"
    ]  # fmt: skip


def test_every_row_names_a_type_and_a_family_of_the_schema_and_a_weight_for_each_block() -> None:
    types = {row.network for row in NODE_TYPES.values()}
    families = {label.family for label in RELATION_LABELS.values()}
    for row in RELATIONS.values():
        assert row.source in types, row.name
        assert row.family in families, row.name
        assert len(row.start) == len(BLOCKS), row.name


def test_at_first_only_direct_neighbours_count_and_only_events_lend_their_date() -> None:
    assert [name for name, row in RELATIONS.items() if any(row.start)] == ["fact", "event", "topic", "previous", "next"]
    assert [name for name, row in RELATIONS.items() if row.start[BLOCKS.index("context")]] == ["event"]


def test_a_relation_is_excluded_by_its_name_and_a_family_with_all_its_rows() -> None:
    assert [row.name for row in network_relations(["topic", "NEXT"])] == ["fact", "event"]
    assert [row.name for row in network_relations(["DERIVED_FROM", "previous_2"])][:3] == ["topic", "previous", "next"]
    assert "previous_2" not in [row.name for row in network_relations(["previous_2"])]
    assert network_relations() == tuple(RELATIONS.values())
    assert network_relations(["*"]) == ()


@pytest.mark.parametrize("name", ["nxt", "RELATED_TO", ""])
def test_an_unknown_relation_to_exclude_is_refused_with_the_known_names_and_families(name: str) -> None:
    with pytest.raises(GraphError, match=f"excluded relation '{name}' is not known.*'DERIVED_FROM'.*'fact'.*'next_4'"):
        network_relations(["fact", name])


def test_the_nearest_known_name_is_suggested() -> None:
    with pytest.raises(GraphError, match="'NEXTT' is not known; nearest is 'NEXT'"):
        network_relations(["NEXTT"])


@pytest.fixture
def person() -> Iterator[NetworkRelation]:
    """A row of the user's own; the shipped table has none of its type, family and direction."""
    yield RELATIONS.add(NetworkRelation("person", "entity", "MENTIONS", is_reversed=True, start=(0.4, 0.3, 0.2)))
    RELATIONS.remove("person")


@pytest.mark.parametrize("name", GRAPH_ENCODERS)
def test_one_more_row_is_enough_for_features_and_encoders_to_use_it(name: str, person: NetworkRelation) -> None:
    turns = make_turns(["I met her", "Who?"])
    snapshot = make_snapshot(turns, [Extra("entity", "Maria Lopez")], [(0, "MENTIONS", 2)])
    inputs = make_inputs(snapshot)
    assert "entity" in node_types(network_relations())
    position = network_relations().index(person)
    assert (2, 0, position) in zip(*(t.tolist() for t in (inputs.source, inputs.target, inputs.relation)), strict=True)

    vectors = GRAPH_ENCODERS[name](CONFIG)(inputs)
    text, words = inputs.text, inputs.lexical
    # Turn 0 and the turn after it are in the table as shipped; the person comes in by the new row.
    torch.testing.assert_close(vectors.text[0], 0.5 * text[0] + 0.15 * text[1] + 0.4 * text[2])
    torch.testing.assert_close(vectors.lexical[0], 0.5 * words[0] + 0.1 * words[1] + 0.3 * words[2])


def test_without_that_row_people_are_not_among_the_nodes() -> None:
    snapshot = make_snapshot(make_turns(["I met her", "Who?"]), [Extra("entity", "Maria Lopez")], [(0, "MENTIONS", 2)])
    assert "person" not in RELATIONS
    assert make_inputs(snapshot).rows.tolist() == [0, 1]
