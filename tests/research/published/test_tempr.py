from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.research.published.tempr import TemprGraph, TemprRetriever, nearness_to
from locigraph.retrieval.budgets import Budget, ContextRules
from locigraph.retrieval.packing import SnapshotDates, retrieve_contexts
from locigraph.retrieval.protocols import Hit
from locigraph.retrieval.query_generator import OPEN_WINDOW
from locigraph.retrieval.strategies.memory_graph import Asked
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, Extra, OneAxis, make_snapshot, with_cosines

ENCODER = FakeEncoder(TEXT_DIM)
HOUR = 3600


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


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
    assert first.score == pytest.approx(ranks / 3)


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


def test_causes_that_are_no_memories_are_not_found() -> None:
    named = [Extra("concept", "boats"), Extra("entity", "canoe")]
    snapshot = make_snapshot(make_turns(["a canoe"], ["a lake"]), named, [(2, "CAUSES", 0), (0, "CAUSES", 3)])
    hits = retriever(snapshot).retrieve("Ann: a canoe on 1 January 2024", SPACE, top_k=9).hits
    assert {hit.type for hit in hits} == {"episode"}


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


def test_an_open_window_ends_where_the_times_of_the_graph_do() -> None:
    first = np.append(np.array([0, 5, 10, 20]) * 86_400, NO_TIME)
    until = nearness_to((OPEN_WINDOW[0], 10 * 86_400), first, first)
    assert until.tolist() == pytest.approx([0.0, 1.0, 0.0, 0.0, 0.0])  # as from day 0 to day 10
    since = nearness_to((10 * 86_400, OPEN_WINDOW[1]), first, first)
    assert since.tolist() == pytest.approx([0.0, 0.0, 0.0, 0.0, 0.0])  # day 15 is in the middle of 10 to 20
    beyond = nearness_to((30 * 86_400, OPEN_WINDOW[1]), first, first)
    assert beyond.tolist() == [0.0] * 5


def test_the_thinking_budget_bounds_every_search() -> None:
    snapshot = space_of([f"canoe number {i}" for i in range(20)])
    found = retriever(snapshot, thinking_budget=3).retrieve("canoe", SPACE, top_k=2).hits
    for signal in ("cosine", "bm25", "activation"):
        assert sum(signal in hit.signals for hit in found) <= 3


class MeetingTempr(TemprRetriever):
    """Every search waits until all four are at work."""

    barrier = Barrier(4, timeout=30)

    def _meaning(self, graph: TemprGraph, cosine: NDArray[np.float64]) -> Mapping[int, float]:
        self.barrier.wait()
        return super()._meaning(graph, cosine)

    def _words(self, graph: TemprGraph, asked: Asked) -> Mapping[int, float]:
        self.barrier.wait()
        return super()._words(graph, asked)

    def _links(self, graph: TemprGraph, cosine: NDArray[np.float64]) -> Mapping[int, float]:
        self.barrier.wait()
        return super()._links(graph, cosine)

    def _in_time(self, graph: TemprGraph, asked: Asked, cosine: NDArray[np.float64]) -> Mapping[int, float]:
        self.barrier.wait()
        return super()._in_time(graph, asked, cosine)


def test_the_four_searches_run_at_once(pool: Executor) -> None:
    snapshot = space_of(["canoe on the lake", "bread"], ["canoe on the pond"])
    made = MeetingTempr(lambda space, as_of: snapshot, ENCODER, pool=pool)
    assert made.retrieve("canoe on 8 January 2024", SPACE).hits


@given(
    st.lists(st.lists(st.sampled_from(["canoe", "lake", "bread", "oven"]), min_size=1, max_size=4), max_size=12),
    st.sampled_from(["canoe lake", "the oven on 1 January 2024", "bread in January 2024", "zzz"]),
)
def test_searches_at_once_find_what_they_find_one_after_another(
    pool: Executor, lines: list[list[str]], question: str
) -> None:
    turns = make_turns([" ".join(words) for words in lines])
    named = [(row, "MENTIONS", len(turns)) for row in range(0, len(turns), 2)]
    snapshot = make_snapshot(turns, [Extra("entity", "Ann")], named)
    found = retriever(snapshot).retrieve(question, SPACE, top_k=50).hits
    assert retriever(snapshot, pool=pool).retrieve(question, SPACE, top_k=50).hits == found


