from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.retrieval.rank_fusion import reciprocal_rank_fusion

RANKINGS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8), max_size=5)


def test_rrf_matches_hand_worked_scores() -> None:
    fused: list[tuple[str, object]] = [*reciprocal_rank_fusion([["a", "b"], ["b", "c"]], rrf_k=60)]
    expected: list[tuple[str, object]] = [
        ("b", pytest.approx(1 / 62 + 1 / 61)),
        ("a", pytest.approx(1 / 61)),
        ("c", pytest.approx(1 / 62)),
    ]
    assert fused == expected


def test_a_ranking_of_twice_the_weight_counts_as_if_it_were_given_twice() -> None:
    weighted = reciprocal_rank_fusion([["a", "b"], ["b", "c"]], rrf_k=2, weights=[1.0, 2.0])
    assert [name for name, _ in weighted] == ["b", "c", "a"]  # b 1/4 + 2/3, c 2/4, a 1/3
    assert dict(weighted) == pytest.approx(dict(reciprocal_rank_fusion([["a", "b"], ["b", "c"], ["b", "c"]], rrf_k=2)))
    with pytest.raises(ValueError, match="zip"):
        reciprocal_rank_fusion([["a"], ["b"]], weights=[1.0])


@given(RANKINGS, st.randoms(use_true_random=False))
def test_rrf_ignores_the_order_of_its_arms(rankings: list[list[str]], rng: random.Random) -> None:
    shuffled = rng.sample(rankings, len(rankings))
    assert dict(reciprocal_rank_fusion(shuffled)) == pytest.approx(dict(reciprocal_rank_fusion(rankings)))


@given(RANKINGS)
def test_rrf_equals_a_slow_loop(rankings: list[list[str]]) -> None:
    def score(item: str) -> float:
        return sum(1 / (60 + ranking.index(item) + 1) for ranking in rankings if item in ranking)

    fused = reciprocal_rank_fusion(rankings)
    assert dict(fused) == pytest.approx({item: score(item) for ranking in rankings for item in ranking})
    assert [item for item, _ in fused] == [item for item, _ in sorted(fused, key=lambda pair: (-pair[1], pair[0]))]


@given(st.lists(st.sampled_from("abcdefgh"), unique=True))
def test_rrf_of_one_ranking_keeps_its_order(ranking: list[str]) -> None:
    assert [item for item, _ in reciprocal_rank_fusion([ranking])] == ranking


def test_ties_are_broken_by_id() -> None:
    assert [item for item, _ in reciprocal_rank_fusion([["b"], ["a"]])] == ["a", "b"]


@pytest.mark.parametrize(
    ("rankings", "rrf_k", "message"), [([["a", "a"]], 60, "repeats an id"), ([["a"]], 0, "rrf_k must be positive")]
)
def test_malformed_input_is_refused(rankings: Sequence[Sequence[str]], rrf_k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reciprocal_rank_fusion(rankings, rrf_k=rrf_k)
