"""Paired comparisons of two strategies, clustered by conversation.

Questions about one conversation share its speakers, topics and graph, so their differences are not
independent. The unit that is resampled is therefore the conversation. A test that treats questions as
independent rejects a true null too often (``question_level_test``).

How small a p-value can be depends on the number of conversations, not of questions: with n conversations there are
2^(n - 1) different outcomes of a two-sided sign-flip test, so p >= 2^(1 - n): .25 with 3, .0625 with 5, .002
with 10. ``smallest_p`` also takes Holm's correction into account.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

#: Level at which the A/A check counts a data set as rejected.
NOMINAL = 0.05
#: Up to this many clusters every sign pattern is visited: 2^13 = 8,192 of them, since one sign is fixed.
EXACT_CLUSTERS = 14
#: Sums taken in another order differ in the last bits; values this close count as tied.
TIE_TOLERANCE = 1e-12
#: Number of data sets that the A/A check makes.
TRIALS = 2_000
#: Share of the resampled means on each side of a 95% interval; in the last bit not .025, as in all results of record.
_TAIL = (1.0 - 0.95) / 2.0
#: Values held at once while resampling (float64, so 32 MB).
_CHUNK_VALUES = 4_000_000
#: Sign patterns drawn in one block at most. Independent of the number of comparisons, so that a comparison's
#: p does not depend on which others it is computed with.
_BLOCK_ROWS = 2_048


def sign_flip_test(
    differences: ArrayLike, clusters: Sequence[str], *, resamples: int = 20_000, seed: int = 0
) -> FloatArray:
    """Two-sided sign-flip randomisation test over clusters.

    Under the null hypothesis the two strategies are exchangeable within a conversation, so all differences of
    a conversation may change sign together. The statistic is the mean over questions; p is the share of sign
    patterns whose absolute statistic reaches the observed one. Exact up to ``EXACT_CLUSTERS`` clusters, else
    Monte Carlo, with the observed pattern added to the random ones so that p is never 0.

    Args:
        differences: Score of one strategy minus score of the other, [questions] or [questions, comparisons]. All
            comparisons share the sign patterns, so a p-value does not depend on what else is compared.
        clusters: Conversation of each question, [questions].
        resamples: Number of random sign patterns where there are too many to visit all.
        seed: Random seed of these patterns.

    Returns:
        p-value of each comparison, [] or [comparisons]; in (0, 1] and at least 2^(1 - clusters), so 1 with one cluster.

    Raises:
        ValueError: If there are no differences, the lengths differ, a difference is not finite, or ``resamples`` < 1.

    Source:
        Fisher 1935; Phipson and Smyth 2010 for the correction by one.
    """
    values = _checked(differences, clusters, resamples)
    sums, sizes = _cluster_sums(values, clusters)
    p_values = _sign_flip_p_values(sums, int(sizes.sum()), resamples=resamples, seed=seed)
    return p_values.reshape(values.shape[1:])


def question_level_test(differences: ArrayLike, *, resamples: int = 20_000, seed: int = 0) -> FloatArray:
    """Sign-flip test that treats every question as independent: **anti-conservative**, for comparison only.

    Differences within one conversation are correlated, which this test ignores, so it rejects a true null more often
    than its level says (9 to 31% at a nominal 5% in our simulations). Published tables mostly rest on tests of this
    kind; it is shown beside ``sign_flip_test`` so that a reader can see the gap, never to claim a difference.
    Arguments, result and errors are those of ``sign_flip_test``.
    """
    # Zero-padded, because clusters are sorted by name.
    singletons = [f"{index:09d}" for index in range(len(np.asarray(differences)))]
    return sign_flip_test(differences, singletons, resamples=resamples, seed=seed)


def cluster_bootstrap(
    values: ArrayLike, clusters: Sequence[str], *, resamples: int = 10_000, seed: int = 0
) -> FloatArray:
    """95% percentile interval of the mean over questions, from resampled clusters.

    Clusters are drawn with replacement, each with all of its questions; a resample's mean is the ratio of
    summed values to summed questions. Percentile intervals from few clusters are too narrow (a 95% one
    covered the true mean in 85, 90 and 92% of 600 simulations with 5, 10 and 20 conversations), so claims
    rest on ``sign_flip_test``; the interval shows the size of an effect.

    Args:
        values: Scores of a strategy or differences between two, [questions] or [questions, columns]. All columns
            share the resampled clusters.
        clusters: Conversation of each question, [questions].
        resamples: Number of resamples.
        seed: Random seed of the resampling.

    Returns:
        Lower and upper end, [2] or [2, columns]; NaN with one cluster, where the spread cannot be estimated.

    Raises:
        ValueError: As in ``sign_flip_test``.

    Source:
        Davison and Hinkley 1997, section 3.8 (resampling of whole groups).
    """
    checked = _checked(values, clusters, resamples)
    sums, sizes = _cluster_sums(checked, clusters)
    count, columns = sums.shape
    shape = (2, *checked.shape[1:])
    if count == 1:
        return np.full(shape, np.nan)
    rng = np.random.default_rng(seed)
    means = np.empty((resamples, columns))
    step = max(1, _CHUNK_VALUES // count)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = rng.integers(0, count, size=(rows, count))
        # How often each cluster is in each resample, counted by giving every row its own range of bins.
        bins = (drawn + np.arange(rows)[:, None] * count).ravel()
        weights = np.bincount(bins, minlength=rows * count).reshape(rows, count).astype(np.float64)
        means[start : start + rows] = (weights @ sums) / (weights @ sizes)[:, None]
    ends: FloatArray = np.quantile(means, [_TAIL, 1.0 - _TAIL], axis=0)
    return ends.reshape(shape)


def cluster_t_interval(values: ArrayLike, clusters: Sequence[str]) -> FloatArray:
    """95% interval of the mean over questions from Student's t with one degree of freedom fewer than clusters.

    With few clusters it is wider than the percentile bootstrap interval, and its coverage is nearer to 95%.

    Args:
        values: As in ``cluster_bootstrap``.
        clusters: Conversation of each question, [questions].

    Returns:
        Lower and upper end, [2] or [2, columns]; NaN with one cluster.

    Raises:
        ValueError: As in ``cluster_bootstrap``.

    Source:
        Cochran 1977, Sampling Techniques, section 6.4: the linearised variance of a ratio of cluster sums.
    """
    checked = _checked(values, clusters, 1)
    sums, sizes = _cluster_sums(checked, clusters)
    count, questions = len(sizes), sizes.sum()
    means = sums.sum(axis=0) / questions
    shape = (2, *checked.shape[1:])
    if count == 1:
        return np.full(shape, np.nan)
    residuals = sums - sizes[:, None] * means
    errors = np.sqrt(count / (count - 1) * np.square(residuals).sum(axis=0)) / questions
    from scipy.special import stdtrit  # imported late, as in a_a_check

    reach = stdtrit(count - 1, 0.975) * errors
    ends: FloatArray = np.stack([means - reach, means + reach])
    return ends.reshape(shape)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment, which keeps the chance of any false claim among all comparisons below the level.

    The smallest p is multiplied by the number of comparisons m, the next by m - 1, and so on; an adjusted
    value is never below the one before it and never above 1.

    Returns:
        Adjusted values in the order of the input; empty for an empty input.

    Raises:
        ValueError: If a p-value is not in [0, 1].

    Source:
        Holm 1979, Scandinavian Journal of Statistics 6.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not np.all((p >= 0.0) & (p <= 1.0)):
        raise ValueError(f"p-values must lie in [0, 1]; got {list(p_values)}")
    order = np.argsort(p, kind="stable")
    stepped = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return [float(value) for value in adjusted]


def smallest_p(clusters: int, comparisons: int = 1) -> float:
    """The smallest p-value that a sign-flip test can give, after Holm's correction for several comparisons.

    If it exceeds .05, no result, however clear, can be called significant. With 10 conversations that happens
    from 26 comparisons on.

    Args:
        clusters: Number of conversations, at least 1.
        comparisons: Number of comparisons that Holm's correction covers, at least 1.

    Raises:
        ValueError: If either is below 1.
    """
    if clusters < 1 or comparisons < 1:
        raise ValueError(f"clusters is {clusters} and comparisons is {comparisons}; both must be at least 1")
    return min(1.0, comparisons * 2.0 ** (1 - clusters))


@dataclass(frozen=True, slots=True)
class AACheck:
    """How often the sign-flip test rejects when there is no difference to find.

    Attributes:
        rate: Share of the ``TRIALS`` data sets with p <= ``NOMINAL``.
        attainable: Largest share <= ``NOMINAL`` that the test can reach with this many clusters. p-values are
            multiples of 2^(1 - clusters), so with 5 clusters it is 0: the test is sound but can find nothing.
        clusters: Number of conversations.
        low: Lower end of the range into which a sound test's rate falls in 999 of 1,000 checks; from the binomial
            distribution at ``attainable``.
        high: Upper end of that range; from the binomial distribution at ``NOMINAL``.
    """

    rate: float
    attainable: float
    clusters: int
    low: float
    high: float

    @property
    def is_anti_conservative(self) -> bool:
        """Whether the test rejects true nulls too often, so that its claims must not be believed."""
        return self.rate > self.high

    @property
    def can_reject(self) -> bool:
        """Whether there are enough conversations for the test to find anything."""
        return self.attainable > 0

    @property
    def is_near_nominal(self) -> bool:
        """Whether the rate lies in the expected range; tied patterns can push the rate of a sound test below it."""
        return self.low <= self.rate <= self.high


def a_a_check(
    differences: ArrayLike,
    clusters: Sequence[str],
    *,
    resamples: int = 20_000,
    seed: int = 0,
) -> AACheck:
    """Rejection rate of ``sign_flip_test`` under a null made from the real data.

    The observed differences are centred, which removes the effect and keeps the spread within and between
    conversations; then each of ``TRIALS`` data sets gives every conversation a random sign. In such data neither
    strategy is better, so each rejection is a false one. Each data set is tested as ``sign_flip_test`` would test it.

    Args:
        differences: Score of one strategy minus score of the other, [questions].
        clusters: Conversation of each question, [questions].
        resamples: As in ``sign_flip_test``; all data sets share the random patterns.
        seed: Random seed of the data sets and of the patterns.

    Raises:
        ValueError: As in ``sign_flip_test``.
    """
    checked = _checked(differences, clusters, resamples)
    sums, sizes = _cluster_sums(checked - checked.mean(), clusters)
    count, questions = len(sizes), int(sizes.sum())
    # A different random stream from that of the test's own patterns, which also start from ``seed``.
    rng = np.random.default_rng([seed, 1])
    null_sums = sums * (rng.integers(0, 2, size=(count, TRIALS)) * 2.0 - 1.0)
    p_values = _sign_flip_p_values(null_sums, questions, resamples=resamples, seed=seed)
    outcomes = 2 ** (count - 1) if count <= EXACT_CLUSTERS else resamples + 1
    attainable = math.floor(NOMINAL * outcomes + TIE_TOLERANCE) / outcomes
    # Imported late: scipy.stats takes half a second, and only this function needs it.
    from scipy import stats

    return AACheck(
        rate=float(np.mean(p_values <= NOMINAL + TIE_TOLERANCE)),
        attainable=attainable,
        clusters=count,
        low=float(stats.binom.ppf(0.0005, TRIALS, attainable)) / TRIALS if attainable > 0.0 else 0.0,
        high=float(stats.binom.ppf(0.9995, TRIALS, NOMINAL)) / TRIALS,
    )


def _checked(values: ArrayLike, clusters: Sequence[str], resamples: int) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim not in (1, 2):
        raise ValueError(f"values have shape {list(array.shape)}; expected [questions] or [questions, columns]")
    if len(array) == 0:
        raise ValueError("there are no questions to compare")
    if len(array) != len(clusters):
        raise ValueError(
            f"{len(array)} differences but {len(clusters)} clusters; expected one cluster for each difference"
        )
    if not np.all(np.isfinite(array)):
        row = int(np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))[0])
        raise ValueError(f"the difference of question {row} is not finite; scores must be numbers")
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; expected at least 1")
    return array


def _cluster_sums(values: FloatArray, clusters: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    """Sums [clusters, columns] and numbers of questions [clusters]; values [questions] make one column.

    The order is that of the cluster names, so that results do not depend on the order of the questions.
    """
    _, rows, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    sums = np.zeros((len(sizes), int(np.prod(values.shape[1:]))))
    np.add.at(sums, rows, values.reshape(len(values), -1))
    return sums, sizes.astype(np.float64)


def _sign_flip_p_values(sums: FloatArray, questions: int, *, resamples: int, seed: int) -> FloatArray:
    """p-value of each column of the cluster sums [clusters, tests]; see ``sign_flip_test``."""
    count, tests = sums.shape
    is_exact = count <= EXACT_CLUSTERS
    rows = max(1, min(_BLOCK_ROWS, _CHUNK_VALUES // count))
    patterns = _all_signs(count, rows) if is_exact else _random_signs(count, resamples, rows, seed)
    reach = np.abs(sums.sum(axis=0)) / questions - TIE_TOLERANCE
    as_extreme = np.zeros(tests)
    for signs in patterns:
        as_extreme += (np.abs(signs @ sums) / questions >= reach).sum(axis=0)
    # The exact patterns include the observed one; random ones need it added.
    p_values: FloatArray = as_extreme / 2 ** (count - 1) if is_exact else (as_extreme + 1) / (resamples + 1)
    return p_values


def _all_signs(count: int, rows: int) -> Iterator[FloatArray]:
    """Every sign pattern with the last sign at +, in blocks [rows, count]; the other patterns mirror these."""
    for start in range(0, 2 ** (count - 1), rows):
        codes = np.arange(start, min(start + rows, 2 ** (count - 1)))
        bits = (codes[:, None] >> np.arange(count)) & 1  # the highest bit is always 0: its sign stays +
        yield (1 - 2 * bits).astype(np.float64)


def _random_signs(count: int, resamples: int, rows: int, seed: int) -> Iterator[FloatArray]:
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, rows):
        bits = rng.integers(0, 2, size=(min(rows, resamples - start), count), dtype=np.int8)
        yield (bits * 2 - 1).astype(np.float64)