def test_a_context_has_at_most_4096_tokens_or_as_many_as_the_strategy_is_given() -> None:
    turns = make_snapshot(make_turns([f"{'word ' * 60}{number}" for number in range(90)]))
    made = retriever(turns)
    assert made.context_rules == ContextRules(Budget(tokens=4_096))
    _, (context,) = retrieve_contexts(made, "word", SnapshotDates(turns), [Budget(tokens=1_000_000)], space=SPACE)
    assert 4_000 < context.tokens <= 4_096
    few = retriever(turns, max_tokens=200)
    _, (context,) = retrieve_contexts(few, "word", SnapshotDates(turns), [Budget(tokens=1_000_000)], space=SPACE)
    assert 100 < context.tokens <= 200


def test_every_search_finds_at_most_three_hundred() -> None:
    turns = make_turns([f"turn {number}" for number in range(301)])
    named = [(number, "MENTIONS", 301) for number in range(301)]
    cosines = [0.9 - 0.001 * number for number in range(301)]
    snapshot = with_cosines(make_snapshot(turns, [Extra("entity", "Ann")], named), cosines)
    made = TemprRetriever(lambda space, as_of: snapshot, OneAxis(snapshot))
    hits = made.retrieve("which turn on 1 January 2024", SPACE, top_k=1_000).hits
    found = {signal: sum(signal in hit.signals for hit in hits) for signal in ("cosine", "bm25", "activation", "time")}
    assert found == {"cosine": 300, "bm25": 300, "activation": 300, "time": 300}


def test_a_cross_encoder_reads_the_date_before_the_text() -> None:
    snapshot = space_of(["canoe"], ["canoe with a red sail"])
    snapshot.valid_from[1] = snapshot.spoken_at[1] = NO_TIME
    made = retriever(snapshot)
    hits = made.retrieve("canoe", SPACE).hits
    assert made.reworded(hits, SPACE) == [
        "[Date: January 1, 2024 (2024-01-01)] Ann: canoe",
        "Ben: canoe with a red sail",
    ]


def found_at(snapshot: Snapshot, cosines: Sequence[float], question: str = "x") -> dict[str, Hit]:
    """What is found where the first nodes have given cosines with every question, by node."""
    held = with_cosines(snapshot, cosines)
    made = TemprRetriever(lambda space, as_of: held, OneAxis(held))
    return {str(hit.node_id): hit for hit in made.retrieve(question, SPACE, top_k=100).hits}


def apart(count: int) -> Snapshot:
    """Turns without links, a week apart."""
    return make_snapshot(make_turns(*([f"turn {number}"] for number in range(count))))


def test_meaning_has_a_floor_of_3_tenths() -> None:
    assert set(found_at(apart(2), [0.31, 0.29])) == {"n0"}


def test_activation_starts_at_the_five_most_similar_memories_of_a_cosine_of_at_least_a_half() -> None:
    six = found_at(apart(6), [0.65, 0.64, 0.63, 0.62, 0.61, 0.6])  # no two have a cosine of .7 with each other
    assert [node for node, hit in six.items() if "activation" in hit.signals] == ["n0", "n1", "n2", "n3", "n4"]
    assert six["n1"].signals["activation"] == pytest.approx(0.64)
    two = found_at(apart(2), [0.51, 0.49])
    assert [node for node, hit in two.items() if "activation" in hit.signals] == ["n0"]


def test_activation_falls_to_8_tenths_at_each_entity_until_it_is_a_tenth() -> None:
    turns = make_turns(*([f"turn {number}"] for number in range(12)))
    shared = [(turn, "MENTIONS", 12 + entity) for entity in range(11) for turn in (entity, entity + 1)]
    snapshot = make_snapshot(turns, [Extra("entity", f"entity {number}") for number in range(11)], shared)
    found = {node: hit.signals["activation"] for node, hit in found_at(snapshot, [0.9]).items()}
    # .9 * .8 ** 9 is .121, and one more step would leave .097.
    assert found == pytest.approx({f"n{step}": 0.9 * 0.8**step for step in range(10)}, abs=1e-6)


