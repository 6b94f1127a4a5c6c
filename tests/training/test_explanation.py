from __future__ import annotations

import dataclasses

import pytest
import torch

from locigraph.kg.snapshot import Snapshot
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.explanation import explain
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph
from locigraph.training.module import GraphRetrieval
from tests.fakes import FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, Extra, make_snapshot, planted_space, small_checkpoint

EMBED = FakeEncoder(TEXT_DIM).encode
SNAPSHOT, QUESTIONS = planted_space(1)


def trained_like() -> Checkpoint:
    """A checkpoint whose gates, residual and free block are not at their zero start."""
    checkpoint = small_checkpoint()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in checkpoint.network.named_parameters():
            if not parameter.any() and "term_weight" not in name:
                parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    return checkpoint


@pytest.mark.parametrize("checkpoint", [small_checkpoint(), trained_like()], ids=["start", "moved"])
def test_the_parts_of_an_explanation_sum_to_the_score_that_search_gives(checkpoint: Checkpoint) -> None:
    question = QUESTIONS[0].text
    stored = encode_graph(checkpoint, SNAPSHOT)
    query = CheckpointQueryEncoder(checkpoint, EMBED).encode_query(question)
    for found in explain(checkpoint, SNAPSHOT, question, embed=EMBED, top_k=4):
        row = next(r for r in SNAPSHOT.episode_rows if SNAPSHOT.turns_of[r] == (found.turn_id,))
        assert found.score == pytest.approx(float(stored[row] @ query), abs=1e-4)
        parts = found.own_meaning + found.own_words + found.own_context + found.states + found.bias
        assert parts + sum(i.total for i in found.influences) == pytest.approx(found.score, abs=1e-4)


def test_a_planted_fact_is_named_as_the_strongest_neighbour_and_deleting_it_lowers_the_score() -> None:
    explained = 0
    for question in QUESTIONS:
        best = explain(small_checkpoint(), SNAPSHOT, question.text, embed=EMBED, top_k=1, check_deletions=1)[0]
        if best.turn_id not in question.evidence:
            continue
        strongest = best.influences[0]
        if strongest.relation != "DERIVED_FROM":
            continue  # this turn names the thing itself
        explained += 1
        assert best.turn_id in SNAPSHOT.turns_of[SNAPSHOT.row_of[strongest.node_id]]
        assert strongest.score_without is not None
        assert strongest.score_without < best.score
    assert explained


def test_the_effect_of_a_neighbour_is_what_deleting_it_does_also_among_several() -> None:
    lines = ["my canoe", "a kite", "the drum"]
    facts = [Extra("knowledge_node", text, (0,)) for text in ("canoe canoe red", "kite kite", "drum otter")]
    snapshot = make_snapshot(make_turns(lines), facts, [(3 + i, "DERIVED_FROM", 0) for i in range(3)])
    checkpoint = small_checkpoint()
    found = explain(checkpoint, snapshot, "Which canoe?", embed=EMBED, top_k=3, check_deletions=9)
    (best,) = (each for each in found if each.turn_id == "t0")
    of_facts = [each for each in best.influences if each.relation == "DERIVED_FROM"]
    assert len(of_facts) == 3
    for each in best.influences:
        assert each.score_without is not None
        assert best.score - each.score_without == pytest.approx(each.effect, abs=1e-5)
    assert of_facts[0].description == "canoe canoe red"
    assert of_facts[0].effect > 0 > of_facts[-1].effect  # without the one that says least the mean would rise
    assert [each.effect for each in best.influences] == sorted((e.effect for e in best.influences), reverse=True)


def test_a_turn_without_neighbours_is_explained_by_itself() -> None:
    count = len(SNAPSHOT.turn_ids)
    alone: Snapshot = dataclasses.replace(
        SNAPSHOT,
        **{name: getattr(SNAPSHOT, name)[:0] for name in ("source", "target", "relations", "families", "weights")},
    )
    found = explain(small_checkpoint(), alone, QUESTIONS[0].text, embed=EMBED, top_k=count, check_deletions=2)
    assert len(found) == count
    assert all(explanation.influences == () for explanation in found)


def test_relations_that_the_model_leaves_out_are_left_out_of_the_explanation() -> None:
    checkpoint = trained_like()
    model = dataclasses.replace(checkpoint.model, excluded_relations=["NEXT"])
    network = GraphRetrieval(model, text_dim=TEXT_DIM)
    network.load_state_dict(checkpoint.network.state_dict())
    checkpoint = dataclasses.replace(checkpoint, model=model, network=network.eval())
    relations = set()
    for found in explain(checkpoint, SNAPSHOT, QUESTIONS[0].text, embed=EMBED, top_k=4, check_deletions=1):
        parts = found.own_meaning + found.own_words + found.own_context + found.states + found.bias
        assert parts + sum(i.total for i in found.influences) == pytest.approx(found.score, abs=1e-4)
        relations |= {influence.relation for influence in found.influences}
    assert relations
    assert not any("NEXT" in relation for relation in relations)
