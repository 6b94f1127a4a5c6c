from __future__ import annotations

from datetime import UTC, date, datetime
from typing import cast

import numpy as np
import pytest

from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.times import epoch
from locigraph.research.published.assomem import AssoMemRetriever
from locigraph.research.published.gaama import GaamaRetriever
from locigraph.research.published.hipporag import HippoRagRetriever
from locigraph.research.published.magma import MagmaRetriever
from locigraph.research.published.tempr import TemprRetriever
from locigraph.retrieval.protocols import Retriever
from locigraph.retrieval.strategies.memory_graph import (
    Asked,
    GraphRetriever,
    MemoryGraph,
    max_normalised,
    min_max,
    only,
)
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, Extra, make_snapshot, permuted

ENCODER = FakeEncoder(TEXT_DIM)
ALL = [GaamaRetriever, HippoRagRetriever, TemprRetriever, AssoMemRetriever, MagmaRetriever]
LINES = ["I bought a canoe", "nice one, on the lake", "the bread rose well", "and the jam set", "so long"]


def space_of() -> Snapshot:
    """Two sessions; turn 0 and fact 6 are about a canoe, entity 9 and topic 8 join them."""
    facts = [Extra("knowledge_node", "Ann has a canoe", (0,)), Extra("event_node", "Ben went to the lake", (1,))]
    topics = [Extra("concept", "boats and canoe", (0, 1)), Extra("entity", "Ann", (0, 2, 4))]
    edges = [(6, "DERIVED_FROM", 0), (7, "DERIVED_FROM", 1), (6, "ABOUT_CONCEPT", 8), (0, "HAS_CONCEPT", 8)]
    edges += [(1, "HAS_CONCEPT", 8), (6, "MENTIONS", 9), (0, "MENTIONS", 9), (2, "MENTIONS", 9), (5, "CAUSES", 7)]
    return make_snapshot(make_turns(LINES, ["because of the lake"]), [*facts, *topics], edges)


def retriever(kind: type, snapshot: Snapshot) -> Retriever:
    return cast(Retriever, kind(lambda space, as_of: snapshot, ENCODER))