def test_a_memory_of_the_named_day_passes_7_tenths_on_to_those_near_it_in_time() -> None:
    snapshot = apart(4)
    hours = np.array([23, 25, 37, 49])  # the last hour of 8 January, and hours of the two days after it
    snapshot.valid_from[:] = snapshot.spoken_at[:] = 1_704_672_000 + hours * HOUR
    found = found_at(snapshot, [0.45, 0.44, 0.43, 0.42], "x on 8 January 2024")
    second = 0.7 * (1 - 2 / 24)
    third = 0.7 * (1 - 14 / 24)  # straight from the first; by the second .7 * .5 of .642
    # The fourth is more than a day from the first, and both other ways leave less than .2.
    assert {node: hit.signals["time"] for node, hit in found.items() if "time" in hit.signals} == pytest.approx(
        {"n0": 1.0, "n1": second, "n2": third}
    )


def test_the_named_time_has_a_floor_of_4_tenths() -> None:
    snapshot = apart(2)
    snapshot.valid_from[:] = snapshot.spoken_at[:] = 1_704_672_000
    found = found_at(snapshot, [0.41, 0.39], "x on 8 January 2024")
    assert [node for node, hit in found.items() if "time" in hit.signals] == ["n0"]


def test_an_entity_joins_fifty_memories_on_either_side_and_time_joins_ten() -> None:
    turns = make_turns(*([f"turn {number}"] for number in range(52)))
    named = [(turn, "MENTIONS", 52) for turn in range(52)]
    links = TemprGraph(with_cosines(make_snapshot(turns, [Extra("entity", "Ann")], named), [])).all_links
    assert (links[0, 50], links[0, 51]) == (1.0, 0.0)
    minutes = apart(12)
    minutes.valid_from[:] = 10**9 + 60 * np.arange(12)
    links = TemprGraph(with_cosines(minutes, [])).time_links
    assert (links[0, 10], links[0, 11]) == (pytest.approx(1 - 10 / 1440), 0.0)


def test_ranks_beyond_the_first_count_by_their_reciprocals() -> None:
    snapshot = make_snapshot(make_turns(["one"], ["lake"], ["three"]))
    found = found_at(snapshot, [0.45, 0.42, 0.4], "the lake on 15 January 2024")
    # By meaning 0, 1, 2; by words 1; by time 2. None is similar enough to start activation.
    assert {node: hit.score for node, hit in found.items()} == pytest.approx(
        {"n1": 1 / 4 + 1 / 3, "n2": 1 / 5 + 1 / 3, "n0": 1 / 3}
    )
    assert list(found) == ["n1", "n2", "n0"]


WORDS = st.lists(st.sampled_from(["canoe", "lake", "bread", "oven"]), min_size=1, max_size=5).map(" ".join)


@given(st.lists(WORDS, min_size=1, max_size=12), st.integers(1, 6))
def test_no_search_ever_returns_more_than_the_thinking_budget(lines: list[str], budget: int) -> None:
    made = retriever(make_snapshot(make_turns(lines)), thinking_budget=budget)
    hits = made.retrieve("canoe lake on 1 January 2024", SPACE, top_k=50).hits
    for signal in ("cosine", "bm25", "activation", "time"):
        assert sum(signal in hit.signals for hit in hits) <= budget
    assert len(hits) <= 4 * budget


def test_a_memory_is_linked_to_the_five_most_similar_ones() -> None:
    snapshot = make_snapshot(make_turns(*([f"w{number}"] for number in range(12))))
    near, far = [1.0, 0.0], [0.75, math.sqrt(1 - 0.75**2)]
    vectors = np.array([near] * 6 + [far] * 6, dtype=np.float32)
    links = TemprGraph(replace(snapshot, embeddings=vectors)).all_links.toarray()
    assert links[0, 5] == pytest.approx(1)
    assert links[0, 6] == 0


def test_the_time_to_encode_a_question_is_told() -> None:
    assert retriever(space_of(["canoe", "bread"])).retrieve("canoe", SPACE).timing.encode_ms > 0
