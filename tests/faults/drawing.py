"""Settings with which Hypothesis draws inputs: from a seed, without a database, reporting the smallest failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st


def drawn(number: int, count: int, strategy: st.SearchStrategy[Any]) -> Callable[[Callable[[Any], None]], Any]:
    """A decorator that runs a test of one argument on values of a strategy.

    Args:
        number: Random seed.
        count: How many values.
        strategy: Draws them.
    """
    how = settings(
        max_examples=count, database=None, deadline=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    return lambda test: seed(number)(how(given(strategy)(test)))
