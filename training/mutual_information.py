"""Weights of signals, by the information about relevance that each adds to the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BINS = 3  # low, medium, high


def conditional_mutual_information(
    signal: NDArray[np.integer],
    relevant: NDArray[np.bool_],
    given: NDArray[np.integer],
    *,
    share: NDArray[np.floating] | None = None,
) -> float:
    """Conditional mutual information I(signal; relevant | given) over the samples, in nats; at least 0.

    Args:
        signal: Bin of the signal in each sample, >= 0, [samples].
        relevant: Whether each sample is relevant, [samples].
        given: Bin of the conditioning variable, >= 0, [samples].
        share: Probability of each sample, [samples]; None for equal probabilities.

    Raises:
        ValueError: If there are no samples.

    Source:
        Cover and Thomas 2006, Elements of Information Theory, eq. 2.60.
    """
    if not len(signal):
        raise ValueError("mutual information needs at least one sample")
    shape = int(signal.max()) + 1, 2, int(given.max()) + 1
    joint = np.zeros(shape)
    np.add.at(joint, (signal, relevant.astype(np.int64), given), 1.0 / len(signal) if share is None else share)
    expected = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    ratio = np.divide(joint * joint.sum((0, 1), keepdims=True), expected, out=np.ones(shape), where=joint > 0)
    return max(0.0, float((joint * np.log(ratio)).sum()))


def signal_weights(
    signals: NDArray[np.floating], relevant: NDArray[np.bool_], *, temperature: float = 1.0
) -> NDArray[np.float64]:
    """Weights by conditional mutual information with relevance, given all other signals; they sum to 1.

    Each signal is binned into low, medium and high at 1/3 and 2/3. Relevant and irrelevant samples have the same total
    weight, since with few relevant samples all information would be near 0.

    Args:
        signals: Values in [0, 1], [samples, signals].
        relevant: Whether each sample is relevant, [samples].
        temperature: Divides the information, in nats, before the softmax; > 0. The smaller it is, the greater is the
            weight of the most informative signal.

    Raises:
        ValueError: If there are no samples, or ``temperature`` is not positive.

    Source:
        After Zhang et al. 2025, "AssoMem", arXiv:2510.10397, section 3.2.3, which conditions on the type of the
        question and not on the other signals.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    bins = np.clip((np.asarray(signals) * _BINS).astype(np.int64), 0, _BINS - 1)
    share = np.where(relevant, 0.5 / max(relevant.sum(), 1), 0.5 / max((~relevant).sum(), 1))
    share /= share.sum()
    information = np.empty(bins.shape[1])
    for number in range(bins.shape[1]):
        others = np.delete(bins, number, axis=1)
        given = others @ _BINS ** np.arange(others.shape[1])
        information[number] = conditional_mutual_information(bins[:, number], relevant, given, share=share)
    logits = (information - information.max(initial=0.0)) / temperature
    weights: NDArray[np.float64] = np.exp(logits) / np.exp(logits).sum()
    return weights
