"""Errors of the consolidation package.

LocigraphError (kg.errors)
├── ConsolidationError      one turn cannot be consolidated; it is marked failed with this reason and can be retried
│   ├── BlueprintError      the architect's plan breaks a rule of the schema or refers to a node it was not shown
│   ├── WordingError        the scribe left out an operation, or wrote too little or too much
│   └── UnusableReplyError  a language model's replies about the turn are unusable, even after one correction
└── LanguageModelError      the endpoint of a language model, or the cassette of its replies, cannot be used
    ├── ReplyFormatError    a language model's reply does not have the required format
    ├── MissingReplyError   a cassette in replay mode holds no reply to a request
    ├── StoppedError        the run was stopped; pending turns stay pending
    └── LimitReachedError   a limit of tokens or cost is reached; finished work is kept (exit code 3)
"""

from locigraph.kg.errors import LocigraphError


class ConsolidationError(LocigraphError):
    """One turn cannot be consolidated."""


class BlueprintError(ConsolidationError):
    """The architect's plan breaks a rule of the schema or refers to a node that it was not shown."""


class WordingError(ConsolidationError):
    """The scribe left out an operation, or wrote too little or too much."""


class UnusableReplyError(ConsolidationError):
    """A language model's replies about a turn are unusable, even after one correction; they are kept."""


class LanguageModelError(LocigraphError):
    """The endpoint of a language model, or the cassette of its replies, cannot be used."""


class ReplyFormatError(LanguageModelError):
    """A language model's reply does not have the required format, even after one correction."""


class MissingReplyError(LanguageModelError):
    """A cassette in replay mode holds no reply to a request."""


class StoppedError(LanguageModelError):
    """The run was stopped, by a user or by an error in another conversation; unfinished turns stay pending."""


class LimitReachedError(LanguageModelError):
    """A limit of tokens or cost is reached; the command continues if it is run again with a higher limit."""

    exit_code = 3
