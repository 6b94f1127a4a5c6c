from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any

import networkx
import numpy as np
import pytest

from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import Question, TurnId
from locigraph.research.published.assomem import (
    FIXED_WEIGHTS,
    SIGNALS,
    AssoMemRetriever,
    ClueGraph,
)
from locigraph.research.published.assomem_weights import (
    WeightsOfQuestion,
    are_relevant,
    typed_signals,
    weights_of_types,
)
from locigraph.research.published.page_rank import personalized_page_rank
from locigraph.retrieval.strategies.memory_graph import Asked, min_max
from tests.fakes import MONDAY, SPACE, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, Extra, OneAxis, make_snapshot, permuted, with_cosines

ENCODER = FakeEncoder(TEXT_DIM)


def space_of() -> Snapshot:
    """Turns 0 to 3 in two sessions; clues 4 and 5, of like words, and 6; fact 7."""
    turns = make_turns(["I bought a canoe", "a canoe, nice"], ["the bread rose", "so long"])
    clues = [Extra("concept", "boats afloat", (0,)), Extra("concept", "Boats afloat", (1,))]
    extras = [*clues, Extra("concept", "baking", (2,)), Extra("knowledge_node", "Ann bakes", (2,))]
    edges = [(0, "HAS_CONCEPT", 4), (1, "HAS_CONCEPT", 5), (2, "HAS_CONCEPT", 6), (7, "ABOUT_CONCEPT", 6)]
    return make_snapshot(turns, extras, edges)


def retriever(snapshot: Snapshot, **options: Any) -> AssoMemRetriever:
    return AssoMemRetriever(lambda space, as_of: snapshot, ENCODER, **options)


def test_like_clues_are_one() -> None:
    graph = ClueGraph(space_of(), 0.9, 0.8)
    assert set(graph.clue.tolist()) == {4, 6}
    assert graph.owned_by(np.array([5])).tolist() == [0, 1]


def test_candidates_are_the_memories_of_the_best_clues_and_those_without_a_clue() -> None:
    found = retriever(space_of(), clues=1).retrieve("baking", SPACE).hits
    assert {hit.node_id for hit in found} == {"n2", "n3", "n7"}
    assert {hit.node_id for hit in retriever(space_of(), clues=None).retrieve("baking", SPACE).hits} == {
        "n0", "n1", "n2", "n3", "n7",
    }  # fmt: skip


def test_without_a_number_of_clues_all_memories_are_candidates_and_with_one_those_of_the_best() -> None:
    clues = [Extra("concept", f"clue {number}") for number in range(101)]
    owned = [(number, "HAS_CONCEPT", 101 + number) for number in range(101)]
    turns = make_turns(*([f"turn {number}"] for number in range(101)))
    # No two clues have a cosine of more than .9 * .9, so that none are merged.
    snapshot = with_cosines(
        make_snapshot(turns, clues, owned), [0.5] * 101 + [0.9 - 0.001 * number for number in range(101)]
    )
    assomem = partial(AssoMemRetriever, lambda space, as_of: snapshot, OneAxis(snapshot))
    for made, count in ((assomem(), 101), (assomem(clues=100), 100), (assomem(clues=1), 1)):
        hits = made.retrieve("x", SPACE, top_k=1_000).hits
        assert {hit.node_id for hit in hits} == {f"n{number}" for number in range(count)}


@pytest.mark.parametrize(("cosine", "expected"), [(0.95, {"n0", "n1"}), (0.948, {"n0"})])
def test_clues_of_a_cosine_of_nine_tenths_are_one(cosine: float, expected: set[str]) -> None:
    clues = [Extra("concept", "boats"), Extra("concept", "rowing")]
    edges = [(0, "HAS_CONCEPT", 2), (1, "HAS_CONCEPT", 3)]
    # The cosine of the clues with each other is .9025, or .8987.
    snapshot = with_cosines(make_snapshot(make_turns(["a"], ["b"]), clues, edges), [0.5, 0.5, cosine, cosine])
    made = AssoMemRetriever(lambda space, as_of: snapshot, OneAxis(snapshot), clues=1)
    assert {hit.node_id for hit in made.retrieve("x", SPACE).hits} == expected


def test_the_score_is_the_fixed_weighted_sum_of_the_signals() -> None:
    for hit in retriever(space_of(), clues=None).retrieve("canoe on 1 January 2024", SPACE).hits:
        relevance, importance, temporal = (hit.signals[name] for name in SIGNALS)
        assert hit.score == pytest.approx(0.6 * relevance + 0.3 * importance + 0.1 * temporal)


