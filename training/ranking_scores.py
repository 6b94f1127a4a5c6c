"""Scores of questions against turns, and the validation scores that decide when a training stops."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from locigraph.kg.types import TurnId
from locigraph.retrieval.metrics import evidence_recall, ndcg


def inner_products(queries: Tensor, stored: Tensor) -> Tensor:
    """Scores of questions and turns, [questions, turns]; in float32, since half precision makes close scores equal."""
    with torch.autocast(queries.device.type, enabled=False):
        return queries.float() @ stored.float().T


def answers(turn_ids: Sequence[TurnId], evidence: Sequence[Collection[TurnId]]) -> Tensor:
    """Which turns answer which question, bool [questions, turns]; evidence that is no such turn is ignored."""
    place = {turn_id: i for i, turn_id in enumerate(turn_ids)}
    positive = torch.zeros(len(evidence), len(turn_ids), dtype=torch.bool)
    for row, answering in zip(positive, evidence, strict=True):
        row[[place[turn_id] for turn_id in answering if turn_id in place]] = True
    return positive


class RankingScores:
    """Evidence recall@10 and nDCG@10 of questions, collected over validation spaces."""

    def __init__(self) -> None:
        self._found: list[tuple[float, float]] = []

    def add(self, scores: Tensor, positive: Tensor) -> None:
        """Add the questions about a space: the scores of its turns, and which are right, both [questions, turns]."""
        best = scores.topk(min(10, scores.shape[1]), dim=1).indices.tolist()
        for ranking, right in zip(best, positive, strict=True):
            gold = {str(i) for i in right.nonzero().flatten().tolist()}
            places = [str(i) for i in ranking]
            self._found.append((evidence_recall(places, gold, 10), ndcg(places, gold, 10)))

    def means(self) -> dict[str, float]:
        """Means over questions, by their names in the log, and their sum ``val/score``; empty without questions."""
        if not self._found:
            return {}
        recall, gain = (sum(values) / len(self._found) for values in zip(*self._found, strict=True))
        return {"val/recall@10": recall, "val/ndcg@10": gain, "val/score": recall + gain}
