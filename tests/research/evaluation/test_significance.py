from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from locigraph.research.evaluation.significance import (
    EXACT_CLUSTERS,
    a_a_check,
    cluster_bootstrap,
    cluster_t_interval,
    holm,
    question_level_test,
    sign_flip_test,
    smallest_p,
)

# Multiples of 1/4 make ties between sign patterns common, as recall values do.
DIFFERENCES = st.integers(min_value=-4, max_value=4).map(lambda quarter: quarter / 4)
FEWER = settings(max_examples=40)
CLUSTERED = st.lists(st.tuples(DIFFERENCES, st.sampled_from("abcdef")), min_size=1, max_size=20)
P_VALUES = st.lists(st.floats(min_value=0, max_value=1), max_size=12)


def sign_flip_by_loop(differences: list[float], clusters: list[str]) -> float:
    """Every sign pattern in turn, both mirror images, with exact sums."""
    names = sorted(set(clusters))
    observed = abs(math.fsum(differences))
    reached = 0
    for signs in itertools.product((1, -1), repeat=len(names)):
        sign_of = dict(zip(names, signs, strict=True))
        total = math.fsum(sign_of[name] * value for value, name in zip(differences, clusters, strict=True))
        reached += abs(total) >= observed - 1e-12
    return float(reached / 2 ** len(names))


def clustered_null(
    rng: np.random.Generator, clusters: int, each: int, spread: float
) -> tuple[NDArray[np.float64], list[str]]:
    """Differences without an effect, whose conversations nevertheless differ by ``spread``."""
    per_cluster = np.repeat(rng.normal(0.0, spread, clusters), each)
    names = [f"c{index}" for index in range(clusters) for _ in range(each)]
    return per_cluster + rng.normal(0.0, 0.35, clusters * each), names


def test_sign_flip_matches_hand_worked_patterns() -> None:
    # Cluster sums 3, 2, 1; observed |6|. Of +-3 +-2 +-1 only +++ and --- reach 6: p = 2 / 8.
    assert sign_flip_test([1.0, 2.0, 2.0, 1.0], ["x", "x", "y", "z"]) == 2 / 8
    # Cluster sums 3, 2, -1; observed |4|. Reached by +6, +4 and their mirrors: p = 4 / 8.
    assert sign_flip_test([3.0, 2.0, -1.0], ["x", "y", "z"]) == 4 / 8


def test_questions_of_one_conversation_change_sign_together() -> None:
    same_sign = [1.0] * 8
    assert sign_flip_test(same_sign, ["x"] * 4 + ["y"] * 4) == 1 / 2
    assert question_level_test(same_sign) == 2 / 2**8


def test_no_difference_anywhere_gives_p_of_one() -> None:
    assert sign_flip_test([0.0] * 6, list("aabbcc")) == 1
    assert sign_flip_test([0.0] * 40, [f"c{index}" for index in range(40)], resamples=100) == 1


def test_one_conversation_can_show_nothing() -> None:
    assert sign_flip_test([1.0, 1.0, 1.0], ["x", "x", "x"]) == 1


@FEWER
@given(CLUSTERED)
def test_sign_flip_equals_the_loop_over_all_patterns(pairs: list[tuple[float, str]]) -> None:
    differences, clusters = [value for value, _ in pairs], [name for _, name in pairs]
    assert sign_flip_test(differences, clusters) == pytest.approx(sign_flip_by_loop(differences, clusters))


@FEWER
@given(CLUSTERED, st.randoms())
def test_sign_flip_ignores_the_order_of_questions_and_the_names_of_clusters(
    pairs: list[tuple[float, str]], rng: random.Random
) -> None:
    p = sign_flip_test([value for value, _ in pairs], [name for _, name in pairs])
    names = list("abcdef")
    rng.shuffle(names)
    renamed = dict(zip("abcdef", names, strict=True))
    shuffled = list(pairs)
    rng.shuffle(shuffled)
    assert sign_flip_test([value for value, _ in shuffled], [renamed[name] for _, name in shuffled]) == p


@FEWER
@given(CLUSTERED)
def test_sign_flip_is_two_sided_and_never_below_its_smallest_value(pairs: list[tuple[float, str]]) -> None:
    differences, clusters = [value for value, _ in pairs], [name for _, name in pairs]
    p = sign_flip_test(differences, clusters)
    assert sign_flip_test([-value for value in differences], clusters) == p
    assert smallest_p(len(set(clusters))) <= p <= 1


@pytest.mark.parametrize("questions", [5, 9, EXACT_CLUSTERS])
def test_sign_flip_of_singletons_agrees_with_scipy(questions: int) -> None:
    differences = np.random.default_rng(questions).normal(0.4, 1.0, questions)
    referee = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    clusters = [f"c{index}" for index in range(questions)]
    assert sign_flip_test(differences, clusters) == pytest.approx(referee.pvalue)
    assert question_level_test(differences) == pytest.approx(referee.pvalue)


