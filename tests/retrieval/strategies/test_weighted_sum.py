from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest
from numpy.typing import NDArray

from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import SpaceId
from locigraph.retrieval.strategies.turn_signals import TEXT_SIGNALS, TurnSignals
from locigraph.retrieval.strategies.weighted_sum import EQUAL_WEIGHTS, FusionRetriever, WeightedSum
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, Extra, make_snapshot

ENCODER = FakeEncoder(TEXT_DIM)
LINES = ["I bought a canoe", "nice one", "the bread rose well", "and the jam set", "so long"]


def space_of(lines: Sequence[str] = LINES) -> Snapshot:
    facts = [Extra("knowledge_node", "Ann keeps an otter", (1,)), Extra("event_node", "Ben went sailing", (1, 3))]
    facts += [Extra("knowledge_node", f"Ann likes {thing}", (4,)) for thing in ("tea", "snow")]
    return make_snapshot(make_turns(list(lines)), facts)


def signals(query: str, snapshot: Snapshot | None = None) -> dict[str, NDArray[np.float64]]:
    found = TurnSignals(snapshot or space_of(), TEXT_SIGNALS).of(query, ENCODER.encode([query])[0])
    return dict(zip(TEXT_SIGNALS, found, strict=True))


def retriever(snapshot: Snapshot, **weights: float) -> FusionRetriever:
    def load(space: SpaceId, as_of: datetime | None) -> Snapshot:
        return snapshot

    return FusionRetriever(load, ENCODER, fusion=WeightedSum(weights) if weights else EQUAL_WEIGHTS)


def test_each_signal_lies_between_0_and_1_and_names_its_best_turn() -> None:
    found = signals("canoe")
    for name, values in found.items():
        assert values.min() >= 0, name
        assert values.max() <= 1, name
    assert found["bm25"].argmax() == found["dense"].argmax() == 0
    assert found["bm25"].tolist() == [1, 0, 0, 0, 0]


def test_a_turn_shares_the_words_of_its_neighbours_in_the_window_signals_only() -> None:
    found = signals("canoe")
    assert (found["bm25_window"] > 0).tolist() == [True, True, False, False, False]


def test_a_fact_counts_for_all_turns_it_was_drawn_from() -> None:
    assert signals("otter")["bm25_facts"].tolist() == [0, 1, 0, 0, 0]
    assert signals("sailing")["bm25_facts"].tolist() == [0, 1, 0, 1, 0]
    assert not signals("otter")["bm25"].any()


def test_the_score_is_the_weighted_sum_of_the_signals() -> None:
    snapshot = space_of()
    weights = {"dense": 2.0, "bm25_facts": 0.5}
    hits = retriever(snapshot, **weights).retrieve("otter", SPACE, top_k=5).hits
    parts = signals("otter", snapshot)
    expected = 2.0 * parts["dense"] + 0.5 * parts["bm25_facts"]
    assert [hit.score for hit in hits] == pytest.approx(sorted(expected.tolist(), reverse=True))
    assert all(hit.type == "episode" and len(hit.turn_ids) == 1 for hit in hits)


def test_archived_turns_are_no_hits() -> None:
    snapshot = space_of()
    snapshot.active[0] = False
    found = retriever(snapshot).retrieve("canoe", SPACE, top_k=9).hits
    assert len(found) == len(LINES) - 1
    assert snapshot.ids[0] not in {hit.node_id for hit in found}


def test_a_space_without_facts_is_searched_by_its_turns() -> None:
    snapshot = make_snapshot(make_turns(LINES))
    assert retriever(snapshot).retrieve("canoe", SPACE, top_k=1).hits[0].node_id == snapshot.ids[0]


def test_before_the_first_turn_nothing_is_found() -> None:
    assert retriever(make_snapshot([], [])).retrieve("canoe", SPACE, as_of=datetime(1900, 1, 1, tzinfo=UTC)).hits == ()


def test_a_window_ends_with_its_session() -> None:
    snapshot = make_snapshot(
        make_turns(["Hello", "I bought a canoe"], ["nice one", "so long", "good night", "see you", "take care"])
    )
    assert (signals("canoe", snapshot)["bm25_window"] > 0).tolist() == [True, True, *[False] * 5]
