"""Learns AssoMem's weights, at a temperature chosen by validation questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from locigraph.kg.types import Question
from locigraph.retrieval.evaluation.metrics import evidence_recall
from locigraph.retrieval.hits import turns_of_hits
from locigraph.retrieval.strategies.assomem import AssoMemRetriever, Weights, typed_signals, weights_of_types

#: The temperatures that validation chooses from; the paper does not state the one it uses.
TEMPERATURES = (1.0, 0.1, 0.01)
_TOP_K = 10

WeightsOfQuestion = Callable[[str], Weights]


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


def _recall(retriever: AssoMemRetriever, questions: Sequence[Question]) -> float:
    recalls = []
    for question in questions:
        hits = retriever.retrieve(question.text, question.space, as_of=question.asked_at, top_k=_TOP_K).hits
        recalls.append(evidence_recall(turns_of_hits(hits, top_k=_TOP_K), frozenset(question.evidence), _TOP_K))
    return float(np.mean(recalls))
