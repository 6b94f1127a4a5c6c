"""Errors of the consolidation package.

LocigraphError (kg.errors)
├── ConsolidationError    one turn cannot be consolidated; it is marked failed with this reason and can be retried
│   ├── BlueprintError    the architect's plan breaks a rule of the schema or names what it was not shown
│   └── WordingError      the scribe left out an operation, or wrote too little or too much
└── LanguageModelError    the endpoint of a language model, or the cassette of its replies, cannot be used
    └── ReplyFormatError  a language model's reply is not of the form that was asked for
"""

from locigraph.kg.errors import LocigraphError


class ConsolidationError(LocigraphError):
    """One turn cannot be consolidated."""


class BlueprintError(ConsolidationError):
    """The architect's plan breaks a rule of the schema or names what it was not shown."""


class WordingError(ConsolidationError):
    """The scribe left out an operation, or wrote too little or too much."""


class LanguageModelError(LocigraphError):
    """The endpoint of a language model, or the cassette of its replies, cannot be used."""


class ReplyFormatError(LanguageModelError):
    """A language model's reply is not of the form that was asked for, although it was told once what was wrong."""