def test_importance_is_the_walk_that_starts_at_memories_and_never_at_clues() -> None:
    snapshot = space_of()
    cosine = np.maximum(snapshot.embeddings @ ENCODER.encode(["canoe"])[0], 0).astype(float)
    cosine[[4, 5, 6]] = 0
    made = retriever(snapshot, clues=None)
    rank = personalized_page_rank(made.graph_of(SPACE, None).transition, cosine, damping=0.5)
    rows = [0, 1, 2, 3, 7]
    hits = {hit.node_id: hit.signals["importance"] for hit in made.retrieve("canoe", SPACE).hits}
    assert [hits[snapshot.ids[row]] for row in rows] == pytest.approx(min_max(rank[rows]).tolist(), abs=1e-5)


def test_alignment_falls_with_the_gap_in_time_and_is_0_without_a_time() -> None:
    # The second session is a week after the first, the question names the first's day.
    hits = {str(hit.node_id): hit for hit in retriever(space_of()).retrieve("bread on 1 January 2024", SPACE).hits}
    assert hits["n0"].signals["temporal"] == 1
    gap = 6.5 / 30  # from midnight after the first of January to noon of the eighth, in months
    assert hits["n2"].signals["temporal"] == pytest.approx(math.exp(-gap), abs=1e-4)
    timeless = retriever(space_of()).retrieve("bread", SPACE).hits
    assert all(hit.signals["temporal"] == 0 for hit in timeless)


def learnt_from(
    retriever: AssoMemRetriever, questions: list[Question], type_of: Callable[[str], str]
) -> WeightsOfQuestion:
    return weights_of_types(typed_signals(retriever, questions, type_of), type_of)


def test_weights_can_be_learnt_by_type_of_question() -> None:
    signals = np.array([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]])
    relevance, time = np.array([True, False]), np.array([False, True])
    samples = [("who", signals, relevance), ("when", signals, time), ("who", signals, relevance)]
    learnt = weights_of_types(samples, lambda text: text)
    assert FIXED_WEIGHTS not in (learnt("who"), learnt("when"))
    assert all(sum(learnt(kind)) == pytest.approx(1) for kind in ("who", "when"))
    assert learnt("why") == FIXED_WEIGHTS
    snapshot = space_of()
    made = retriever(snapshot, clues=None, weights=lambda question: (0.0, 1.0, 0.0))
    for hit in made.retrieve("canoe", SPACE).hits:
        assert hit.score == pytest.approx(hit.signals["importance"])


def test_weights_are_learnt_from_the_evidence_of_questions_of_each_type() -> None:
    made = retriever(space_of(), clues=None)
    graph = made.graph_of(SPACE, None)
    asked = {"canoe": "t0", "bread on 8 January 2024": "t2"}
    questions = [Question(SPACE, text, text, "c", (TurnId(turn),)) for text, turn in asked.items()]
    weights = learnt_from(made, questions, lambda text: "dated" if "2024" in text else "other")
    for text, turn in asked.items():
        day = date(2024, 1, 8)  # that of the last turn
        rows, signals = made.signals(graph, Asked(text, ENCODER.encode([text])[0], day))
        sample = "x", signals, are_relevant(graph, rows, [TurnId(turn)])
        assert weights(text) == weights_of_types([sample], lambda text: "x")(text)
    assert weights("bread on 8 January 2024") == weights("2024")
    assert learnt_from(made, questions, lambda text: text)("of a type that no question had") == FIXED_WEIGHTS


def test_questions_asked_before_the_first_turn_teach_nothing() -> None:
    snapshot, before = space_of(), make_snapshot([])
    made = AssoMemRetriever(lambda space, as_of: snapshot if as_of is None else before, ENCODER, clues=None)
    early = Question(SPACE, "q0", "canoe", "c", (TurnId("t0"),), asked_at=MONDAY)
    known = Question(SPACE, "q1", "bread", "c", (TurnId("t2"),))
    (sample,) = typed_signals(made, [early, known], str)
    assert sample[0] == "bread"
    assert learnt_from(made, [early], lambda text: "any")("canoe") == FIXED_WEIGHTS


def test_learning_finds_the_signal_that_tells() -> None:
    rng = np.random.default_rng(0)
    signals = rng.random((600, 3))
    weights = weights_of_types([("all", signals, signals[:, 1] > 0.7)], lambda text: "all")
    assert weights("any")[1] > 0.9


