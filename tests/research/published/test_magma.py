from __future__ import annotations

import math
from itertools import groupby
from typing import Any

import pytest

from locigraph.kg.snapshot import Snapshot
from locigraph.research.published.magma import (
    INTENT_WEIGHTS,
    Intent,
    MagmaGraph,
    MagmaRetriever,
    causal_order,
    intent_of,
)
from locigraph.retrieval.budgets import Budget
from locigraph.retrieval.packing import Omission, SnapshotDates, retrieve_contexts
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, Extra, OneAxis, make_snapshot, with_cosines

ENCODER = FakeEncoder(TEXT_DIM)


def space_of() -> Snapshot:
    """Turns 0 to 3; fact 4 of turn 3; entity 5, which turns 0 and 3 name; turn 0 is the cause of turn 1."""
    turns = make_turns(["I bought a canoe", "because the lake is near", "good night"], ["the bread rose"])
    extras = [Extra("knowledge_node", "Ben bakes rye", (3,)), Extra("entity", "oven")]
    edges = [(4, "DERIVED_FROM", 3), (0, "MENTIONS", 5), (3, "MENTIONS", 5), (0, "CAUSES", 1)]
    return make_snapshot(turns, extras, edges)


def retriever(snapshot: Snapshot, **options: Any) -> MagmaRetriever:
    return MagmaRetriever(lambda space, as_of: snapshot, ENCODER, **options)


@pytest.mark.parametrize(
    ("question", "intent"),
    [
        ("Why did Ann buy a canoe?", Intent.WHY),
        ("What motivated Ben to bake?", Intent.WHY),
        ("When did Ann buy a canoe?", Intent.WHEN),
        ("How long has Ben baked?", Intent.WHEN),
        ("What does Ben bake?", Intent.ENTITY),
        ("Who is causal about clothes?", Intent.ENTITY),
    ],
)
def test_rules_find_the_intent(question: str, intent: Intent) -> None:
    assert intent_of(question) is intent


def test_the_four_graphs_join_what_they_should() -> None:
    beside = MagmaGraph(space_of(), 0.99, 5).neighbours
    assert beside["temporal"](1).tolist() == [0, 2]
    assert beside["causal"](0).tolist() == [1]
    assert beside["causal"](2).tolist() == []
    assert beside["entity"](0).tolist() == [0, 3]
    assert beside["semantic"](3).tolist() == [4]


def test_causes_are_those_that_are_recorded_whatever_the_words_say() -> None:
    turns = make_turns(["the lake is near", "because of that I bought a canoe", "good night"])
    graph = MagmaGraph(make_snapshot(turns, edges=[(1, "CAUSES", 2)]), 0.99, 5)
    assert [ends.tolist() for ends in graph.causes] == [[1], [2]]
    assert graph.neighbours["causal"](0).tolist() == []


def test_causes_that_are_no_memories_are_not_found() -> None:
    named = [Extra("concept", "boats"), Extra("entity", "canoe")]
    snapshot = make_snapshot(make_turns(["a canoe"], ["a lake"]), named, [(2, "CAUSES", 0), (0, "CAUSES", 3)])
    hits = retriever(snapshot).retrieve("Why a canoe?", SPACE, top_k=9).hits
    assert {hit.node_id for hit in hits} == {"n0", "n1"}


def test_a_step_scores_by_intent_and_meaning() -> None:
    snapshot = space_of()
    made = retriever(snapshot, anchors=1, depth=1, similar_cosine=0.99)
    question = "Why a canoe?"
    hits = {str(hit.node_id): hit for hit in made.retrieve(question, SPACE, top_k=9).hits}
    cosine = float(snapshot.embeddings[1] @ ENCODER.encode([question])[0])
    # The anchor is turn 0. Its next turn is joined to it in time and by a cause, of which the cause weighs more.
    weight = max(INTENT_WEIGHTS[Intent.WHY][name] for name in ("temporal", "causal"))
    assert hits["n0"].signals["beam"] == 1.0
    assert hits["n1"].signals["beam"] == pytest.approx(0.9 + math.exp(weight + 0.5 * cosine), rel=1e-5)


def test_the_intent_decides_where_the_search_goes() -> None:
    made = retriever(space_of(), anchors=1, width=1, depth=1, similar_cosine=0.99)

    def reached(question: str) -> str:
        return str(made.retrieve(question, SPACE, top_k=9).hits[1].node_id)

    assert reached("Why a canoe?") == "n1"
    assert reached("Whose canoe?") == "n3"  # by the entity


def test_a_time_in_the_question_makes_its_memories_anchors() -> None:
    found = retriever(space_of(), depth=0, anchors=1).retrieve("night on 8 January 2024", SPACE).hits
    assert [hit.node_id for hit in found] == ["n2"]
    wide = retriever(space_of(), depth=0).retrieve("zzz on 8 January 2024", SPACE, top_k=9).hits
    assert {"n3", "n4"} <= {hit.node_id for hit in wide[:4]}


