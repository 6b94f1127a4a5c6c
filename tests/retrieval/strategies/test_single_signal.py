from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import pytest

from locigraph.kg.errors import UnknownSpaceError
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.errors import IndexUnavailableError
from locigraph.retrieval.protocols import Retriever, VectorMatch
from locigraph.retrieval.strategies.single_signal import Bm25Retriever, DenseRetriever
from tests.fakes import MONDAY, SPACE, FakeEncoder, make_turns
from tests.fakes_graph import (
    TEXT_DIM,
    BrokenVectors,
    Extra,
    FixedVectors,
    lexical_of,
    make_snapshot,
    permuted,
    vectors_of,
)
from tests.retrieval.texts import texts_of

ENCODER = FakeEncoder(TEXT_DIM)


def snapshot() -> Snapshot:
    turns = make_turns(["I painted the canoe", "Lovely colour", "The kite is torn"])
    return make_snapshot(turns, [Extra("knowledge_node", "canoe", (0,))])


def test_dense_finds_turns_by_cosine_and_nothing_else() -> None:
    held = snapshot()
    result = DenseRetriever(vectors_of(held), ENCODER, texts_of(held)).retrieve("Ann painted the canoe", SPACE)
    scores = held.embeddings[:3] @ ENCODER.encode(["Ann painted the canoe"])[0]
    assert [hit.node_id for hit in result.hits] == [f"n{i}" for i in np.argsort(-scores)]
    best = result.hits[0]
    assert (best.node_id, best.turn_ids, best.text) == ("n0", ("t0",), "Ann: I painted the canoe")
    assert best.signals == {"ann": best.score}
    assert best.score == pytest.approx(float(scores[0]))
    assert result.timing.encode_ms >= 0
    assert result.timing.search_ms > 0


def test_bm25_finds_turns_that_share_a_word_and_nothing_else() -> None:
    result = Bm25Retriever(lexical_of(snapshot())).retrieve("Where is the canoe?", SPACE)
    assert [hit.node_id for hit in result.hits] == ["n0"]
    assert result.hits[0].signals == {"bm25": result.hits[0].score}
    assert result.timing.encode_ms == 0


def arms(held: Snapshot) -> list[Retriever]:
    return [DenseRetriever(vectors_of(held), ENCODER, texts_of(held)), Bm25Retriever(lexical_of(held))]


@pytest.mark.parametrize("arm", [0, 1])
def test_later_turns_are_invisible_and_top_k_is_kept(arm: int) -> None:
    held = snapshot()
    question = "Ann: painted canoe, torn kite"
    seen = arms(held)[arm].retrieve(question, SPACE, as_of=MONDAY)
    assert [hit.node_id for hit in seen.hits] == ["n0"]
    assert len(arms(held)[arm].retrieve(question, SPACE, top_k=1).hits) == 1


@pytest.mark.parametrize("arm", [0, 1])
def test_an_unknown_space_is_an_error_and_not_an_empty_result(arm: int) -> None:
    with pytest.raises(UnknownSpaceError, match="'nobody' is not in the store"):
        arms(snapshot())[arm].retrieve("canoe", SpaceId("nobody"))


def test_dense_passes_over_a_row_whose_node_is_gone() -> None:
    held = snapshot()
    stale = VectorMatch(NodeId("forgotten"), "episode", (), 0.9)
    retriever = DenseRetriever(FixedVectors([stale]), ENCODER, texts_of(held))
    assert retriever.retrieve("canoe", SPACE).hits == ()


def test_dense_asks_once_for_the_texts_of_that_time() -> None:
    asked: list[tuple[SpaceId, list[NodeId], datetime | None]] = []

    def texts(space: SpaceId, node_ids: Sequence[NodeId], as_of: datetime | None) -> dict[NodeId, str]:
        asked.append((space, list(node_ids), as_of))
        return dict.fromkeys(node_ids, "as it was then")

    found = DenseRetriever(vectors_of(snapshot()), ENCODER, texts).retrieve("canoe", SPACE, as_of=MONDAY)
    assert [hit.text for hit in found.hits] == ["as it was then"]
    assert asked == [(SPACE, ["n0"], MONDAY)]


def test_an_outage_is_an_error_and_not_an_empty_result() -> None:
    with pytest.raises(IndexUnavailableError):
        DenseRetriever(BrokenVectors(), ENCODER, texts_of(snapshot())).retrieve("canoe", SPACE)


@pytest.mark.parametrize("arm", [0, 1])
@pytest.mark.parametrize("order", [[3, 2, 1, 0], [1, 3, 0, 2]])
def test_what_is_found_does_not_depend_on_the_order_of_insertion(arm: int, order: list[int]) -> None:
    twins = make_turns(["I painted the canoe", "The kite is torn", "I painted the canoe"])  # both by Ann: a tie
    held = make_snapshot(twins, [Extra("knowledge_node", "canoe", (0,))])
    found = arms(held)[arm].retrieve("Who painted the canoe", SPACE).hits
    again = arms(permuted(held, order))[arm].retrieve("Who painted the canoe", SPACE).hits
    assert [hit.node_id for hit in found[:2]] == ["n0", "n2"]
    assert [hit.node_id for hit in again] == [hit.node_id for hit in found]
    assert [hit.score for hit in again] == pytest.approx([hit.score for hit in found])