def test_memories_of_the_evidence_are_relevant() -> None:
    snapshot = space_of()
    made = retriever(snapshot, clues=None)
    graph = made.graph_of(SPACE, None)
    rows, signals = made.signals(graph, Asked("bread", ENCODER.encode(["bread"])[0]))
    assert signals.shape == (len(rows), 3)
    told = are_relevant(graph, rows, [TurnId("t2")])
    assert rows[told].tolist() == [2, 7]


def test_relevance_is_the_cosine_scaled_over_the_candidates() -> None:
    snapshot = with_cosines(make_snapshot(make_turns(["a", "b", "c"])), [0.9, 0.3, 0.7])
    made = AssoMemRetriever(lambda space, as_of: snapshot, OneAxis(snapshot))
    hits = {str(hit.node_id): hit.signals["relevance"] for hit in made.retrieve("x", SPACE).hits}
    assert hits == pytest.approx({"n0": 1.0, "n1": 0.0, "n2": 2 / 3}, abs=1e-6)  # (.7 - .3) / (.9 - .3)


def owned_and_alike() -> Snapshot:
    """Turns 0 to 3, of which a topic owns 0 and 2; turns 0 and 1 have the cosine .9 * .9 = .81, the others less."""
    edges = [(0, "HAS_CONCEPT", 4), (2, "HAS_CONCEPT", 4)]
    snapshot = make_snapshot(make_turns(["a"], ["b"], ["c"], ["d"]), [Extra("concept", "boats")], edges)
    return with_cosines(snapshot, [0.9, 0.9, 0.5, 0.4])


def test_edges_of_ownership_weigh_1_and_edges_of_similarity_their_cosine() -> None:
    steps = ClueGraph(owned_and_alike(), 0.9, 0.8).transition.toarray()
    assert steps[0].tolist() == pytest.approx([0, 0.81 / 1.81, 0, 0, 1 / 1.81], abs=1e-6)
    assert steps[1].tolist() == pytest.approx([1, 0, 0, 0, 0])
    assert steps[4].tolist() == pytest.approx([0.5, 0, 0.5, 0, 0])
    assert not steps[3].any()


def test_importance_is_the_page_rank_of_networkx() -> None:
    snapshot = owned_and_alike()
    graph = networkx.Graph()
    graph.add_nodes_from(range(5))
    graph.add_weighted_edges_from([(0, 4, 1.0), (2, 4, 1.0), (0, 1, 0.81)])
    starts = {0: 0.9, 1: 0.9, 2: 0.5, 3: 0.4}  # memories by their cosine, and never a clue
    ranks = networkx.pagerank(graph.to_directed(), alpha=0.5, personalization=starts, tol=1e-13, max_iter=1000)
    made = AssoMemRetriever(lambda space, as_of: snapshot, OneAxis(snapshot), clues=None)
    hits = {str(hit.node_id): hit.signals["importance"] for hit in made.retrieve("x", SPACE).hits}
    expected = min_max(np.array([ranks[row] for row in range(4)]))
    assert [hits[f"n{row}"] for row in range(4)] == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_learnt_weights_and_what_they_find_do_not_depend_on_the_order_of_insertion(seed: int) -> None:
    asked = {"canoe": "t0", "bread on 8 January 2024": "t2", "so long": "t3"}
    questions = [Question(SPACE, text, text, "c", (TurnId(turn),)) for text, turn in asked.items()]

    def found(snapshot: Snapshot) -> list[tuple[str, float]]:
        weights = learnt_from(retriever(snapshot), questions, lambda text: "dated" if "2024" in text else "other")
        hits = retriever(snapshot, weights=weights).retrieve("who baked on 8 January 2024", SPACE).hits
        return [(str(hit.node_id), hit.score) for hit in hits]

    snapshot = space_of()
    once, again = found(snapshot), found(permuted(snapshot, np.random.default_rng(seed).permutation(8).tolist()))
    assert [node for node, _ in again] == [node for node, _ in once]
    assert [score for _, score in again] == pytest.approx([score for _, score in once], abs=1e-5)


def test_a_memory_without_a_time_is_at_none_that_a_question_names() -> None:
    snapshot = make_snapshot(make_turns(["bread"]), [Extra("knowledge_node", "Ann bakes bread")])
    result = retriever(snapshot, clues=None).retrieve("bread on 1 January 2024", SPACE)
    assert {str(hit.node_id): hit.signals["temporal"] for hit in result.hits} == {"n0": 1, "n1": 0}
