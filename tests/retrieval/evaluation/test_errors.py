from __future__ import annotations

import pytest

from locigraph.kg.errors import LocigraphError
from locigraph.retrieval.evaluation.errors import EvaluationError, IncompleteRunError, LeakError


@pytest.mark.parametrize("error", [LeakError, IncompleteRunError])
def test_every_error_can_be_caught_as_an_evaluation_error_and_as_ours(error: type[Exception]) -> None:
    assert issubclass(error, EvaluationError)
    assert issubclass(EvaluationError, LocigraphError)
