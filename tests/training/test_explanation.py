from __future__ import annotations

import dataclasses

import pytest
import torch

from locigraph.gnn.encoders import GRAPH_ENCODERS
from locigraph.kg.errors import LocigraphError
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import TurnId
from locigraph.training.checkpoint import Checkpoint, new_network
from locigraph.training.explained import Explanation
from locigraph.training.explanation import explain
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph, reader_of
from tests.fakes import FakeEncoder, make_turns
from tests.fakes_graph import SMALL_MODEL, TEXT_DIM, Extra, make_snapshot, planted_space, small_checkpoint

ENCODER = FakeEncoder(TEXT_DIM)
SNAPSHOT, QUESTIONS = planted_space(1)
CHECKPOINT = small_checkpoint()


def checkpoint_of(encoder: str, *, excluded: list[str] | None = None, moved: float = 0.1) -> Checkpoint:
    """A checkpoint none of whose weights is at its start."""
    model = dataclasses.replace(SMALL_MODEL, encoder=encoder, excluded_relations=excluded or [])
    torch.manual_seed(0)
    network = new_network(model, TEXT_DIM).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(moved * torch.randn_like(parameter))
    return dataclasses.replace(CHECKPOINT, model=model, weights=network.weights())


def sum_of(found: Explanation) -> float:
    parts = found.own_meaning + found.own_words + found.own_context + found.bias
    return parts + sum(influence.total for influence in found.influences)


SUMS = [name for name, row in GRAPH_ENCODERS.items() if row.is_weighted_sum]
CHECKPOINTS = [CHECKPOINT, *map(checkpoint_of, SUMS)]


@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=["near start", *SUMS])
def test_the_parts_of_an_explanation_sum_to_the_score_that_search_gives(checkpoint: Checkpoint) -> None:
    question = QUESTIONS[0].text
    rows, stored = encode_graph(checkpoint, SNAPSHOT)
    query = CheckpointQueryEncoder(checkpoint, ENCODER).encode_query(question)
    scores = {SNAPSHOT.turns_of[row][0]: score for row, score in zip(rows, (stored @ query).tolist(), strict=True)}
    explained = explain(checkpoint, SNAPSHOT, question, encoder=ENCODER, top_k=4)
    assert [found.turn_id for found in explained] == sorted(scores, key=lambda turn: -scores[turn])[:4]
    for found in explained:
        assert found.score == pytest.approx(scores[found.turn_id], abs=1e-4)
        assert sum_of(found) == pytest.approx(found.score, abs=1e-4)
        assert found.influences


def test_given_turns_are_explained_whatever_their_rank_the_best_first() -> None:
    question = QUESTIONS[0].text
    ranked = explain(CHECKPOINT, SNAPSHOT, question, encoder=ENCODER, top_k=len(SNAPSHOT.turn_ids))
    last, first = ranked[-1], ranked[0]
    asked = [last.turn_id, first.turn_id]
    assert explain(CHECKPOINT, SNAPSHOT, question, encoder=ENCODER, top_k=1, turn_ids=asked) == [first, last]
    with pytest.raises(LocigraphError, match="has no turn 'unsaid' in the graph of that time"):
        explain(CHECKPOINT, SNAPSHOT, question, encoder=ENCODER, turn_ids=[first.turn_id, TurnId("unsaid")])


def test_a_planted_fact_is_named_as_the_strongest_neighbour_and_deleting_it_lowers_the_score() -> None:
    explained = 0
    for question in QUESTIONS:
        best = explain(CHECKPOINT, SNAPSHOT, question.text, encoder=ENCODER, top_k=1)[0]
        if best.turn_id in question.evidence:
            explained += 1
            strongest = best.influences[0]
            assert strongest.relation == "fact"
            assert best.turn_id in SNAPSHOT.turns_of[SNAPSHOT.row_of[strongest.node_id]]
            assert strongest.effect > 0
    assert explained >= 3


