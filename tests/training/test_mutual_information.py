from __future__ import annotations

import math

import numpy as np
import pytest

from locigraph.training.mutual_information import conditional_mutual_information, signal_weights

NOTHING = np.zeros(4, dtype=np.int64)
YES_NO = np.array([True, True, False, False])


def test_a_signal_that_says_it_all_is_worth_the_entropy_of_relevance() -> None:
    signal = np.array([2, 2, 0, 0])
    assert conditional_mutual_information(signal, YES_NO, NOTHING) == pytest.approx(math.log(2))


def test_a_signal_that_is_known_already_is_worth_nothing() -> None:
    signal = np.array([2, 2, 0, 0])
    assert conditional_mutual_information(signal, YES_NO, signal) == pytest.approx(0)


def test_independent_signals_are_worth_nothing() -> None:
    assert conditional_mutual_information(np.array([0, 2, 0, 2]), YES_NO, NOTHING) == pytest.approx(0)


def test_a_signal_can_be_worth_something_only_together_with_another() -> None:
    # Relevant if exactly one of the two is high: each alone says nothing, given the other it says all.
    first, second = np.array([0, 2, 0, 2]), np.array([0, 0, 2, 2])
    relevant = np.array([False, True, True, False])
    assert conditional_mutual_information(first, relevant, NOTHING) == pytest.approx(0)
    assert conditional_mutual_information(first, relevant, second) == pytest.approx(math.log(2))


def test_hand_worked_information() -> None:
    # p(s, y): (0,0) 1/2, (0,1) 1/4, (1,1) 1/4. I = 1/2 ln(.5/(.75*.5)) + 1/4 ln(.25/(.75*.5)) + 1/4 ln(.25/(.25*.5))
    signal, relevant = np.array([0, 0, 0, 1]), np.array([False, False, True, True])
    expected = 0.5 * math.log(4 / 3) + 0.25 * math.log(2 / 3) + 0.25 * math.log(2)
    assert conditional_mutual_information(signal, relevant, NOTHING) == pytest.approx(expected)


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
