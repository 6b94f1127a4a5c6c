from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.schema import NODE_TYPES, searchable_types
from locigraph.retrieval.hits import turns_of_hits
from locigraph.retrieval.protocols import Hit
from tests.fakes_graph import hit

HITS = st.lists(
    st.builds(
        lambda kind, turns: hit("n", kind, *turns),
        st.sampled_from([node_type.name for node_type in NODE_TYPES.values()]),
        st.lists(st.sampled_from("abcdef"), unique=True, max_size=4),
    ),
    max_size=8,
)


def test_a_fact_is_replaced_in_its_place_by_its_source_turns() -> None:
    hits = [hit("e3", "episode", "t3"), hit("f", "knowledge_node", "t1", "t7"), hit("e5", "episode", "t5")]
    assert turns_of_hits(hits, top_k=10) == ["t3", "t1", "t7", "t5"]


def test_a_turn_counts_once_where_it_stood_first() -> None:
    hits = [hit("f", "knowledge_node", "t1", "t2"), hit("e2", "episode", "t2"), hit("v", "event_node", "t3", "t1")]
    assert turns_of_hits(hits, top_k=10) == ["t1", "t2", "t3"]


@pytest.mark.parametrize("kind", ["concept", "entity", "event_category", "knowledge_category"])
def test_structure_is_never_a_hit(kind: str) -> None:
    assert turns_of_hits([hit("c", kind, "t1"), hit("e", "episode", "t2")], top_k=10) == ["t2"]


def test_the_list_is_cut_within_a_hit_that_stands_for_several_turns() -> None:
    hits = [hit("e", "episode", "t9"), hit("f", "knowledge_node", "t1", "t2", "t3")]
    assert turns_of_hits(hits, top_k=3) == ["t9", "t1", "t2"]


@given(HITS, st.integers(1, 8))
def test_turns_equal_a_slow_loop(hits: list[Hit], top_k: int) -> None:
    expected: list[str] = []
    for found in hits:
        if found.type in searchable_types():
            expected += [turn for turn in found.turn_ids if turn not in expected]
    assert turns_of_hits(hits, top_k=top_k) == expected[:top_k]