def test_random_patterns_come_close_to_all_patterns() -> None:
    # The 15th cluster adds nothing, so the exact p is that of the 14, which can be enumerated.
    differences = np.append(np.random.default_rng(3).normal(0.3, 1.0, EXACT_CLUSTERS), 0.0)
    clusters = [f"c{index:02d}" for index in range(EXACT_CLUSTERS + 1)]
    exact = sign_flip_test(differences[:-1], clusters[:-1])
    sampled = sign_flip_test(differences, clusters, resamples=20_000)
    assert sampled != exact
    assert sampled == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))


def test_random_patterns_count_the_observed_one() -> None:
    clusters = [f"c{index}" for index in range(60)]
    assert sign_flip_test([1.0] * 60, clusters, resamples=999) == 1 / 1000


@pytest.mark.parametrize("clusters", [6, 40])
def test_a_p_value_does_not_depend_on_what_else_is_compared(clusters: int) -> None:
    values = np.random.default_rng(0).normal(0.1, 1.0, (80, 3))
    names = [f"c{index % clusters}" for index in range(80)]
    together = sign_flip_test(values, names, resamples=3_000, seed=7)
    alone = [sign_flip_test(values[:, column], names, resamples=3_000, seed=7) for column in range(3)]
    assert list(together) == alone
    alone = [question_level_test(values[:, column], resamples=3_000, seed=7) for column in range(3)]
    assert list(question_level_test(values, resamples=3_000, seed=7)) == alone


def test_sign_flip_keeps_its_rate_where_the_question_level_test_does_not() -> None:
    rng = np.random.default_rng(11)
    trials, by_cluster, by_question = 300, 0, 0
    for _ in range(trials):
        differences, clusters = clustered_null(rng, clusters=8, each=40, spread=0.06)
        by_cluster += bool(sign_flip_test(differences, clusters) <= 0.05)
        by_question += bool(question_level_test(differences, resamples=200) <= 0.05)
    # Attainable with 8 clusters: 6 of 128 patterns, .047; four standard errors of 300 trials are .049.
    assert by_cluster / trials == pytest.approx(0.047, abs=0.049)
    assert by_question / trials > 0.12


def test_bootstrap_of_equal_values_has_no_width() -> None:
    low, high = cluster_bootstrap([0.5] * 6, list("aabbcc"))
    assert (low, high) == pytest.approx((0.5, 0.5))


def test_bootstrap_draws_whole_conversations() -> None:
    # Two clusters with means 0 (1 question) and 1 (3 questions): the resampled mean is 0, 3/4 or 1.
    low, high = cluster_bootstrap([0.0, 1.0, 1.0, 1.0], ["x", "y", "y", "y"], resamples=500)
    assert (low, high) == (0.0, 1.0)


def test_bootstrap_of_singletons_agrees_with_scipy() -> None:
    values = np.random.default_rng(5).normal(0.2, 1.0, 40)
    referee = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(1)
    ).confidence_interval
    low, high = cluster_bootstrap(values, [f"c{index}" for index in range(40)])
    assert (low, high) == pytest.approx((referee.low, referee.high), abs=0.02)


def test_bootstrap_equals_a_loop_over_the_same_draws() -> None:
    values, clusters = [1.0, 0.0, 2.0, 5.0, 3.0, 1.0], list("aabccc")
    of = {name: [v for v, c in zip(values, clusters, strict=True) if c == name] for name in "abc"}
    drawn = np.random.default_rng(9).integers(0, 3, size=(200, 3))
    means = [np.mean([value for index in row for value in of["abc"[index]]]) for row in drawn]
    expected = np.quantile(means, [0.025, 0.975])
    assert cluster_bootstrap(values, clusters, resamples=200, seed=9) == pytest.approx(tuple(expected))


def test_bootstrap_of_one_conversation_is_unknown_not_narrow() -> None:
    low, high = cluster_bootstrap([0.1, 0.9], ["x", "x"])
    assert math.isnan(low)
    assert math.isnan(high)


def test_bootstrapped_columns_equal_each_column_alone() -> None:
    values = np.random.default_rng(2).normal(size=(30, 2))
    clusters = [f"c{index % 5}" for index in range(30)]
    low, high = cluster_bootstrap(values, clusters, resamples=400)
    for column in range(2):
        alone = cluster_bootstrap(values[:, column], clusters, resamples=400)
        assert (low[column], high[column]) == pytest.approx(tuple(alone))


def test_holm_matches_hand_worked_values() -> None:
    # Sorted .01, .02, .03, .2: times 4, 3, 2, 1 -> .04, .06, .06, .2; the third is held up by the second.
    assert holm([0.02, 0.2, 0.01, 0.03]) == pytest.approx([0.06, 0.2, 0.04, 0.06])
    assert holm([]) == []


def test_holm_raises_a_later_value_to_the_one_before() -> None:
    # Sorted .010, .011, .5: times 3, 2, 1 -> .030, .022, .5; .022 is raised to .030.
    assert holm([0.011, 0.01, 0.5]) == pytest.approx([0.03, 0.03, 0.5])


@given(P_VALUES)
def test_holm_equals_a_naive_loop(p_values: list[float]) -> None:
    expected = [0.0] * len(p_values)
    running = 0.0
    for step, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        running = max(running, min(1.0, (len(p_values) - step) * p_values[index]))
        expected[index] = running
    assert holm(p_values) == pytest.approx(expected)


