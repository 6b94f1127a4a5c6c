from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.retrieval.protocols import Hit
from locigraph.retrieval.strategies.tempr import TemprGraph, TemprRetriever, nearness_to
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, Extra, make_snapshot

ENCODER = FakeEncoder(TEXT_DIM)
HOUR = 3600


def space_of(*sessions: Sequence[str], edges: Sequence[tuple[int, str, int]] = ()) -> Snapshot:
    turns = make_turns(*sessions)
    return make_snapshot(turns, [Extra("entity", "Ann")], edges)


def retriever(snapshot: Snapshot, **options: Any) -> TemprRetriever:
    return TemprRetriever(lambda space, as_of: snapshot, ENCODER, **options)


def test_the_score_is_the_sum_of_reciprocal_ranks() -> None:
    snapshot = space_of(["canoe canoe", "bread", "canoe and bread", "jam", "tea", "snow"])
    (first, *_) = retriever(snapshot).retrieve("canoe", SPACE).hits
    assert first.node_id == "n0"
    # First by meaning, words and activation; the question names no time.
    assert set(first.signals) == {"cosine", "bm25", "activation"}
    ranks = len(first.signals)
    assert first.score == pytest.approx(ranks / 61)


def test_links_in_time_fade_within_a_day_and_end_with_it() -> None:
    snapshot = space_of(["a a", "b b", "c c", "d d"])
    snapshot.valid_from[:4] = np.array([0, 6, 23, 30]) * HOUR + 10**9
    graph = TemprGraph(snapshot)
    links = graph.time_links.toarray()
    assert links[0, 1] == links[1, 0] == pytest.approx(0.75)  # 1 - 6 / 24
    assert links[0, 2] == pytest.approx(0.3)  # 1 - 23 / 24 is less
    assert links[1, 3] == pytest.approx(0.3)  # a day apart, to the hour
    assert links[0, 3] == 0


def test_entities_causes_and_like_meaning_link_memories() -> None:
    edges = [(0, "MENTIONS", 4), (3, "MENTIONS", 4), (1, "CAUSES", 3)]
    snapshot = space_of(["canoe lake"], ["bread"], ["canoe lake"], ["jam"], edges=edges)
    links = TemprGraph(snapshot).all_links.toarray()
    assert links[0, 3] == links[3, 0] == 1.0  # both name Ann
    assert links[0, 2] == pytest.approx(1.0)  # the same words, by cosine
    assert links[1, 3] == 2.0  # a cause
    assert links[0, 1] == 0.0


def test_time_counts_only_if_the_question_names_one() -> None:
    snapshot = space_of(["canoe on the lake"], ["canoe on the pond"])
    without = retriever(snapshot).retrieve("canoe on the", SPACE).hits
    assert all("time" not in hit.signals for hit in without)
    dated = retriever(snapshot).retrieve("canoe on the 8 January 2024", SPACE).hits
    assert dated[0].node_id == "n1"
    assert dated[0].signals["time"] == pytest.approx(1.0)


def test_relative_times_are_read_from_the_time_of_the_question() -> None:
    snapshot = space_of(["canoe on the lake"], ["canoe on the pond"])
    asked = retriever(snapshot).retrieve("canoe yesterday", SPACE, as_of=datetime(2024, 1, 2, tzinfo=UTC)).hits
    assert [hit.node_id for hit in asked if "time" in hit.signals] == ["n0"]


def test_nearness_to_the_middle_of_a_window() -> None:
    days = np.array([0, 5, 10, 20]) * 86_400
    found = nearness_to((0, 10 * 86_400), np.append(days, NO_TIME), np.append(days, NO_TIME))
    assert found.tolist() == pytest.approx([0.0, 1.0, 0.0, 0.0, 0.0])
    quarter = nearness_to((0, 10 * 86_400), np.array([2 * 86_400]), np.array([3 * 86_400]))
    assert quarter.tolist() == pytest.approx([0.5])  # the middle is 2.5 days from 5
    day = nearness_to((0, 86_399), np.array([0, 86_399, 86_400]), np.array([0, 86_399, 86_400]))
    assert day.tolist() == [1.0, 1.0, 0.0]  # any time of a single day is as near as another


def test_the_thinking_budget_bounds_every_search() -> None:
    snapshot = space_of([f"canoe number {i}" for i in range(20)])
    found = retriever(snapshot, thinking_budget=3).retrieve("canoe", SPACE, top_k=2).hits
    for signal in ("cosine", "bm25", "activation"):
        assert sum(signal in hit.signals for hit in found) <= 3


class LongestFirst:
    """A reranker that remembers what it read."""

    depth = 10

    def __init__(self) -> None:
        self.read: list[str] = []

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        self.read = [hit.description for hit in hits]
        return sorted(hits, key=lambda hit: -len(hit.description))


def test_a_reranker_reads_dates_and_the_hits_keep_their_texts() -> None:
    reranker = LongestFirst()
    snapshot = space_of(["canoe", "canoe with a red sail"])
    hits = retriever(snapshot, reranker=reranker).retrieve("canoe", SPACE).hits
    assert "[Date: January 1, 2024 (2024-01-01)] Ann: canoe" in reranker.read
    assert [hit.description for hit in hits] == ["Ben: canoe with a red sail", "Ann: canoe"]
