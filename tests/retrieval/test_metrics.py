from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.retrieval.metrics import (
    METRICS,
    all_evidence_recall,
    evidence_recall,
    hit,
    ndcg,
    recall_curve,
    reciprocal_rank,
    score_ranking,
)

TURNS = st.sampled_from([f"t{index}" for index in range(30)])
RANKINGS = st.lists(TURNS, unique=True)
GOLD = st.frozensets(TURNS, min_size=1, max_size=6)
DEPTHS = st.integers(min_value=1, max_value=40)
# Gold turns at ranks 2 and 4; the third was not returned.
RANKING = ["a", "g1", "b", "g2", "c"]
THREE_GOLD = {"g1", "g2", "g3"}


def test_evidence_recall_is_the_share_of_gold_found() -> None:
    assert evidence_recall(RANKING, THREE_GOLD, 1) == 0
    assert evidence_recall(RANKING, THREE_GOLD, 2) == pytest.approx(1 / 3)
    assert evidence_recall(RANKING, THREE_GOLD, 5) == pytest.approx(2 / 3)


def test_all_evidence_recall_is_all_or_nothing() -> None:
    assert all_evidence_recall(RANKING, {"g1", "g2"}, 3) == 0
    assert all_evidence_recall(RANKING, {"g1", "g2"}, 4) == 1
    assert all_evidence_recall(RANKING, THREE_GOLD, 5) == 0


def test_hit_asks_for_one_gold_turn() -> None:
    assert hit(RANKING, THREE_GOLD, 1) == 0
    assert hit(RANKING, THREE_GOLD, 2) == 1


def test_ndcg_matches_hand_worked_gains() -> None:
    gain = 1 / math.log2(3) + 1 / math.log2(5)  # ranks 2 and 4
    ideal = 1 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)  # ranks 1, 2, 3
    assert ndcg(RANKING, THREE_GOLD, 10) == pytest.approx(gain / ideal)
    # Only two places, so the ideal holds two gold turns: (1 / log2 3) / (1 + 1 / log2 3)
    assert ndcg(RANKING, THREE_GOLD, 2) == pytest.approx((1 / math.log2(3)) / (1 + 1 / math.log2(3)))


def test_reciprocal_rank_is_that_of_the_first_gold_turn() -> None:
    assert reciprocal_rank(RANKING, THREE_GOLD) == 1 / 2
    assert reciprocal_rank(RANKING, {"absent"}) == 0


def test_score_ranking_gives_every_metric_at_its_depth() -> None:
    ranking = [f"t{rank}" for rank in range(1, 31)]
    scores = score_ranking(ranking, {"t5", "t10", "t11", "t21"})
    assert list(scores) == list(METRICS)
    assert scores["recall@5"] == 1 / 4
    assert scores["recall@10"] == 2 / 4
    assert scores["recall@20"] == 3 / 4
    assert scores["mrr"] == 1 / 5
    assert scores["hit@10"] == 1
    assert scores["all_recall@10"] == 0


def test_an_empty_ranking_scores_zero_everywhere() -> None:
    assert set(score_ranking([], {"g"}).values()) == {0.0}


@given(RANKINGS, GOLD, DEPTHS, DEPTHS)
def test_recall_never_falls_with_depth(ranking: list[str], gold: frozenset[str], one: int, other: int) -> None:
    shallow, deep = sorted((one, other))
    assert evidence_recall(ranking, gold, shallow) <= evidence_recall(ranking, gold, deep)


@given(RANKINGS, GOLD, DEPTHS)
def test_all_scores_lie_between_zero_and_one_and_agree(ranking: list[str], gold: frozenset[str], top_k: int) -> None:
    recall = evidence_recall(ranking, gold, top_k)
    assert recall == len(gold & set(ranking[:top_k])) / len(gold)
    assert all_evidence_recall(ranking, gold, top_k) <= recall <= hit(ranking, gold, top_k)
    assert 0 <= ndcg(ranking, gold, top_k) <= 1
    assert 0 <= reciprocal_rank(ranking, gold) <= 1


@given(GOLD, RANKINGS, DEPTHS)
def test_gold_first_is_a_perfect_ranking(gold: frozenset[str], rest: list[str], top_k: int) -> None:
    ranking = [*sorted(gold), *(turn for turn in rest if turn not in gold)]
    assert ndcg(ranking, gold, top_k) == 1
    assert reciprocal_rank(ranking, gold) == 1


@given(RANKINGS, GOLD, st.lists(DEPTHS, max_size=5))
def test_the_curve_equals_recall_at_each_depth(ranking: list[str], gold: frozenset[str], top_ks: list[int]) -> None:
    assert recall_curve(ranking, gold, top_ks) == [evidence_recall(ranking, gold, k) for k in top_ks]


@pytest.mark.parametrize("metric", [evidence_recall, all_evidence_recall, hit, ndcg])
def test_undefined_input_is_refused(metric: Callable[[list[str], set[str], int], float]) -> None:
    with pytest.raises(ValueError, match="gold is empty"):
        metric(["a"], set(), 10)
    with pytest.raises(ValueError, match="turn 'a' twice, again at rank 3"):
        metric(["a", "b", "a"], {"a"}, 10)
    with pytest.raises(ValueError, match="top_k is 0"):
        metric(["a"], {"a"}, 0)


def test_a_string_is_not_scored_letter_by_letter() -> None:
    with pytest.raises(ValueError, match="is the string 'abc'"):
        evidence_recall("abc", {"a"}, 10)
