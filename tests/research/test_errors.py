from __future__ import annotations

from locigraph.kg.errors import LocigraphError
from locigraph.research.errors import EvaluationError, IncompleteRunError


def test_every_error_can_be_caught_as_an_evaluation_error_and_as_ours() -> None:
    assert issubclass(IncompleteRunError, EvaluationError)
    assert issubclass(EvaluationError, LocigraphError)
