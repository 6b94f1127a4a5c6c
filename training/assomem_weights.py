"""Learns AssoMem's weights, at a temperature chosen by validation questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.types import Question, TurnId
from locigraph.retrieval.evaluation.metrics import evidence_recall
from locigraph.retrieval.hits import turns_of_hits
from locigraph.retrieval.strategies.assomem import FIXED_WEIGHTS, AssoMemRetriever, Weights
from locigraph.retrieval.strategies.memory_graph import MemoryGraph
from locigraph.training.mutual_information import signal_weights

#: The temperatures that validation chooses from; the paper does not state the one it uses.
TEMPERATURES = (1.0, 0.1, 0.01)
_TOP_K = 10

WeightsOfQuestion = Callable[[str], Weights]
#: One question: its type, the signals of its candidates [candidates, 3], and which of these are relevant [candidates].
Sample = tuple[str, NDArray[np.float64], NDArray[np.bool_]]


def learn_signal_weights(
    make: Callable[[WeightsOfQuestion], AssoMemRetriever],
    train: Sequence[Question],
    validation: Sequence[Question],
    type_of: Callable[[str], str],
) -> WeightsOfQuestion:
    """Learn weights per question type from training questions, at the temperature with the best validation recall@10.

    Args:
        make: Makes the strategy with the given weights.
        train: Questions to learn from.
        validation: Questions that choose the temperature; if empty, the middle one is used.
        type_of: Returns the type of a question, given its text.
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
        recalls.append(_recall(retriever, validation))
    return learnt[int(np.argmax(recalls))]


def typed_signals(
    retriever: AssoMemRetriever, questions: Sequence[Question], type_of: Callable[[str], str]
) -> list[Sample]:
    """Samples for ``weights_of_types``; questions that were asked before the first turn of their space give none.

    Args:
        retriever: Computes the candidates and signals; its own weights do not matter.
        questions: Questions to learn from, about training conversations only.
        type_of: Returns the type of a question, given its text.
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
    samples: Iterable[Sample], type_of: Callable[[str], str], *, temperature: float = TEMPERATURES[1]
) -> WeightsOfQuestion:
    """Weights of the signals by type of question; the fixed ones for a type without samples.

    Args:
        samples: See ``typed_signals``.
        type_of: Returns the type of a question, given its text.
        temperature: See ``signal_weights``.

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


def _recall(retriever: AssoMemRetriever, questions: Sequence[Question]) -> float:
    recalls = []
    for question in questions:
        hits = retriever.retrieve(question.text, question.space, as_of=question.asked_at, top_k=_TOP_K).hits
        recalls.append(evidence_recall(turns_of_hits(hits, top_k=_TOP_K), frozenset(question.evidence), _TOP_K))
    return float(np.mean(recalls))