@pytest.mark.parametrize("kind", ALL)
def test_the_turn_of_the_question_comes_first_or_its_fact(kind: type[GraphRetriever[MemoryGraph]]) -> None:
    hits = retriever(kind, space_of()).retrieve("Ann canoe", SPACE, top_k=3).hits
    assert hits[0].turn_ids == ("t0",)
    assert all(hit.type not in ("concept", "entity") for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len({hit.node_id for hit in hits}) == len(hits) >= 3


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("question", ["Who has a canoe?", "Why the lake on 1 January 2024?", "and the"])
def test_results_do_not_depend_on_the_order_of_insertion(
    kind: type[GraphRetriever[MemoryGraph]], seed: int, question: str
) -> None:
    snapshot = space_of()
    order = np.random.default_rng(seed).permutation(snapshot.num_nodes)
    found = retriever(kind, snapshot).retrieve(question, SPACE, top_k=20).hits
    again = retriever(kind, permuted(snapshot, order.tolist())).retrieve(question, SPACE, top_k=20).hits
    assert [hit.node_id for hit in again] == [hit.node_id for hit in found]
    assert [hit.score for hit in again] == pytest.approx([hit.score for hit in found], abs=1e-5)


@pytest.mark.parametrize("kind", ALL)
def test_archived_memories_are_no_hits(kind: type[GraphRetriever[MemoryGraph]]) -> None:
    snapshot = space_of()
    snapshot.active[[0, 6]] = False
    found = {hit.node_id for hit in retriever(kind, snapshot).retrieve("Ann canoe", SPACE, top_k=20).hits}
    assert found
    assert not found & {"n0", "n6"}


@pytest.mark.parametrize("kind", ALL)
def test_nothing_is_found_before_the_first_turn_and_a_single_turn_always(
    kind: type[GraphRetriever[MemoryGraph]],
) -> None:
    empty = retriever(kind, make_snapshot([], []))
    assert empty.retrieve("canoe", SPACE, as_of=datetime(1900, 1, 1, tzinfo=UTC)).hits == ()
    alone = retriever(kind, make_snapshot(make_turns(["I bought a canoe"]))).retrieve("canoe", SPACE)
    assert [hit.node_id for hit in alone.hits] == ["n0"]


@pytest.mark.parametrize("kind", ALL)
def test_a_space_without_dates_facts_or_links_is_searched(kind: type[GraphRetriever[MemoryGraph]]) -> None:
    snapshot = make_snapshot(make_turns(LINES))
    snapshot.spoken_at[:] = snapshot.valid_from[:] = NO_TIME
    hits = retriever(kind, snapshot).retrieve("a canoe yesterday", SPACE, top_k=2).hits
    assert hits[0].node_id == "n0"


@pytest.mark.parametrize("kind", ALL)
def test_a_question_finds_everything_about_its_space_made(kind: type[GraphRetriever[MemoryGraph]]) -> None:
    made = cast(GraphRetriever[MemoryGraph], retriever(kind, space_of()))
    graph = made.graph_of(SPACE, None)
    held = set(vars(graph))
    made.retrieve("Why a canoe on 1 January 2024?", SPACE)
    assert made.graph_of(SPACE, None) is graph
    assert set(vars(graph)) == held


def test_a_question_names_a_window_of_whole_days() -> None:
    asked = Asked("What was last week?", np.zeros(2, np.float32), date(2024, 1, 10))
    first, last = (int(datetime(2024, 1, day, tzinfo=UTC).timestamp()) for day in (1, 8))
    assert asked.window == (first, last - 1)
    assert Asked("What was last week?", np.zeros(2, np.float32)).window is None
    assert Asked("What happened?", np.zeros(2, np.float32), date(2024, 1, 10)).window is None


def test_links_are_symmetric_and_the_heaviest_of_parallel_ones_counts() -> None:
    graph = MemoryGraph(make_snapshot(make_turns(LINES)))
    made = graph.links(np.array([0, 1, 2, 3]), np.array([1, 0, 2, 4]), np.array([0.2, 0.7, 1.0, 0.5])).toarray()
    assert made[0, 1] == made[1, 0] == 0.7
    assert made[3, 4] == made[4, 3] == 0.5
    assert np.count_nonzero(made) == 4  # none from a node to itself


def test_similar_pairs_match_a_slow_loop() -> None:
    snapshot = make_snapshot(make_turns([f"word{i % 7} word{i % 3} thing{i % 5}" for i in range(40)]))
    graph, vectors = MemoryGraph(snapshot), snapshot.embeddings.astype(float)
    left, right, cosine = graph.similar(graph.memories, at_least=0.45)
    expected = {(i, j) for i in range(40) for j in range(40) if i != j and vectors[i] @ vectors[j] >= 0.45}
    assert set(zip(left.tolist(), right.tolist(), strict=True)) == expected
    assert cosine.tolist() == pytest.approx((vectors[left] * vectors[right]).sum(1).tolist(), abs=1e-6)


def test_of_equally_similar_pairs_only_as_many_as_asked_for_are_kept_the_first_ids_first() -> None:
    graph = MemoryGraph(make_snapshot(make_turns(["thanks"] * 12)))
    left, right, _ = graph.similar(graph.memories, at_least=0.9, most=3)
    assert np.bincount(left).tolist() == [3] * 12
    # Every second turn is of the same speaker. In the order of the IDs as texts n10 comes before n2.
    assert sorted(right[left == 0].tolist()) == [2, 4, 10]
    assert sorted(right[left == 5].tolist()) == [1, 3, 11]


def test_a_fact_is_dated_by_its_turn_and_an_event_by_its_own_time() -> None:
    snapshot = space_of()
    day = epoch(datetime(2023, 5, 7, tzinfo=UTC))
    snapshot.valid_from[[6, 7]] = day
    first, last = snapshot.times
    assert first[6] == snapshot.spoken_at[0]
    assert first[7] == last[7] == day


def test_scaling() -> None:
    assert max_normalised(np.array([1.0, 4.0])).tolist() == [0.25, 1.0]
    assert max_normalised(np.zeros(2)).tolist() == [0.0, 0.0]
    assert min_max(np.array([2.0, 4.0, 3.0])).tolist() == [0.0, 1.0, 0.5]
    assert min_max(np.ones(2)).tolist() == [0.0, 0.0]
    assert min_max(np.zeros(0)).tolist() == []
    assert np.isnan(only(np.ones(2), np.array([1]))).tolist() == [True, False]
