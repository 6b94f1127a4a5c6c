"""Errors of the retrieval package.

LocigraphError (kg.errors)
└── RetrievalError
    ├── TextEncoderError       the text encoder cannot be loaded, or its weights are not those expected
    ├── IndexUnavailableError  the vector index cannot be reached or failed; never an empty result
    │   └── IndexInUseError    an embedded index is open already, usually in another process
    ├── IndexMismatchError     a collection and its user disagree on dimension, metric, model or schema
    ├── FilterError            a search without a space, or a filter value that cannot be expressed
    └── NotKeptError           spaces are not in memory, where alone a caller wanted to search; users never see it
"""

from locigraph.kg.errors import LocigraphError


class RetrievalError(LocigraphError):
    """Base of this package's errors."""


class TextEncoderError(RetrievalError):
    """The text encoder cannot be loaded, or its weights are not those expected."""


class IndexUnavailableError(RetrievalError):
    """The vector index cannot be reached or has failed; this is never reported as an empty result."""


class IndexInUseError(IndexUnavailableError):
    """An embedded index is open already, in another process or in this one; only one at a time can use it."""


class IndexMismatchError(RetrievalError):
    """A collection has another dimension, metric, model or schema than is expected."""


class FilterError(RetrievalError):
    """A search without a space, or a filter value that cannot be expressed."""


class NotKeptError(RetrievalError):
    """Spaces are not kept in memory any longer, and the caller does not want to ask the index; no user sees it."""
