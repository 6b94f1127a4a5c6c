from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.snapshot import Snapshot
from locigraph.research.published.gaama import GaamaRetriever
from locigraph.retrieval.budgets import Budget, ContextRules, KindLimits
from locigraph.retrieval.packing import SnapshotDates, retrieve_contexts
from locigraph.retrieval.protocols import Hit
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, Extra, OneAxis, make_snapshot, with_cosines

ENCODER = FakeEncoder(TEXT_DIM)
#: The weights of the paper.
WEIGHTS = {"NEXT": 0.8, "DERIVED_FROM": 0.8, "HAS_CONCEPT": 0.8, "ABOUT_CONCEPT": 0.8, "DERIVED_FROM_FACT": 0.5}


def space_of() -> Snapshot:
    """Turns 0 to 2, facts 3 and 4, topic 5, entity 6, reflection 7."""
    turns = make_turns(["I bought a canoe", "nice one", "the bread rose well"])
    facts = [Extra("knowledge_node", "Ann has a canoe", (0,)), Extra("event_node", "Ann baked bread", (2,))]
    others = [Extra("concept", "boats", (0, 1)), Extra("entity", "Ann"), Extra("reflection", "Ann is handy", (0, 2))]
    edges = [(3, "DERIVED_FROM", 0), (4, "DERIVED_FROM", 2), (0, "HAS_CONCEPT", 5), (3, "ABOUT_CONCEPT", 5)]
    edges += [(7, "DERIVED_FROM_FACT", 3), (3, "MENTIONS", 6), (4, "MENTIONS", 6)]
    return make_snapshot(turns, [*facts, *others], edges)


def retriever(snapshot: Snapshot, **options: Any) -> GaamaRetriever:
    return GaamaRetriever(lambda space, as_of: snapshot, ENCODER, **options)


def test_scores_match_a_walk_by_networkx_and_the_formula() -> None:
    snapshot = space_of()
    snapshot.weights[:] = np.linspace(0.4, 1.0, len(snapshot.weights))
    cosine = np.maximum(snapshot.embeddings @ ENCODER.encode(["canoe"])[0], 0).astype(float)
    graph = networkx.Graph()
    graph.add_nodes_from(row for row in range(8) if row != 6)
    edges = zip(snapshot.source, snapshot.relations, snapshot.target, snapshot.weights, strict=True)
    for source, label, target, weight in edges:
        if label in WEIGHTS:
            graph.add_edge(int(source), int(target), weight=WEIGHTS[str(label)] * float(weight))
    seeds = {row: cosine[row] ** 2 for row in graph}
    ranks = networkx.pagerank(graph.to_directed(), alpha=0.6, personalization=seeds, tol=1e-12, max_iter=1000)
    most_rank, most_cosine = max(ranks.values()), max(cosine[row] for row in graph)
    expected = {
        str(snapshot.ids[row]): 0.1 * ranks[row] / most_rank + cosine[row] / most_cosine for row in (0, 1, 2, 3, 4, 7)
    }
    hits = retriever(snapshot).retrieve("canoe", SPACE).hits
    assert {hit.node_id: hit.score for hit in hits} == pytest.approx(expected, abs=1e-5)


def test_an_edge_weighs_what_its_relation_does_times_its_own_weight() -> None:
    edges = [(2, "DERIVED_FROM", 0), (0, "HAS_CONCEPT", 3), (2, "ABOUT_CONCEPT", 3), (4, "DERIVED_FROM_FACT", 2)]
    extras = [Extra("knowledge_node", "a fact"), Extra("concept", "boats"), Extra("reflection", "an insight")]
    snapshot = make_snapshot(make_turns(["one", "two"]), extras, [*edges, (2, "CAUSES", 1)])
    snapshot.weights[1] = 0.25  # of the fact to its turn
    graph = retriever(snapshot).prepare(snapshot)
    found = zip(graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True)
    one_way = {(0, 1): 0.8, (2, 0): 0.2, (0, 3): 0.8, (2, 3): 0.8, (4, 2): 0.5}
    assert {(source, target): weight for source, target, weight in found} == pytest.approx(
        one_way | {(target, source): weight for (source, target), weight in one_way.items()}
    )


def test_entities_are_not_walked() -> None:
    hits = {str(hit.node_id): hit for hit in retriever(space_of(), seeds=1, depth=1).retrieve("canoe", SPACE).hits}
    assert hits["n0"].signals["ppr"] > 0
    assert hits["n4"].signals["ppr"] == 0  # joined to the seed by an entity only


def test_the_ablation_without_walks_ranks_by_similarity() -> None:
    hits = retriever(space_of(), ppr_weight=0.0).retrieve("bread", SPACE).hits
    cosines = [hit.signals["cosine"] for hit in hits]
    assert cosines == sorted(cosines, reverse=True)
    assert [hit.score for hit in hits] == pytest.approx([cosine / cosines[0] for cosine in cosines])


@pytest.mark.parametrize("limits", [KindLimits(1, 0, 2), KindLimits(0, 1, 1), KindLimits(2, 1, 0)])
def test_no_kind_exceeds_its_limit(limits: KindLimits) -> None:
    found = Counter(hit.type for hit in retriever(space_of(), limits=limits).retrieve("Ann canoe", SPACE).hits)
    assert found["episode"] <= limits.episodes
    assert found["knowledge_node"] + found["event_node"] <= limits.facts
    assert found["reflection"] <= limits.reflections


