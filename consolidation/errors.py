"""Errors of the consolidation package.

LocigraphError (kg.errors)
├── ConsolidationError    one turn cannot be consolidated; it is marked failed with this reason and can be retried
│   ├── BlueprintError    the architect's plan breaks a rule of the schema or names what it was not shown
│   └── WordingError      the scribe left out an operation, or wrote too little or too much
└── QuestionWriterError   the endpoint that writes questions fails, or writes something else
"""

from locigraph.kg.errors import LocigraphError


class ConsolidationError(LocigraphError):
    """One turn cannot be consolidated."""


class BlueprintError(ConsolidationError):
    """The architect's plan breaks a rule of the schema or names what it was not shown."""


class WordingError(ConsolidationError):
    """The scribe left out an operation, or wrote too little or too much."""


class QuestionWriterError(LocigraphError):
    """The endpoint that writes questions fails, or writes something else."""
