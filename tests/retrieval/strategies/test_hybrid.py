from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from locigraph.kg.errors import UnknownSpaceError
from locigraph.kg.schema import searchable_types
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.errors import IndexUnavailableError
from locigraph.retrieval.protocols import Hit, VectorMatch, VectorSearch
from locigraph.retrieval.query_generator import SearchQuery
from locigraph.retrieval.strategies.hybrid import HybridRetriever
from tests.fakes import MONDAY, SPACE, FakeEncoder, make_turns
from tests.fakes_graph import (
    TEXT_DIM,
    BrokenVectors,
    Extra,
    FixedVectors,
    lexical_of,
    make_snapshot,
    vectors_of,
)

HELD = make_snapshot(
    make_turns(["I painted the canoe", "Lovely colour", "The kite is torn", "Fine weather"]),
    [Extra("knowledge_node", "a canoe", (0,)), Extra("concept", "canoe", (0,))],
)


@contextmanager
def v1(vectors: VectorSearch, held: Snapshot = HELD, **options: Any) -> Iterator[HybridRetriever]:
    with ThreadPoolExecutor(1) as pool:
        yield HybridRetriever(lexical_of(held), vectors, FakeEncoder(TEXT_DIM), pool=pool, **options)


def ranked(hits: Sequence[Hit]) -> list[tuple[str, object]]:
    return [(str(hit.node_id), hit.score) for hit in hits]


def match(name: str, score: float) -> VectorMatch:
    return VectorMatch(NodeId(name), "episode", (), score)


def test_the_arms_are_fused_by_hand_worked_reciprocal_ranks() -> None:
    # BM25 of "canoe": n4 (shorter), n0. ANN: n2, n0.
    with v1(FixedVectors([match("n2", 0.9), match("n0", 0.8)])) as retriever:
        hits = retriever.retrieve("canoe", SPACE).hits
    assert ranked(hits) == [
        ("n0", pytest.approx(1 / 4 + 1 / 4)),
        ("n2", pytest.approx(1 / 3)),
        ("n4", pytest.approx(1 / 3)),
    ]
    assert set(hits[0].signals) == {"rrf", "bm25", "ann"}
    assert set(hits[1].signals) == {"rrf", "ann"}
    assert set(hits[2].signals) == {"rrf", "bm25"}
    assert hits[0].signals["ann"] == 0.8
    assert hits[2].turn_ids == ("t0",)


def test_the_ann_arm_can_count_more_than_bm25() -> None:
    with v1(FixedVectors([match("n2", 0.9), match("n0", 0.8)]), ann_weight=3.0) as retriever:
        hits = retriever.retrieve("canoe", SPACE).hits
    assert ranked(hits) == [
        ("n0", pytest.approx(1 / 4 + 3 / 4)),
        ("n2", pytest.approx(3 / 3)),
        ("n4", pytest.approx(1 / 3)),
    ]


def test_every_query_of_the_generator_adds_two_rankings() -> None:
    vectors = FixedVectors([match("n2", 0.9)])
    with v1(vectors, queries=lambda question, day: [SearchQuery("kite"), SearchQuery("canoe")], rrf_k=1) as retriever:
        hits = retriever.retrieve("anything", SPACE).hits
    # n2 leads both arms for "kite" and the ANN arm again for "canoe"; BM25 for "canoe" puts n4 before n0.
    assert ranked(hits) == [("n2", pytest.approx(3 / 2)), ("n4", pytest.approx(1 / 2)), ("n0", pytest.approx(1 / 3))]
    assert {scope.types for scope in vectors.scopes} == {searchable_types()}


def test_both_arms_look_at_the_asked_space_and_time() -> None:
    vectors = FixedVectors([])
    with v1(vectors) as retriever:
        hits = retriever.retrieve("canoe kite", SPACE, as_of=MONDAY).hits
    assert {hit.node_id for hit in hits} == {"n0", "n4"}
    assert [(scope.space, scope.as_of) for scope in vectors.scopes] == [(SPACE, MONDAY)]


def test_depth_limits_what_an_arm_gives_but_never_below_what_was_asked_for() -> None:
    with v1(FixedVectors([match("n2", 0.9), match("n1", 0.8)]), depth=1) as retriever:
        assert {hit.node_id for hit in retriever.retrieve("canoe", SPACE, top_k=1).hits} == {"n2", "n4"}
        assert len(retriever.retrieve("canoe", SPACE, top_k=2).hits) > 2


def test_concepts_are_not_searched() -> None:
    with v1(vectors_of(HELD)) as retriever:
        assert {hit.node_id for hit in retriever.retrieve("canoe", SPACE).hits} == {"n0", "n1", "n2", "n3", "n4"}


def test_a_row_whose_node_is_gone_is_passed_over() -> None:
    with v1(FixedVectors([match("forgotten", 0.9)])) as retriever:
        assert [hit.node_id for hit in retriever.retrieve("kite", SPACE).hits] == ["n2"]


def test_an_outage_of_the_index_is_an_error_and_not_a_half_result() -> None:
    with v1(BrokenVectors()) as retriever, pytest.raises(IndexUnavailableError):
        retriever.retrieve("canoe", SPACE)


def test_an_unknown_space_is_an_error() -> None:
    with v1(vectors_of(HELD)) as retriever, pytest.raises(UnknownSpaceError):
        retriever.retrieve("canoe", SpaceId("nobody"))


def test_what_falls_into_the_time_that_a_question_names_counts_twice_where_windows_are_used() -> None:
    held = make_snapshot(make_turns(["I painted the canoe"], ["I sold the canoe"]))
    found = FixedVectors([match("n0", 0.9), match("n1", 0.8)])
    question = "What about the canoe on 8 January 2024?"  # the day of n1
    with v1(found, held) as plain, v1(found, held, uses_windows=True) as in_time:
        before, after = (
            {str(hit.node_id): hit.score for hit in each.retrieve(question, SPACE).hits} for each in (plain, in_time)
        )
    assert after["n0"] == before["n0"]
    assert after["n1"] == pytest.approx(before["n1"] + 1 / 3 + 1 / 3)  # first of both rankings of that day
    with v1(found, held, uses_windows=True) as in_time:
        assert in_time.retrieve("What about the canoe?", SPACE).hits[0].node_id == "n0"


def test_a_query_may_look_for_some_types_only() -> None:
    queries = [SearchQuery("canoe", types=("knowledge_node",))]
    with v1(vectors_of(HELD), queries=lambda question, day: queries) as retriever:
        assert {hit.type for hit in retriever.retrieve("canoe", SPACE).hits} == {"knowledge_node"}
