from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from locigraph.kg.types import TurnId
from locigraph.research.experiments.quality import Quality, Statement, quality

MAY, JUNE = (date(2024, 5, 1), date(2024, 5, 31)), (date(2024, 6, 1), date(2024, 6, 1))


def said(turn: str, days: tuple[date, date] | None = None) -> Statement:
    return Statement("words", (TurnId(turn),), days)


def at(*cosines: float) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Vectors in the plane with these cosines to (1, 0)."""
    return np.array([[c, (1 - c * c) ** 0.5] for c in cosines], dtype=np.float32).reshape(-1, 2)


def test_a_recorded_statement_is_covered_by_a_similar_one_of_a_common_turn_only() -> None:
    made, recorded = [said("t1"), said("t2")], [said("t1"), said("t2"), said("t3")]
    found = quality(made, at(0.6, 1.0), recorded, at(1.0, 1.0, 1.0), threshold=0.7)
    assert (found.recorded, found.covered, found.made) == (3, 1, 2)
    assert quality(made, at(0.8, 1.0), recorded, at(1.0, 1.0, 1.0), threshold=0.7).covered == 2


def test_days_are_right_if_the_nearest_statement_has_the_same() -> None:
    made = [said("t1", MAY), said("t1", JUNE)]
    recorded = [said("t1", JUNE), said("t1", MAY), said("t1")]
    found = quality(made, at(0.9, 1.0), recorded, at(1.0, 1.0, 1.0), threshold=0.7)
    assert (found.covered, found.dated, found.right) == (3, 2, 1)


def test_a_statement_that_an_earlier_one_says_is_repeated() -> None:
    made = [said("t1"), said("t2"), said("t3")]
    assert quality(made, at(1.0, 0.5, 0.99), [], at(), threshold=0.7) == Quality(made=3, repeated=1)


def test_counts_of_conversations_are_added_and_a_share_of_nothing_is_none() -> None:
    total = Quality(4, 2, 10, 1, 0, 0) + Quality(4, 4, 0, 0, 0, 0)
    assert total.shares() == {"covered": pytest.approx(0.75), "repeated": pytest.approx(0.1), "dates_right": None}
    assert quality([], at(), [said("t1")], at(1.0), threshold=0.7) == Quality(recorded=1)


def test_a_statement_exactly_as_similar_as_the_threshold_is_covered() -> None:
    half, axis = np.full((1, 4), 0.5, dtype=np.float32), np.eye(1, 4, dtype=np.float32)
    assert quality([said("t1")], half, [said("t1")], axis, threshold=0.5).covered == 1
