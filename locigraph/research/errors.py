"""Errors of the research package.

LocigraphError (kg.errors)
└── EvaluationError            the evaluation cannot be carried out as asked
    └── IncompleteRunError     a strategy has no ranking or no timing for a question
"""

from __future__ import annotations

from locigraph.kg.errors import LocigraphError


class EvaluationError(LocigraphError):
    """The evaluation cannot be carried out as asked; names the strategy, the question and the value."""


class IncompleteRunError(EvaluationError):
    """A strategy has no ranking or no timing for a question; an outage is never counted as an empty result."""
