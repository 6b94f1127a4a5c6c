from __future__ import annotations

from typing import Any

import networkx
import numpy as np
import pytest

from locigraph.kg.snapshot import Snapshot
from locigraph.retrieval.strategies.hipporag import HippoRagRetriever
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, Extra, make_snapshot

ENCODER = FakeEncoder(TEXT_DIM)


def space_of() -> Snapshot:
    """Turns 0 to 2; facts 3 (Ann, canoe) and 4 (Ben, lake); entities 5 Ann, 6 canoe, 7 Ben, 8 lake."""
    turns = make_turns(["I bought it", "we went to the water", "so long"])
    facts = [Extra("knowledge_node", "Ann has a canoe", (0,)), Extra("event_node", "Ben went to the lake", (1,))]
    entities = [Extra("entity", name) for name in ("Ann", "canoe", "Ben", "lake")]
    edges = [(3, "MENTIONS", 5), (3, "MENTIONS", 6), (4, "MENTIONS", 7), (4, "MENTIONS", 8)]
    edges += [(0, "MENTIONS", 5), (0, "MENTIONS", 6), (1, "MENTIONS", 8), (2, "MENTIONS", 5)]
    return make_snapshot(turns, [*facts, *entities], edges)


def retriever(snapshot: Snapshot, **options: Any) -> HippoRagRetriever:
    return HippoRagRetriever(lambda space, as_of: snapshot, ENCODER, **options)


def scaled(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    spread = values.max() - values.min()
    return np.asarray((values - values.min()) / spread)


def test_ranks_match_a_walk_by_networkx_from_hand_made_starts() -> None:
    snapshot = space_of()
    cosine = (snapshot.embeddings @ ENCODER.encode(["Who has the canoe?"])[0]).astype(float)
    graph = networkx.Graph([(0, 5), (0, 6), (1, 8), (2, 5), (5, 6), (7, 8)])
    # Fact 3 has the similarity 1 after scaling, fact 4 has 0. Two turns name Ann, one names the canoe.
    starts = {5: 1.0 / 2, 6: 1.0 / 1} | dict(enumerate((0.05 * scaled(cosine[:3])).tolist()))
    ranks = networkx.pagerank(graph.to_directed(), alpha=0.5, personalization=starts, tol=1e-13, max_iter=1000)
    hits = retriever(snapshot, synonym_cosine=2.0).retrieve("Who has the canoe?", SPACE).hits
    assert {hit.node_id: hit.score for hit in hits} == pytest.approx({f"n{i}": ranks[i] for i in range(3)}, abs=1e-5)


def test_a_turn_without_the_words_is_found_by_its_entities() -> None:
    assert retriever(space_of()).retrieve("Who has the canoe?", SPACE).hits[0].turn_ids == ("t0",)
    assert retriever(space_of()).retrieve("Who went to the lake?", SPACE).hits[0].turn_ids == ("t1",)


def test_entities_of_like_names_are_joined() -> None:
    turns = make_turns(["I bought it", "we rowed", "so long"])
    extras = [Extra("knowledge_node", "a fine canoe", (0,)), Extra("knowledge_node", "some bread", (2,))]
    extras += [Extra("entity", "canoe"), Extra("entity", "Canoe"), Extra("entity", "bread")]
    edges = [(3, "MENTIONS", 5), (1, "MENTIONS", 6), (4, "MENTIONS", 7)]
    snapshot = make_snapshot(turns, extras, edges)

    def rank_of_rowing(**options: Any) -> float:
        hits = retriever(snapshot, turn_weight=1e-9, **options).retrieve("a fine canoe", SPACE).hits
        return next(hit.score for hit in hits if hit.node_id == "n1")

    assert rank_of_rowing() > 0.05
    assert rank_of_rowing(synonym_cosine=1.5) < 1e-6
