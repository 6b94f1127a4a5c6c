from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest
from numpy.typing import NDArray

from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import Question, SpaceId, TurnId
from locigraph.retrieval.strategies.assomem import AssoMemRetriever, ClueGraph
from locigraph.retrieval.strategies.memory_graph import Asked
from locigraph.training.assomem_weights import (
    TEMPERATURES,
    WeightsOfQuestion,
    learn_signal_weights,
    typed_signals,
    weights_of_types,
)
from tests.fakes import SPACE, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, make_snapshot

ENCODER = FakeEncoder(TEXT_DIM)
WORDS = [" ".join(f"w{word}" for word in np.random.default_rng(i).integers(0, 30, 6)) for i in range(40)]
SNAPSHOT = make_snapshot(make_turns(*[WORDS[start : start + 5] for start in range(0, 40, 5)]))


def make(weights: WeightsOfQuestion) -> AssoMemRetriever:
    return AssoMemRetriever(lambda space, as_of: SNAPSHOT, ENCODER, weights=weights, clues=None, similar_cosine=0.5)


def asked(turns: range) -> list[Question]:
    """Two words of a turn; every second question names a day, mostly a wrong one."""
    return [
        Question(SPACE, f"q{i}", f"{WORDS[i][:6]}{' on 1 January 2024' * (i % 2)}", "c", (TurnId(f"t{i}"),))
        for i in turns
    ]


def type_of(text: str) -> str:
    return "dated" if "2024" in text else "other"


TRAIN, VALIDATION = asked(range(20)), asked(range(20, 40))
SAMPLES = typed_signals(make(lambda text: (1.0, 0.0, 0.0)), TRAIN, type_of)
LEARNT = [weights_of_types(SAMPLES, type_of, temperature=t) for t in TEMPERATURES]


def found(weights: WeightsOfQuestion) -> float:
    retriever = make(weights)
    firsts = [[hit.turn_ids[0] for hit in retriever.retrieve(q.text, SPACE).hits[:10]] for q in VALIDATION]
    return float(np.mean([q.evidence[0] in turns for q, turns in zip(VALIDATION, firsts, strict=True)]))


def test_validation_questions_choose_the_temperature() -> None:
    recalls = [found(weights) for weights in LEARNT]
    assert len(set(recalls)) > 1
    chosen = learn_signal_weights(make, TRAIN, VALIDATION, type_of)
    best = LEARNT[int(np.argmax(recalls))]
    for text in ("what", "what of 2024"):
        assert chosen(text) == pytest.approx(best(text))
    assert chosen("what") != pytest.approx(chosen("what of 2024"))


def test_a_space_is_read_and_the_signals_of_a_training_question_are_made_once_whatever_is_tried() -> None:
    reads, asked_of = [0], [0]

    class Counting(AssoMemRetriever):
        def signals(self, graph: ClueGraph, asked: Asked) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
            asked_of[0] += 1
            return super().signals(graph, asked)

    def load(space: SpaceId, as_of: datetime | None) -> Snapshot:
        reads[0] += 1
        return SNAPSHOT

    learn_signal_weights(lambda weights: Counting(load, ENCODER, weights=weights), TRAIN, VALIDATION, type_of)
    assert (reads, asked_of) == ([1], [len(TRAIN) + len(TEMPERATURES) * len(VALIDATION)])


def test_without_validation_questions_the_middle_temperature_is_taken() -> None:
    assert learn_signal_weights(make, TRAIN, [], type_of)("what") == pytest.approx(LEARNT[1]("what"))
