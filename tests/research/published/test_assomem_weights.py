from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import NodeId, Question, SpaceId, TurnId
from locigraph.research.published import assomem_weights
from locigraph.research.published.assomem import AssoMemRetriever, ClueGraph
from locigraph.research.published.assomem_weights import (
    TEMPERATURES,
    WeightsOfQuestion,
    conditional_mutual_information,
    learn_signal_weights,
    signal_weights,
    typed_signals,
    weights_of_types,
)
from locigraph.retrieval.protocols import Hit
from locigraph.retrieval.strategies.memory_graph import Asked
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


# --- information -------------------------------------------------------------------------------------------------

NOTHING = np.zeros(4, dtype=np.int64)
YES_NO = np.array([True, True, False, False])


def information(signal: NDArray[np.int64], relevant: NDArray[np.bool_], given: NDArray[np.int64]) -> float:
    """Of four samples that count the same."""
    return conditional_mutual_information(signal, relevant, given, np.full(4, 0.25))


def test_a_signal_that_says_it_all_is_worth_the_entropy_of_relevance() -> None:
    signal = np.array([2, 2, 0, 0])
    assert information(signal, YES_NO, NOTHING) == pytest.approx(math.log(2))


def test_a_signal_that_is_known_already_is_worth_nothing() -> None:
    signal = np.array([2, 2, 0, 0])
    assert information(signal, YES_NO, signal) == pytest.approx(0)


def test_independent_signals_are_worth_nothing() -> None:
    assert information(np.array([0, 2, 0, 2]), YES_NO, NOTHING) == pytest.approx(0)


def test_a_signal_can_be_worth_something_only_together_with_another() -> None:
    # Relevant if exactly one of the two is high: each alone says nothing, given the other it says all.
    first, second = np.array([0, 2, 0, 2]), np.array([0, 0, 2, 2])
    relevant = np.array([False, True, True, False])
    assert information(first, relevant, NOTHING) == pytest.approx(0)
    assert information(first, relevant, second) == pytest.approx(math.log(2))


def test_hand_worked_information() -> None:
    # p(s, y): (0,0) 1/2, (0,1) 1/4, (1,1) 1/4. I = 1/2 ln(.5/(.75*.5)) + 1/4 ln(.25/(.75*.5)) + 1/4 ln(.25/(.25*.5))
    signal, relevant = np.array([0, 0, 0, 1]), np.array([False, False, True, True])
    expected = 0.5 * math.log(4 / 3) + 0.25 * math.log(2 / 3) + 0.25 * math.log(2)
    assert information(signal, relevant, NOTHING) == pytest.approx(expected)


def test_weights_are_a_softmax_of_the_information() -> None:
    signals = np.array([[0.9, 0.5, 0.5], [0.8, 0.5, 0.5], [0.1, 0.5, 0.5], [0.2, 0.5, 0.5]])
    weights = signal_weights(signals, YES_NO, temperature=0.5)
    # ln 2 / .5 = ln 4 for the first, 0 for the others: 4 / 6, 1 / 6, 1 / 6.
    assert weights.tolist() == pytest.approx([4 / 6, 1 / 6, 1 / 6])


def test_relevant_samples_count_as_much_as_all_others_together() -> None:
    once = np.array([[0.9, 0.5], [0.1, 0.5]])
    often = np.concatenate([once, np.repeat(once[1:], 50, axis=0)])
    expected = signal_weights(once, np.array([True, False]))
    assert signal_weights(often, np.arange(52) == 0).tolist() == pytest.approx(expected.tolist())
    assert signal_weights(once, np.array([False, False])).tolist() == pytest.approx([0.5, 0.5])


def test_a_value_of_1_is_high() -> None:
    ends = np.array([[1.0, 0.0], [0.7, 0.0], [0.34, 0.0], [0.6, 0.0]])
    assert signal_weights(ends, YES_NO).tolist() == pytest.approx([2 / 3, 1 / 3])  # e^(ln 2) : 1


def test_no_samples_and_no_temperature_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        signal_weights(np.zeros((0, 3)), np.zeros(0, dtype=bool))
    with pytest.raises(ValueError, match="temperature"):
        signal_weights(np.zeros((1, 3)), np.zeros(1, dtype=bool), temperature=0)


def test_a_small_temperature_gives_all_weight_to_the_best_signal() -> None:
    signals = np.array([[0.9, 0.5, 0.5], [0.1, 0.5, 0.5]] * 4)
    weights = signal_weights(signals, np.array([True, False] * 4), temperature=1e-4)
    assert weights.tolist() == pytest.approx([1, 0, 0])


def test_the_temperature_is_the_one_whose_weights_find_most(monkeypatch: pytest.MonkeyPatch) -> None:
    weights_at = {each: (0.0, float(n), 1.0 - n) for n, each in enumerate(assomem_weights.TEMPERATURES)}
    best = weights_at[assomem_weights.TEMPERATURES[-1]]
    monkeypatch.setattr(assomem_weights, "typed_signals", lambda *_: [])
    monkeypatch.setattr(
        assomem_weights, "weights_of_types", lambda samples, type_of, temperature: lambda text: weights_at[temperature]
    )

    def made(weights: Callable[[str], object]) -> object:
        def retrieve(text: str, space: str, **_: object) -> object:
            found = TurnId("t0" if weights(text) == best else "t1")
            return SimpleNamespace(hits=(Hit(NodeId("n"), "episode", "x", (found,), 1.0, {}),))

        return SimpleNamespace(retrieve=retrieve)

    question = Question(SPACE, "q", "Where?", "c", (TurnId("t0"),))
    chosen = assomem_weights.learn_signal_weights(made, [], [question], str)  # type: ignore[arg-type]
    assert chosen("Where?") == best