def test_no_more_memories_are_visited_than_the_budget() -> None:
    assert len(retriever(space_of(), anchors=2, budget=3).retrieve("canoe", SPACE, top_k=9).hits) <= 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 200),  # 20 anchors, and 36 memories after each of five hops
        ({"depth": 4}, 200),
        ({"budget": 87, "anchors": 20}, 87),  # 67 memories in five hops: 13 would leave two places empty
        ({"budget": 10, "anchors": 20}, 10),
        ({"depth": 0}, 20),
        ({"width": 10}, 70),
    ],
)
def test_the_search_uses_up_its_budget(options: dict[str, int], expected: int) -> None:
    turns = make_turns([f"turn {number}" for number in range(300)])
    joined = make_snapshot(turns, [Extra("entity", "Ann")], [(turn, "MENTIONS", 300) for turn in range(300)])
    assert len(at_cosines(joined, **options).retrieve("x", SPACE, top_k=1_000).hits) == expected


def test_the_search_goes_five_hops_far() -> None:
    chain = make_snapshot(make_turns([f"turn {number}" for number in range(9)]))
    hits = at_cosines(chain, 0.9, anchors=1).retrieve("x", SPACE, top_k=9).hits
    assert [hit.node_id for hit in hits] == ["n0", "n1", "n2", "n3", "n4", "n5"]


def test_twenty_anchors_are_followed_by_36_memories_of_each_hop() -> None:
    turns = make_turns([f"turn {number}" for number in range(300)])
    joined = make_snapshot(turns, [Extra("entity", "Ann")], [(turn, "MENTIONS", 300) for turn in range(300)])
    hits = at_cosines(joined).retrieve("x", SPACE, top_k=1_000).hits
    # All steps of a hop lead from equally good memories to equally good ones.
    assert [len([*hop]) for _, hop in groupby(round(hit.signals["beam"], 6) for hit in hits)] == [20, *[36] * 5]


def test_causes_come_before_effects() -> None:
    assert causal_order([1, 2, 3, 4], [(4, 2), (3, 4), (9, 1)]) == [1, 3, 4, 2]
    assert causal_order([1, 2], [(1, 2), (2, 1), (1, 1)]) == [1, 2]  # a circle


def test_a_context_is_in_causal_order_for_why_and_in_time_order_for_when() -> None:
    snapshot = space_of()
    made = retriever(snapshot)
    hits = list(reversed(made.retrieve("canoe lake night bread", SPACE, top_k=9).hits))
    assert made.arrange("Which canoe?", hits, SPACE) is None
    in_time = made.arrange("When was the canoe?", hits, SPACE)
    assert in_time is not None
    assert in_time[:3] == ["n0", "n1", "n2"]
    causal = made.arrange("Why a canoe?", hits, SPACE)
    assert causal is not None
    assert causal.index(snapshot.ids[0]) < causal.index(snapshot.ids[1])


def test_a_context_for_when_is_in_the_order_of_what_is_told_not_of_what_was_said() -> None:
    turns = make_turns(["I row"], ["and last year I swam"])
    snapshot = make_snapshot(turns, [Extra("event_node", "Ann swam", (1,))], [(2, "DERIVED_FROM", 1)])
    snapshot.valid_from[2] = snapshot.spoken_at[0] - 300 * 86_400
    made = retriever(snapshot)
    hits = made.retrieve("row swam", SPACE, top_k=9).hits
    assert made.arrange("When did Ann swim?", hits, SPACE) == ["n2", "n0", "n1"]


def at_cosines(snapshot: Snapshot, *cosines: float, **options: Any) -> MagmaRetriever:
    """The strategy where the first nodes have given cosines with every question."""
    held = with_cosines(snapshot, cosines)
    return MagmaRetriever(lambda space, as_of: held, OneAxis(held), **options)


@pytest.mark.parametrize(
    ("question", "order"),
    [
        # By cosine 0, 1, 2; by words 2 alone; by time, if a day is named, 1 alone.
        ("the lake on 8 January 2024", ["n1", "n2", "n0"]),  # 1/62 + 1/61, 1/63 + 1/61, 1/61
        ("the lake", ["n2", "n0", "n1"]),  # 1/63 + 1/61, 1/61, 1/62
        ("sun on 8 January 2024", ["n1", "n0", "n2"]),  # 1/62 + 1/61, 1/61, 1/63
        ("sun", ["n0", "n1", "n2"]),  # 1/61, 1/62, 1/63
    ],
)
def test_anchors_are_fused_from_cosine_words_and_time(question: str, order: list[str]) -> None:
    made = at_cosines(make_snapshot(make_turns(["one"], ["two"], ["lake"])), 0.5, 0.4, 0.3, depth=0)
    assert [hit.node_id for hit in made.retrieve(question, SPACE).hits] == order