def test_the_walked_graph_ends_after_two_steps() -> None:
    chain = make_snapshot(make_turns(["canoe", "b b", "c c", "d d", "e e"]))
    hits = {str(hit.node_id): hit for hit in retriever(chain, seeds=1).retrieve("Ann canoe", SPACE).hits}
    reached = {node for node, hit in hits.items() if hit.signals.get("ppr", 0) > 0}
    assert reached == {"n0", "n1", "n2"}


def found_at(snapshot: Snapshot, cosines: Sequence[float], **options: Any) -> dict[str, Hit]:
    """What is found where the nodes have given cosines with the question, by node."""
    held = with_cosines(snapshot, cosines)
    made = GaamaRetriever(lambda space, as_of: held, OneAxis(held), **options)
    return {str(hit.node_id): hit for hit in made.retrieve("x", SPACE, top_k=1_000).hits}


@pytest.mark.parametrize(("cosine", "expected"), [(0.65, {"n0", "n4"}), (0.55, {"n0"})])
def test_the_pool_has_twice_as_many_nodes_as_all_limits_together(cosine: float, expected: set[str]) -> None:
    turns = make_snapshot(make_turns(["a", "b", "c", "d"]), [Extra("knowledge_node", "a fact", (0,))])
    limits = KindLimits(facts=1, reflections=0, episodes=1)  # B = 2, so that the pool has the best 4 of 5
    found = found_at(turns, [0.9, 0.8, 0.7, 0.6, cosine], limits=limits, ppr_weight=0.0)
    assert set(found) == expected


def test_the_forty_most_similar_nodes_are_seeds_that_weigh_their_cosine_squared() -> None:
    cosines = [0.9 - 0.01 * place for place in range(41)]
    found = found_at(make_snapshot(make_turns(*([f"turn {place}"] for place in range(41)))), cosines)
    # No edge joins them, so that a walk ends where it starts: PageRank is the share of the start.
    assert found["n0"].signals["ppr"] == 1.0
    assert found["n39"].signals["ppr"] == pytest.approx((0.51 / 0.9) ** 2, abs=1e-6)
    assert found["n39"].score == pytest.approx(0.1 * (0.51 / 0.9) ** 2 + 0.51 / 0.9, abs=1e-6)
    assert found["n40"].signals["ppr"] == 0.0
    assert found["n40"].score == pytest.approx(0.5 / 0.9, abs=1e-6)


@pytest.mark.parametrize(("turns", "share"), [(50, 1.0), (60, 50 / 60)])
def test_a_topic_of_more_than_fifty_edges_passes_on_less(turns: int, share: float) -> None:
    edges = [(turn, "HAS_CONCEPT", turns) for turn in range(turns)]
    snapshot = make_snapshot(make_turns(*([f"turn {n}"] for n in range(turns))), [Extra("concept", "hub")], edges)
    found = found_at(snapshot, [1.0], seeds=1, similarity_weight=0.0)
    # All turns lead to the topic: r_t = .6 (1 - r_t) = .375. Each other turn has .6 * .375 * share / turns, and the
    # first, where walks start again, has what is left.
    other = 0.6 * 0.375 * share / turns
    first = 1 - 0.375 - (turns - 1) * other
    assert found["n0"].signals["ppr"] == 1.0
    assert found["n7"].signals["ppr"] == pytest.approx(other / first, abs=1e-5)


def test_contexts_have_the_limits_of_the_paper() -> None:
    rules = retriever(space_of()).context_rules
    assert rules == ContextRules(Budget(words=1_000, kinds=KindLimits(facts=60, reflections=20, episodes=80)))
    turns = make_snapshot(make_turns([f"{'word ' * 9}{number}" for number in range(90)]))
    made = retriever(turns)
    assert len(made.retrieve("word", SPACE, top_k=1_000).hits) == 80
    # A line has 15 words: 3 of its date, the speaker, 10 of its text, and its turn; 66 lines have 990.
    _, (context,) = retrieve_contexts(made, "word", SnapshotDates(turns), [Budget(tokens=1_000_000)], space=SPACE)
    assert len(context.memories) == 66
    assert len(str(context).split()) == 990


WORDS = st.lists(st.sampled_from(["canoe", "lake", "bread", "oven", "jam"]), min_size=1, max_size=8).map(" ".join)
LIMITS = st.builds(KindLimits, st.integers(0, 3), st.integers(0, 2), st.integers(0, 4))


@given(
    st.lists(WORDS, min_size=1, max_size=8),
    st.lists(st.tuples(st.sampled_from(["knowledge_node", "event_node", "reflection"]), WORDS), max_size=8),
    LIMITS, LIMITS, st.integers(0, 60), st.integers(0, 80),
)  # fmt: skip
def test_no_limit_is_ever_exceeded(
    lines: list[str], extras: list[tuple[str, str]], own: KindLimits, asked: KindLimits, words: int, tokens: int
) -> None:
    snapshot = make_snapshot(make_turns(lines), [Extra(kind, text, (0,)) for kind, text in extras])
    made = retriever(snapshot, limits=own, words=words)
    budget = Budget(tokens=tokens, kinds=asked)
    found, (context,) = retrieve_contexts(made, "canoe lake", SnapshotDates(snapshot), [budget], space=SPACE, top_k=50)
    assert all(own.mask([hit.type for hit in found.hits]))
    shown = [line.type for line in context.memories]
    assert all(own.mask(shown))
    assert all(asked.mask(shown))
    assert len(str(context).split()) <= words
    assert context.tokens <= tokens
