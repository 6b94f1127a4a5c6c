from __future__ import annotations

import math

import pytest
import torch

from locigraph.training.ranking_scores import RankingScores, inner_products


def test_scores_are_exact_under_half_precision() -> None:
    torch.manual_seed(0)
    queries, stored = torch.randn(3, 64), torch.randn(50, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = queries @ stored.T
        found = inner_products(queries, stored)
    assert found.dtype == torch.float32
    assert torch.equal(found, queries @ stored.T)
    assert not torch.equal(found, rounded.float())


def test_recall_and_gain_are_means_over_questions_and_their_sum_is_the_score() -> None:
    scores = torch.zeros(2, 12)
    scores[0, 3], scores[0, 5] = 2.0, 1.0  # the answer comes second
    scores[1, :10] = 1.0  # one answer is among the first ten, one is not
    scores[1, 0] = 2.0
    positive = torch.zeros(2, 12, dtype=torch.bool)
    positive[0, 5] = positive[1, 0] = positive[1, 11] = True
    gathered = RankingScores()
    for row in range(2):  # as from two spaces
        gathered.add(scores[row : row + 1], positive[row : row + 1])
    means = gathered.means()
    # The first question: 1 / log2(3). The second: 1 of an ideal 1 + 1 / log2(3).
    gain = (1 / math.log2(3) + 1 / (1 + 1 / math.log2(3))) / 2
    assert means["val/recall@10"] == pytest.approx((1.0 + 0.5) / 2)
    assert means["val/ndcg@10"] == pytest.approx(gain)
    assert means["val/score"] == pytest.approx(0.75 + gain)


def test_fewer_turns_than_ten_are_all_looked_at_and_no_question_has_no_score() -> None:
    gathered = RankingScores()
    assert gathered.means() == {}
    gathered.add(torch.tensor([[1.0, 0.0]]), torch.tensor([[False, True]]))
    assert gathered.means()["val/recall@10"] == 1.0
