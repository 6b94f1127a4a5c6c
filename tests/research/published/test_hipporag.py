from __future__ import annotations

from typing import Any

import networkx
import numpy as np
import pytest

from locigraph.kg.snapshot import Snapshot
from locigraph.research.published.hipporag import HippoGraph, HippoRagRetriever
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, Extra, OneAxis, make_snapshot, with_cosines

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


def test_the_only_fact_of_a_space_starts_the_walk() -> None:
    turns = make_turns(["so long", "we went to the water"])
    extras = [Extra("knowledge_node", "Ben went to the lake", (1,)), Extra("entity", "lake")]
    snapshot = make_snapshot(turns, extras, [(2, "MENTIONS", 3), (1, "MENTIONS", 3)])
    hits = retriever(snapshot, turn_weight=1e-9).retrieve("Who went to the lake?", SPACE).hits
    assert hits[0].turn_ids == ("t1",)
    assert hits[0].score > 0.1 > hits[1].score


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


def pairs(cosines: list[float], owner: list[int], **options: Any) -> list[float]:
    """PageRank of turns, each with an entity of its own; fact i, of a given cosine, names that of turn ``owner[i]``.

    Where a walk starts at an entity with the chance s, its turn has r_t = .5 r_e with r_e = .5 s + .5 r_t, so s / 3.
    """
    turns, facts = max(owner) + 1, len(cosines)
    extras = [Extra("knowledge_node", f"fact {i}", (owner[i],)) for i in range(facts)]
    extras += [Extra("entity", f"entity {turn}") for turn in range(turns)]
    edges = [(turn, "MENTIONS", turns + facts + turn) for turn in range(turns)]
    edges += [(turns + i, "MENTIONS", turns + facts + owner[i]) for i in range(facts)]
    snapshot = make_snapshot(make_turns(*([f"turn {i}"] for i in range(turns))), extras, edges)
    held = with_cosines(snapshot, [0.0] * turns + cosines)
    made = HippoRagRetriever(lambda space, as_of: held, OneAxis(held), turn_weight=0.0, **options)
    hits = {str(hit.node_id): hit.score for hit in made.retrieve("x", SPACE).hits}
    return [hits[f"n{turn}"] for turn in range(turns)]


def test_an_entity_has_the_mean_of_its_facts() -> None:
    # After scaling the facts have 1, .5, .5 and 0; the first two name one entity, whose mean is .75.
    ranks = pairs([0.9, 0.5, 0.5, 0.1], [0, 0, 1, 2])
    assert ranks == pytest.approx([0.75 / 1.25 / 3, 0.5 / 1.25 / 3, 0.0], abs=1e-5)


@pytest.mark.parametrize("options", [{"entities": 7}, {"facts": 7}], ids=["five facts", "five entities"])
def test_walks_start_at_the_five_best_facts_and_the_five_best_entities(options: dict[str, int]) -> None:
    # After scaling the facts have 6/6, 5/6, ... 0/6, of which the first five sum to 20/6.
    ranks = pairs([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3], list(range(7)), **options)
    assert ranks == pytest.approx([6 / 60, 5 / 60, 4 / 60, 3 / 60, 2 / 60, 0.0, 0.0], abs=1e-5)
    both = pairs([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3], list(range(7)), facts=7, entities=7)
    assert both[5] == pytest.approx(1 / 21 / 3, abs=1e-5)


def test_a_synonym_weighs_its_cosine_beside_a_turn_of_1() -> None:
    snapshot = make_snapshot(
        make_turns(["a"]), [Extra("entity", "canoe"), Extra("entity", "kayak")], [(0, "MENTIONS", 1)]
    )
    steps = HippoGraph(with_cosines(snapshot, [0.0, 0.9, 0.9]), 0.8).transition.toarray()
    assert steps[1].tolist() == pytest.approx([1 / 1.81, 0, 0.81 / 1.81], abs=1e-6)
    assert steps[2].tolist() == pytest.approx([0, 1, 0], abs=1e-6)


@pytest.mark.parametrize(("cosine", "joined"), [(0.895, True), (0.894, False)])
def test_entities_of_a_cosine_of_eight_tenths_are_synonyms(cosine: float, joined: bool) -> None:
    named = [Extra("entity", "canoe"), Extra("entity", "kayak")]
    # The cosine of the entities with each other is .8010, or .7992.
    snapshot = with_cosines(make_snapshot(make_turns(["a"]), named), [0.0, cosine, cosine])
    steps = retriever(snapshot).prepare(snapshot).transition.toarray()
    assert bool(steps[1, 2]) is bool(steps[2, 1]) is joined


def test_turns_of_a_space_without_facts_are_ranked_by_their_cosine() -> None:
    turns = make_turns(["a", "b", "c"])
    snapshot = make_snapshot(turns, [Extra("entity", "Ann")], [(0, "MENTIONS", 3), (1, "MENTIONS", 3)])
    snapshot = with_cosines(snapshot, [0.8, 0.7, 0.79, 0.0])
    made = HippoRagRetriever(lambda space, as_of: snapshot, OneAxis(snapshot))
    assert [hit.node_id for hit in made.retrieve("x", SPACE).hits] == ["n0", "n2", "n1"]