@pytest.mark.parametrize("encoder", SUMS)
def test_the_effect_of_a_neighbour_is_what_encoding_the_graph_without_it_does(encoder: str) -> None:
    # Turn 0 has three facts; turn 1, beside it, has one, which is a trait that turn 0's weights depend on.
    lines = ["my canoe", "a kite", "the drum"]
    facts = [Extra("knowledge_node", text, (0,)) for text in ("canoe canoe red", "kite kite", "drum otter")]
    facts.append(Extra("knowledge_node", "kites fly", (1,)))
    derived = [(3, "DERIVED_FROM", 0), (4, "DERIVED_FROM", 0), (5, "DERIVED_FROM", 0), (6, "DERIVED_FROM", 1)]
    snapshot = make_snapshot(make_turns(lines), facts, derived)
    checkpoint, asked = checkpoint_of(encoder), "Which canoe and which kite?"
    query = CheckpointQueryEncoder(checkpoint, ENCODER).encode_query(asked)
    (found,) = (each for each in explain(checkpoint, snapshot, asked, encoder=ENCODER) if each.turn_id == "t0")
    inputs = reader_of(checkpoint, snapshot).inputs()
    for influence in found.influences:
        relation = [each.name for each in checkpoint.network.nodes.relations].index(influence.relation)
        source = inputs.rows.tolist().index(snapshot.row_of[influence.node_id])
        is_edge = (inputs.source == source) & (inputs.target == 0) & (inputs.relation == relation)
        assert int(is_edge.sum()) == 1
        with torch.inference_mode():
            without = checkpoint.network.nodes(inputs.with_edges(~is_edge)).joined()[0].numpy()
        assert found.score - float(without @ query) == pytest.approx(influence.effect, abs=1e-5)
    assert len(found.influences) == 3 + 2  # its facts, and the two turns that follow
    assert [each.effect for each in found.influences] == sorted((e.effect for e in found.influences), reverse=True)


def test_among_several_facts_the_one_that_says_most_comes_first_and_the_least_takes_from_it() -> None:
    facts = [Extra("knowledge_node", text, (0,)) for text in ("kite kite", "canoe canoe red", "drum otter")]
    snapshot = make_snapshot(
        make_turns(["my canoe", "a kite", "the drum"]), facts, [(3 + i, "DERIVED_FROM", 0) for i in range(3)]
    )
    best = explain(checkpoint_of("hgt", moved=0.0), snapshot, "Which canoe?", encoder=ENCODER, top_k=1)[0]
    of_facts = [each for each in best.influences if each.relation == "fact"]
    assert (best.turn_id, of_facts[0].description) == ("t0", "canoe canoe red")
    assert of_facts[0].effect > 0 > of_facts[-1].effect  # without the one that says least the mean would rise


def test_a_turn_without_neighbours_is_explained_by_itself() -> None:
    count = len(SNAPSHOT.turn_ids)
    alone: Snapshot = dataclasses.replace(
        SNAPSHOT,
        **{name: getattr(SNAPSHOT, name)[:0] for name in ("source", "target", "relations", "families", "weights")},
    )
    found = explain(CHECKPOINT, alone, QUESTIONS[0].text, encoder=ENCODER, top_k=count)
    assert len(found) == count
    assert all(explanation.influences == () for explanation in found)


def test_where_nothing_was_said_there_is_nothing_to_explain() -> None:
    assert explain(CHECKPOINT, make_snapshot(()), "Which canoe?", encoder=ENCODER) == []


def test_relations_that_the_model_leaves_out_are_left_out_of_the_explanation() -> None:
    checkpoint = checkpoint_of("hgt", excluded=["NEXT"])
    relations = set()
    for found in explain(checkpoint, SNAPSHOT, QUESTIONS[0].text, encoder=ENCODER, top_k=4):
        assert sum_of(found) == pytest.approx(found.score, abs=1e-4)
        relations |= {influence.relation for influence in found.influences}
    assert relations == {"fact"}


def test_a_score_of_vectors_that_are_no_weighted_sums_is_not_decomposed() -> None:
    with pytest.raises(LocigraphError, match="'hgtconv', whose vectors are no weighted sums"):
        explain(checkpoint_of("hgtconv"), SNAPSHOT, "Which canoe?", encoder=ENCODER)
