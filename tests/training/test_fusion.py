from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from locigraph.kg.types import Question, SpaceId, TurnId
from locigraph.retrieval.strategies.turn_signals import SIGNALS
from locigraph.retrieval.strategies.weighted_sum import WeightedSum
from locigraph.training import fusion
from locigraph.training.errors import CheckpointError, TrainingDataError
from locigraph.training.fusion import DETAIL, SignalExample, SignalReader, fusion_of, learn_fusion, learn_trees
from locigraph.training.snapshots import TrainingSet
from tests.fakes import FakeEncoder
from tests.fakes_graph import TEXT_DIM, small_checkpoint
from tests.training.planted import ENCODER, QUESTIONS, VIEWS

NAMES = ("good", "bad")


def drawn(seed: int, *, questions: int = 40, turns: int = 12, is_training: bool = True) -> SignalExample:
    """One signal says with some noise which turn is right, the other says nothing."""
    rng = np.random.default_rng(seed)
    values = rng.random((questions, 2, turns)).astype(np.float32)
    right = rng.integers(0, turns, questions)
    values[np.arange(questions), 0, right] += 0.6
    positive = torch.zeros(questions, turns, dtype=torch.bool)
    positive[torch.arange(questions), torch.from_numpy(right)] = True
    return SignalExample(torch.from_numpy(values), positive, is_training)


def test_the_weights_find_the_signal_that_tells_right_from_wrong() -> None:
    weights = learn_fusion([drawn(0), drawn(1, is_training=False)], NAMES).weights
    assert weights["good"] > 5 * abs(weights["bad"])
    assert sum(map(abs, weights.values())) == pytest.approx(1, abs=1e-3)


def test_the_weights_are_those_that_another_optimiser_finds() -> None:
    example = drawn(2)
    values, right = example.values.numpy().astype(np.float64), example.positive.numpy()

    def loss(weights: np.ndarray) -> float:
        logits = np.einsum("s,qst->qt", weights, values)
        wrong = np.where(right, -np.inf, logits)
        top = wrong.max(1)
        denominators = top + np.log(np.exp(wrong - top[:, None]).sum(1))
        own = logits[right]
        return float(np.log1p(np.exp(denominators - own)).mean() + 1e-3 * (weights**2).sum())

    expected = minimize(loss, np.ones(2)).x
    expected /= np.abs(expected).sum()
    # Without validation questions the middle penalty is taken, 1e-3.
    assert list(learn_fusion([example], NAMES).weights.values()) == pytest.approx(expected.tolist(), abs=2e-3)


def test_each_space_counts_the_same_however_many_questions_it_has() -> None:
    one, other = drawn(6, questions=10), drawn(7, questions=10)
    turned = dataclasses.replace(other, values=other.values.flip(1))  # here the signals have changed places
    thrice = SignalExample(one.values.repeat(3, 1, 1), one.positive.repeat(3, 1), is_training=True)
    assert learn_fusion([thrice, turned], NAMES).weights == pytest.approx(
        learn_fusion([one, turned], NAMES).weights, abs=2e-3
    )


def test_only_training_questions_are_learnt_from() -> None:
    checks = drawn(4, is_training=False)
    turned = dataclasses.replace(checks, values=checks.values.flip(1))
    # What the checks say decides at most between penalties, never the sign.
    assert learn_fusion([drawn(3), turned], NAMES).weights["good"] > 0.5


def test_trees_rank_by_a_rule_that_no_weights_express() -> None:
    rng = np.random.default_rng(5)
    values = rng.random((300, 2, 20)).astype(np.float32)
    # Right is the turn whose first signal is nearest to one half.
    right = np.abs(values[:, 0] - 0.5).argmin(1)
    positive = torch.zeros(300, 20, dtype=torch.bool)
    positive[torch.arange(300), torch.from_numpy(right)] = True
    train = SignalExample(torch.from_numpy(values[:200]), positive[:200], True)
    linear = learn_fusion([train], NAMES)
    trees = learn_trees([train], linear, seed=0)

    def hits(scores: list[np.ndarray]) -> float:
        return float(np.mean([s.argmax() == r for s, r in zip(scores, right[200:], strict=True)]))

    test = values[200:].astype(np.float64)
    assert hits([linear.scores(v) for v in test]) < 0.2
    assert hits([trees.scores(v) for v in test]) > 0.6


