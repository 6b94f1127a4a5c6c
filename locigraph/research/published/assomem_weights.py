"""Learns AssoMem's weights of signals: by the information about relevance that each adds to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.types import Question, TurnId
from locigraph.research.published.assomem import FIXED_WEIGHTS, AssoMemRetriever, Weights
from locigraph.retrieval.hits import turns_of_hits
from locigraph.retrieval.metrics import evidence_recall
from locigraph.retrieval.strategies.memory_graph import MemoryGraph

#: The temperatures that validation chooses from; the paper does not state the one it uses.
TEMPERATURES = (1.0, 0.1, 0.01)
_TOP_K = 10
_BINS = 3  # low, medium, high

#: The type of a question, and the weights of the signals for it, given its text.
TypeOfQuestion = Callable[[str], str]
WeightsOfQuestion = Callable[[str], Weights]
#: One question: its type, the signals of its candidates [candidates, 3], and which of these are relevant [candidates].
Sample = tuple[str, NDArray[np.float64], NDArray[np.bool_]]


def learn_signal_weights(
    make: Callable[[WeightsOfQuestion], AssoMemRetriever],
    train: Sequence[Question],
    validation: Sequence[Question],
    type_of: TypeOfQuestion,
) -> WeightsOfQuestion:
    """Learn weights per question type from training questions, at the temperature with the best validation recall@10.

    Args:
        make: Makes the strategy with the given weights.
        train: Questions to learn from.
        validation: Questions that choose the temperature; if empty, the middle one is used.
    """
    tried: list[WeightsOfQuestion] = [lambda text: (1.0, 0.0, 0.0)]

    def weights_of(text: str) -> Weights:
        return tried[-1](text)

    retriever = make(weights_of)  # one for all weights, since it caches the graphs that it builds
    samples = typed_signals(retriever, train, type_of)
    learnt = [weights_of_types(samples, type_of, temperature=temperature) for temperature in TEMPERATURES]
    if not validation:
        return learnt[len(learnt) // 2]
    recalls = []
    for weights in learnt:
        tried.append(weights)
        found = [retriever.retrieve(q.text, q.space, as_of=q.asked_at, top_k=_TOP_K).hits for q in validation]
        turns = [turns_of_hits(hits, top_k=_TOP_K) for hits in found]
        scores = [evidence_recall(ids, {*q.evidence}, _TOP_K) for ids, q in zip(turns, validation, strict=True)]
        recalls.append(np.mean(scores))
    return learnt[int(np.argmax(recalls))]


def typed_signals(retriever: AssoMemRetriever, questions: Sequence[Question], type_of: TypeOfQuestion) -> list[Sample]:
    """Samples for ``weights_of_types``; questions that were asked before the first turn of their space give none.

    Args:
        retriever: Computes the candidates and signals; its own weights do not matter.
        questions: Questions to learn from, about training conversations only.
    """
    samples = []
    for question, vector in zip(questions, retriever.encoder.encode([q.text for q in questions]), strict=True):
        graph = retriever.graph_of(question.space, question.asked_at)
        if not len(graph.memories):
            continue
        rows, signals = retriever.signals(graph, retriever.asked(graph, question.text, vector, question.asked_at))
        samples.append((type_of(question.text), signals, are_relevant(graph, rows, question.evidence)))
    return samples


def weights_of_types(
    samples: Iterable[Sample], type_of: TypeOfQuestion, *, temperature: float = TEMPERATURES[1]
) -> WeightsOfQuestion:
    """Weights of the signals by type of question (see ``signal_weights``); the fixed ones for a type without samples.

    Source:
        Zhang et al. 2025, arXiv:2510.10397, section 3.2.3; for deviations see ``AssoMemRetriever``.
    """
    by_type: dict[str, list[tuple[NDArray[np.float64], NDArray[np.bool_]]]] = {}
    for kind, signals, relevant in samples:
        by_type.setdefault(kind, []).append((signals, relevant))
    learnt: dict[str, Weights] = {}
    for kind, parts in by_type.items():
        signals, relevant = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        first, second, third = signal_weights(signals, relevant, temperature=temperature).tolist()
        learnt[kind] = first, second, third
    return lambda text: learnt.get(type_of(text), FIXED_WEIGHTS)


def are_relevant(graph: MemoryGraph, rows: NDArray[np.int64], evidence: Iterable[TurnId]) -> NDArray[np.bool_]:
    """Which memories come from a turn of the evidence."""
    wanted = set(evidence)
    turns = graph.snapshot.turns_of
    return np.array([not wanted.isdisjoint(turns[row]) for row in rows.tolist()], dtype=bool)


def conditional_mutual_information(
    signal: NDArray[np.integer],
    relevant: NDArray[np.bool_],
    given: NDArray[np.integer],
    share: NDArray[np.floating],
) -> float:
    """Conditional mutual information I(signal; relevant | given) over the samples, in nats; at least 0.

    Args:
        signal: Bin of the signal in each sample, >= 0, [samples].
        relevant: Whether each sample is relevant, [samples].
        given: Bin of the conditioning variable, >= 0, [samples].
        share: Probability of each sample, [samples].

    Raises:
        ValueError: If there are no samples.

    Source:
        Cover and Thomas 2006, Elements of Information Theory, eq. 2.60.
    """
    if not len(signal):
        raise ValueError("mutual information needs at least one sample")
    shape = int(signal.max()) + 1, 2, int(given.max()) + 1
    joint = np.zeros(shape)
    np.add.at(joint, (signal, relevant.astype(np.int64), given), share)
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
        information[number] = conditional_mutual_information(bins[:, number], relevant, given, share)
    logits = (information - information.max(initial=0.0)) / temperature
    weights: NDArray[np.float64] = np.exp(logits) / np.exp(logits).sum()
    return weights