@given(P_VALUES)
def test_holm_keeps_the_order_and_never_lowers_a_value(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(p <= a <= 1 for p, a in zip(p_values, adjusted, strict=True))
    for (p, a), (q, b) in itertools.combinations(zip(p_values, adjusted, strict=True), 2):
        assert (a <= b) if p <= q else (a >= b)


def test_holm_refuses_what_is_no_probability() -> None:
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        holm([0.5, float("nan")])


@pytest.mark.parametrize(
    ("clusters", "comparisons", "expected"),
    [(3, 1, 0.25), (5, 1, 0.0625), (10, 1, 1 / 512), (10, 25, 25 / 512), (1, 1, 1.0), (2, 9, 1.0)],
)
def test_the_smallest_p_halves_with_every_conversation(clusters: int, comparisons: int, expected: float) -> None:
    assert smallest_p(clusters, comparisons) == expected
    if comparisons == 1:
        assert sign_flip_test([1.0] * clusters, [f"c{index}" for index in range(clusters)]) == expected


@pytest.mark.parametrize("clusters", [8, 40])
def test_the_a_a_check_rejects_at_its_nominal_rate(clusters: int) -> None:
    differences, names = clustered_null(np.random.default_rng(4), clusters, each=10, spread=0.1)
    # A real effect must not disturb the check: it is centred away.
    check = a_a_check(differences + 0.3, names, resamples=4_000)
    assert check.is_near_nominal
    assert not check.is_anti_conservative
    assert check.low <= 0.05 <= check.high
    assert check.rate == pytest.approx(0.05, abs=0.02)
    assert check.clusters == clusters


def test_the_a_a_check_says_when_no_rejection_is_possible() -> None:
    check = a_a_check(np.random.default_rng(0).normal(size=20), [f"c{index % 5}" for index in range(20)])
    assert (check.rate, check.attainable, check.low) == (0.0, 0.0, 0.0)
    assert check.is_near_nominal


def test_a_test_that_rejects_too_often_fails_the_a_a_check() -> None:
    sound = a_a_check(np.random.default_rng(0).normal(size=30), [f"c{index % 10}" for index in range(30)])
    assert sound.high < 0.09
    too_often = type(sound)(
        rate=0.09,
        attainable=sound.attainable,
        clusters=sound.clusters,
        low=sound.low,
        high=sound.high,
    )
    assert too_often.is_anti_conservative
    assert not too_often.is_near_nominal


def test_undefined_input_is_refused() -> None:
    with pytest.raises(ValueError, match="no questions"):
        sign_flip_test([], [])
    with pytest.raises(ValueError, match="2 differences but 1 clusters"):
        sign_flip_test([1.0, 2.0], ["x"])
    with pytest.raises(ValueError, match="question 1 is not finite"):
        cluster_bootstrap([1.0, float("nan")], ["x", "y"])
    with pytest.raises(ValueError, match=r"shape \[1, 1, 1\]"):
        sign_flip_test([[[1.0]]], ["x"])
    with pytest.raises(ValueError, match="resamples is 0"):
        sign_flip_test([1.0], ["x"], resamples=0)
    with pytest.raises(ValueError, match="clusters is 0"):
        smallest_p(0)


@settings(max_examples=20)
@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_the_same_seed_gives_the_same_numbers(seed: int) -> None:
    values, clusters = np.linspace(-1, 2, 30), [f"c{index}" for index in range(30)]
    first = sign_flip_test(values, clusters, resamples=50, seed=seed)
    assert sign_flip_test(values, clusters, resamples=50, seed=seed) == first
    interval = cluster_bootstrap(values, clusters, resamples=50, seed=seed).tolist()
    assert cluster_bootstrap(values, clusters, resamples=50, seed=seed).tolist() == interval


def test_the_t_interval_of_clusters_of_one_is_that_of_the_textbook() -> None:
    values = np.random.default_rng(0).normal(size=12)
    expected = stats.t.interval(0.95, 11, loc=values.mean(), scale=stats.sem(values))
    assert cluster_t_interval(values, [f"c{i}" for i in range(12)]) == pytest.approx(np.array(expected))


def test_the_t_interval_covers_the_mean_where_the_bootstrap_is_too_narrow() -> None:
    rng = np.random.default_rng(1)
    names = [f"c{i // 8}" for i in range(40)]
    covered = np.zeros(2)
    for trial in range(300):
        values = np.repeat(rng.normal(size=5), 8) + rng.normal(size=40)
        for i, ends in enumerate(
            (cluster_t_interval(values, names), cluster_bootstrap(values, names, resamples=300, seed=trial))
        ):
            covered[i] += ends[0] <= 0 <= ends[1]
    assert 0.90 <= covered[0] / 300 <= 0.98
    assert covered[1] < covered[0]


def test_one_cluster_has_no_t_interval() -> None:
    assert np.isnan(cluster_t_interval([0.1, 0.2], ["a", "a"])).all()
