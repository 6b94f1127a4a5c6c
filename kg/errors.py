"""Errors of the graph package.

LocigraphError                 every error that a user can cause or fix; commands print it and exit with code 2
├── CorpusFormatError          a corpus file does not have the format that was expected
│   └── CorpusFileError        a corpus file that cannot be read at all
├── StoreError                 the store cannot do what was asked
│   ├── LateTurnError          a turn comes before consolidated ones, which its writer does not want to undo
│   ├── UnknownSpaceError      no such space
│   ├── UnknownScopeError      no space belongs to this user or agent
│   ├── UnknownNodeError       no node of the space has this id
│   ├── UnknownTurnError       no turn of the space has this id
│   ├── UnknownTypeError       a node type or relation label is not in the schema
│   ├── TurnConflictError      a turn with the same id but different content is already stored
│   ├── OutdatedChangeError    the space has changed since what a change is based on was read
│   ├── StoreVersionError      the database was written by another version
│   ├── MissingStoreError      the database holds no store yet
│   └── StoreUnavailableError  the server of the database cannot be reached, or refuses
└── InvalidVectorError         NaN, infinite or wrong dimension
"""

from __future__ import annotations

import difflib
import os
import textwrap
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TypeVar

_Result = TypeVar("_Result")


class LocigraphError(Exception):
    """Base of all errors of Locigraph; the message says what to do, and commands exit with ``exit_code``."""

    exit_code = 2
    #: What others than the operator may read, such as clients of a server, if that is not the whole message.
    public: str | None = None


class CorpusFormatError(LocigraphError):
    """A corpus file is malformed; names the file, the conversation, the field and the value."""

    field = ""  # stays empty if the file cannot be read at all

    def __init__(self, path: object, conversation: str | None, field: str, value: object, expected: str) -> None:
        where = f"{path}: conversation {shortened(conversation)}" if conversation is not None else f"{path}"
        super().__init__(f"{where}: field '{field[:200]}' is {shortened(value)}; expected {expected}")
        self.field = field


class CorpusFileError(CorpusFormatError):
    """A corpus file cannot be read; names the file, the reason and what to do."""

    def __init__(self, path: object, reason: str, cure: str) -> None:
        LocigraphError.__init__(self, f"{path}: {reason}; {cure}")


class StoreError(LocigraphError):
    """The store refuses an operation."""


class LateTurnError(StoreError):
    """A turn comes before turns that are consolidated, and its writer does not want them to be pending again."""


class UnknownSpaceError(StoreError):
    """There is no such space in the store."""

    def __init__(self, space: str, known: Iterable[str]) -> None:
        super().__init__(f"space {shortened(space)} is not in the store{nearest(space, known)}")
        self.space = space


class UnknownScopeError(StoreError):
    """No space belongs to such a user or agent."""

    def __init__(self, scope: str, known: Iterable[str], space: str | None = None) -> None:
        shown = scope if len(scope) <= 80 else scope[:77] + "..."
        refused = "no space belongs" if space is None else f"space {space!r} does not belong"
        super().__init__(f"{refused} to {shown}{nearest(scope, known)}")


class UnknownNodeError(StoreError):
    """The space holds no node with this ID."""


class UnknownTurnError(StoreError):
    """The space holds no turn with this ID, perhaps since it was forgotten."""


class UnknownTypeError(StoreError):
    """A node type or relation label is not in the schema."""


class TurnConflictError(StoreError):
    """A turn was added again with the same ID but different content; turns never change."""


class OutdatedChangeError(StoreError):
    """The space has changed since the state on which a change is based was read."""


class StoreVersionError(StoreError):
    """The database was written by another version of this software."""


class MissingStoreError(StoreError):
    """The database exists, but no command has created a store in it yet."""


class StoreUnavailableError(StoreError):
    """The server of the database cannot be reached, or refuses; nothing is known to be wrong with the store."""


class InvalidVectorError(LocigraphError):
    """A vector holds NaN or infinity, or has the wrong dimension."""


def outcome(work: Callable[[], _Result]) -> _Result | Exception:
    """What a function returns, or the exception that it raises; for work that others must not suffer from."""
    try:
        return work()
    except StopIteration:  # cannot be set as the exception of a future
        return RuntimeError("it ended with StopIteration")
    except Exception as error:
        return error
    except BaseException as error:  # such as a panic of a library; the thread and the waiting callers must go on
        return RuntimeError(f"it ended with {type(error).__name__}")


def shortened(value: object, most: int = 80) -> str:
    """The repr of a value, cut to at most so many characters, for use in an error message."""
    shown = repr(value)
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def abridged(message: object, most: int = 200) -> str:
    """The message of another library's error on one line, cut between two words to at most so many characters.

    Only a message whose first word is longer than that is cut within a word.
    """
    line = " ".join(str(message).split())
    end = " ..."
    shown = textwrap.shorten(line, most, placeholder=end, break_long_words=False, break_on_hyphens=False)
    return line[: most - len(end)] + end.strip() if shown == end.strip() and shown != line else shown


def same_beginning(one: str, other: str) -> int:
    """Number of characters before the first difference of two texts."""
    return len(os.path.commonprefix([one, other]))  # noqa: RUF071  (compares characters, as it should)


def how_to_install(extra: str) -> str:
    """Advice to install packages that only some users need; ``extra`` names them in ``pyproject.toml``."""
    return f"run pip install -c constraints.txt -e '.[{extra}]' in the checkout of Locigraph"


def require_extra(extra: str, packages: Iterable[str], purpose: str) -> None:
    """Check that packages are installed which only some users need.

    Args:
        extra: Their name in ``pyproject.toml``.
        packages: The packages, as they are imported.
        purpose: What needs them.

    Raises:
        LocigraphError: Names those that are missing.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise LocigraphError(
            f"{purpose} needs the extra {extra!r} ({', '.join(missing)} not installed); {how_to_install(extra)}"
        )


_MOST_COMPARED = 1_000


def nearest(value: str, known: Iterable[str]) -> str:
    """A hint for an error message: the known name closest to ``value``, else up to five known names."""
    options = sorted(known)
    # Of many, those alone that begin alike: comparing with all would take seconds.
    compared = options if len(options) <= _MOST_COMPARED else [each for each in options if each[:2] == value[:2]]
    close = difflib.get_close_matches(value, compared[:_MOST_COMPARED], n=1)
    if close:
        return f"; nearest is {close[0]!r}"
    if not options:
        return "; there are none yet"
    shown = ", ".join(repr(o) for o in options[:5])
    return f"; known: {shown}" + (", ..." if len(options) > 5 else "")
