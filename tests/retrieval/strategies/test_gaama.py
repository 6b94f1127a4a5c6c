from __future__ import annotations

from collections import Counter
from typing import Any

import networkx
import numpy as np
import pytest

from locigraph.kg.snapshot import Snapshot
from locigraph.retrieval.packing import KindLimits
from locigraph.retrieval.strategies.gaama import EDGE_WEIGHTS, GaamaRetriever
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, Extra, make_snapshot

ENCODER = FakeEncoder(TEXT_DIM)


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
    cosine = np.maximum(snapshot.embeddings @ ENCODER.encode(["canoe"])[0], 0).astype(float)
    graph = networkx.Graph()
    graph.add_nodes_from(row for row in range(8) if row != 6)
    for source, label, target in zip(snapshot.source, snapshot.relations, snapshot.target, strict=True):
        if label in EDGE_WEIGHTS:
            graph.add_edge(int(source), int(target), weight=EDGE_WEIGHTS[str(label)])
    seeds = {row: cosine[row] ** 2 for row in graph}
    ranks = networkx.pagerank(graph.to_directed(), alpha=0.6, personalization=seeds, tol=1e-12, max_iter=1000)
    most_rank, most_cosine = max(ranks.values()), max(cosine[row] for row in graph)
    expected = {
        str(snapshot.ids[row]): 0.1 * ranks[row] / most_rank + cosine[row] / most_cosine for row in (0, 1, 2, 3, 4, 7)
    }
    hits = retriever(snapshot).retrieve("canoe", SPACE).hits
    assert {hit.node_id: hit.score for hit in hits} == pytest.approx(expected, abs=1e-5)


def test_entities_are_not_walked() -> None:
    hits = {str(hit.node_id): hit for hit in retriever(space_of(), seeds=1, depth=1).retrieve("canoe", SPACE).hits}
    assert hits["n0"].signals["ppr"] > 0
    assert "n4" not in hits or hits["n4"].signals["ppr"] == 0  # joined to the seed by an entity only


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