def test_the_constant_of_the_fusion_is_2() -> None:
    # Turns stand in the order of their cosines. By words their order is that of how many of their 20 words are "lake".
    places = {0: 19, 2: 4, 3: 2, 15: 1}
    others = iter(sorted({*range(1, 21)} - {*places.values()}))
    by_words = [places.get(turn) or next(others) for turn in range(20)]
    lines = [["lake"] * (21 - place) + [f"filler{turn}"] * (place - 1) for turn, place in enumerate(by_words)]
    turns = make_snapshot(make_turns(*([" ".join(line)] for line in lines)))
    made = at_cosines(turns, *(0.9 - 0.01 * turn for turn in range(20)), depth=0)
    order = [hit.node_id for hit in made.retrieve("lake", SPACE, top_k=20).hits]
    # 1/3 + 1/21 is more than 1/5 + 1/6, and with the constant 3 less.
    assert order.index(turns.ids[0]) < order.index(turns.ids[2])
    # 1/6 + 1/4 is more than 1/18 + 1/3, and with the constant 1 less.
    assert order.index(turns.ids[3]) < order.index(turns.ids[15])


def test_each_memory_has_semantic_links_to_its_five_nearest() -> None:
    turns = make_snapshot(make_turns(*(["a"] for _ in range(7))))
    # Any two of the first six have a greater cosine than one of them and the seventh, .99 * .9 at most.
    made = at_cosines(turns, 1.0, 0.99, 0.98, 0.97, 0.96, 0.95, 0.9)
    semantic = made.graph_of(SPACE, None).neighbours["semantic"]
    assert sorted(semantic(5).tolist()) == [0, 1, 2, 3, 4]
    assert sorted(semantic(6).tolist()) == [0, 1, 2, 3, 4]
    assert sorted(semantic(0).tolist()) == [1, 2, 3, 4, 5, 6]  # five of its own, and that of the seventh


def test_memories_below_the_threshold_have_no_semantic_link() -> None:
    made = at_cosines(make_snapshot(make_turns(["a"], ["b"], ["c"])), 1.0, 0.31, 0.29)
    semantic = made.graph_of(SPACE, None).neighbours["semantic"]
    assert semantic(0).tolist() == [1]
    assert semantic(2).tolist() == []


@pytest.mark.parametrize(
    ("question", "relation", "weight"),
    [
        ("When?", "NEXT", 4.0), ("When?", "DERIVED_FROM", 1.0), ("When?", "CAUSES", 3.0), ("When?", "MENTIONS", 2.5),
        ("Who?", "NEXT", 0.5), ("Who?", "DERIVED_FROM", 1.0), ("Who?", "CAUSES", 3.0), ("Who?", "MENTIONS", 6.0),
        ("Why?", "NEXT", 2.0), ("Why?", "DERIVED_FROM", 1.0), ("Why?", "CAUSES", 5.0), ("Why?", "MENTIONS", 2.5),
    ],
)  # fmt: skip
def test_a_step_along_each_relation_has_the_weight_of_the_intent(question: str, relation: str, weight: float) -> None:
    ends = [(0, relation, 2), (1, relation, 2)] if relation == "MENTIONS" else [(0, relation, 1)]
    snapshot = make_snapshot(make_turns(["one"], ["two"]), [Extra("entity", "Ann")], ends)
    made = at_cosines(snapshot, 0.8, 0.2, anchors=1, depth=1)  # their own cosine is .16
    hits = {str(hit.node_id): hit.signals["beam"] for hit in made.retrieve(question, SPACE).hits}
    assert hits == pytest.approx({"n0": 1.0, "n1": 0.9 + math.exp(1.0 * weight + 0.5 * 0.2)}, rel=1e-6)


def test_a_context_says_how_many_memories_were_left_out() -> None:
    snapshot = space_of()
    made = retriever(snapshot)
    hits = made.retrieve("Which canoe?", SPACE, top_k=9).hits
    _, (whole,) = retrieve_contexts(made, "Which canoe?", SnapshotDates(snapshot), [Budget(tokens=1_000)], space=SPACE)
    assert not any(isinstance(line, Omission) for line in whole.lines)
    # One token less, and the last memory of the ranking gives its place to "[... 1 more]".
    _, (part,) = retrieve_contexts(
        made, "Which canoe?", SnapshotDates(snapshot), [Budget(tokens=whole.tokens - 1)], space=SPACE
    )
    assert [line for line in part.lines if isinstance(line, Omission)] == [Omission(1)]
    assert {line.node_id for line in part.memories} == {hit.node_id for hit in hits[:-1]}