def test_trees_are_learnt_from_a_single_question_and_refused_without_wrong_turns() -> None:
    linear = WeightedSum(dict.fromkeys(NAMES, 1.0))
    one = drawn(3, questions=1)
    assert len(learn_trees([one], linear, seed=0).scores(one.values[0].numpy().astype(np.float64))) == 12
    with pytest.raises(TrainingDataError, match="turns that answer a question and turns that do not"):
        learn_trees([drawn(3, questions=1, turns=1)], linear, seed=0)


def test_trees_leave_the_order_of_what_the_linear_fusion_ranks_low() -> None:
    example = drawn(6, turns=80)
    linear = learn_fusion([example], NAMES)
    values = drawn(7, questions=1, turns=80).values[0].numpy().astype(np.float64)
    first, scores = linear.scores(values), learn_trees([example], linear, seed=0).scores(values)
    order, before = np.argsort(-scores, kind="stable"), np.argsort(-first, kind="stable")
    assert set(order[:50]) == set(before[:50])
    assert order[50:].tolist() == before[50:].tolist()


def test_signals_are_read_once_for_all_folds_and_name_the_evidence() -> None:
    calls: list[int] = []

    class Counting(FakeEncoder):
        def encode(self, texts: Sequence[str], *, progress: str | None = None) -> NDArray[np.float32]:
            calls.append(len(texts))
            return super().encode(texts)

    reader = SignalReader(Counting(TEXT_DIM))
    first = reader.examples([TrainingSet(QUESTIONS, ("planted1", "planted2"), ("planted3",), VIEWS)])
    second = reader.examples([TrainingSet(QUESTIONS, ("planted2", "planted3"), (), VIEWS)])
    assert calls == [6, 6, 6]
    assert [example.is_training for example in first] == [True, True, False]
    assert len(second) == 2
    for example in first:
        assert example.values.shape == (6, len(SIGNALS), 6)
        assert example.positive.sum(1).tolist() == [1] * 6
    # The planted turns name the animal only through their facts.
    facts = first[0].values[:, SIGNALS.index("bm25_facts")]
    assert facts.argmax(1).tolist() == first[0].positive.int().argmax(1).tolist()


def test_of_a_large_space_each_question_keeps_its_answers_and_the_best_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = [TrainingSet(QUESTIONS, ("planted1",), (), VIEWS)]
    (whole,) = SignalReader(ENCODER).examples(data)
    monkeypatch.setattr(fusion, "_MOST_TURNS", 5)
    (part,) = SignalReader(ENCODER).examples(data)
    assert part.values.shape == (*whole.values.shape[:2], 5)
    for values, positive, all_values, all_positive in zip(
        part.values, part.positive, whole.values, whole.positive, strict=True
    ):
        assert int(positive.sum()) == int(all_positive.sum())
        best = torch.where(all_positive, torch.inf, all_values.sum(0)).topk(5).values
        kept = torch.where(positive, torch.inf, values.sum(0)).sort(descending=True).values
        torch.testing.assert_close(kept, best)


def test_a_fusion_without_questions_to_learn_from_is_refused() -> None:
    asked = Question(SpaceId("planted1"), "q", "Who?", "1", (TurnId("not there"),))
    with pytest.raises(TrainingDataError, match="no training space has a question"):
        SignalReader(ENCODER).examples([TrainingSet((asked,), ("planted1",), (), VIEWS)])


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (None, "holds no fusion weights; train again"),
        ({}, "holds no fusion weights"),
        ({"dense": float("nan")}, "expected a finite number for each named signal"),
        ({"nonsense": 1.0}, "expected a finite number for each named signal"),
        ({"dense": "much"}, "expected a finite number for each named signal"),
    ],
)
def test_a_checkpoint_without_the_weights_of_its_fusion_says_so(held: object, message: str) -> None:
    checkpoint = dataclasses.replace(small_checkpoint(), details={DETAIL: held} if held is not None else {})
    with pytest.raises(CheckpointError, match=message):
        fusion_of(checkpoint)


def test_the_fusion_of_a_checkpoint_is_that_of_its_manifest() -> None:
    weights: Mapping[str, float] = {"dense": 0.5, "date": 0.25}
    checkpoint = dataclasses.replace(small_checkpoint(), details={DETAIL: weights})
    assert fusion_of(checkpoint) == WeightedSum(weights)
