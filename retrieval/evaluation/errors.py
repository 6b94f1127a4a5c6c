"""Errors of the evaluation package.

LocigraphError (kg)
└── EvaluationError            the evaluation cannot be carried out as asked
    ├── LeakError              something of a test conversation was open to training
    └── IncompleteRunError     a strategy has no ranking or no time for a question
"""

from __future__ import annotations

from locigraph.kg.errors import LocigraphError


class EvaluationError(LocigraphError):
    """The evaluation cannot be carried out as asked; names the strategy, the question and the value."""


class LeakError(EvaluationError):
    """Something of a test conversation was open to training, so the numbers would be too good."""


class IncompleteRunError(EvaluationError):
    """A strategy has no ranking or no time for a question; an outage is never counted as an empty result."""
