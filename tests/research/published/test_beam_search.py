from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from locigraph.research.published.beam_search import beam_search

SIZE = 6
TIES = np.arange(SIZE)


def along(*pairs: tuple[int, int]) -> Callable[[int], NDArray[np.integer]]:
    return lambda node: np.array([b for a, b in pairs if a == node], dtype=np.int64)


def search(**changes: Any) -> dict[int, float]:
    options: dict[str, Any] = {
        "neighbours": {"near": along((0, 1), (0, 2), (1, 3)), "cause": along((0, 2))},
        "step_scores": {"near": np.full(SIZE, math.exp(0.5)), "cause": np.full(SIZE, math.exp(1.0))},
        "anchors": [0],
        "decay": 0.9,
        "width": 10,
        "depth": 5,
        "budget": 200,
        "ties": TIES,
    }
    return beam_search(**{**options, **changes})


def test_scores_match_hand_worked_steps() -> None:
    found = search()
    # 2 is reached by both links, of which the cause counts; 3 is two hops away.
    one = 0.9 + math.exp(0.5)
    assert found == pytest.approx({0: 1.0, 2: 0.9 + math.exp(1.0), 1: one, 3: 0.9 * one + math.exp(0.5)})
    assert list(found) == [0, 2, 1, 3]  # the anchor, the first hop with the best first, the second hop


def test_width_depth_and_budget_bound_the_search() -> None:
    assert list(search(width=1)) == [0, 2]
    assert list(search(depth=1)) == [0, 2, 1]
    assert list(search(budget=2)) == [0, 2]
    assert list(search(anchors=[4, 0, 1], budget=2)) == [4, 0]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20), st.integers(1, 6), st.integers(1, 4),
    st.integers(0, 3),
)  # fmt: skip
def test_never_more_nodes_than_the_budget(pairs: list[tuple[int, int]], budget: int, width: int, depth: int) -> None:
    found = search(neighbours={"near": along(*pairs)}, budget=budget, width=width, depth=depth)
    assert len(found) <= min(budget, 1 + width * depth)
