"""Errors of the consolidation package.

LocigraphError (kg.errors)
├── ConsolidationError      one turn cannot be consolidated; it is marked failed with this reason and can be retried
│   ├── BlueprintError      the architect's plan breaks a rule of the schema or names what it was not shown
│   ├── WordingError        the scribe left out an operation, or wrote too little or too much
│   └── UnusableReplyError  a language model's replies about the turn are of no use, after a repair; they are kept
├── NameModelError          the model that finds names is not installed, or is another one
└── LanguageModelError      the endpoint of a language model, or the cassette of its replies, cannot be used
    ├── ReplyFormatError    a language model's reply is not of the form that was asked for
    ├── MissingReplyError   a cassette that is only replayed holds no reply to a request
    ├── StoppedError        the run was stopped while other conversations were consolidated
    └── LimitReachedError   a limit of tokens or cost is reached; what is done is kept (exit code 3)
"""

from locigraph.kg.errors import LocigraphError


class ConsolidationError(LocigraphError):
    """One turn cannot be consolidated."""


class BlueprintError(ConsolidationError):
    """The architect's plan breaks a rule of the schema or names what it was not shown."""


class WordingError(ConsolidationError):
    """The scribe left out an operation, or wrote too little or too much."""


class UnusableReplyError(ConsolidationError):
    """A language model's replies about a turn are unusable, even after one correction; they are kept."""


class NameModelError(LocigraphError):
    """The model that finds names is not installed, or is another one than expected."""


class LanguageModelError(LocigraphError):
    """The endpoint of a language model, or the cassette of its replies, cannot be used."""


class ReplyFormatError(LanguageModelError):
    """A language model's reply does not have the required format, even after one correction."""


class MissingReplyError(LanguageModelError):
    """A cassette that is only replayed holds no reply to a request."""


class StoppedError(LanguageModelError):
    """The run was stopped, by a user or by an error of another conversation; what is under way is pending still."""


class LimitReachedError(LanguageModelError):
    """A limit of tokens or cost is reached; the command goes on when it is run again with a higher one."""

    exit_code = 3
