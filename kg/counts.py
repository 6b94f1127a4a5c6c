"""Dataclasses of counts that can be added up, and helpers to print counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any, Self


def counted(number: int, noun: str) -> str:
    """A number with its noun in the singular or plural, such as "1 turn" or "2,000 turns"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def is_or_are(number: int) -> str:
    """The form of "to be" that agrees with a number."""
    return "is" if number == 1 else "are"


@dataclass(frozen=True, slots=True)
class Counts:
    """Base of frozen dataclasses whose fields are numbers or tuples; ``+`` adds two instances field by field."""

    def __add__(self, other: Self, /) -> Self:
        return type(self)(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


#: Names of the counts of ``Spent`` in databases and result files, in the order of its fields.
STORED_NAMES = ("calls", "read", "written", "cost", "invalid", "repaired", "given_up")


@dataclass(frozen=True, slots=True)
class Spent(Counts):
    """Usage of language models: calls, tokens, cost and unusable replies.

    Attributes:
        calls: Number of replies, including unusable ones.
        input_tokens: Number of tokens in the requests.
        output_tokens: Number of tokens in the replies.
        cost: Cost of these tokens, in the currency of the prices.
        invalid: Number of replies that could not be used.
        repaired: Number of invalid replies that the model corrected when it was told the error.
        failed_requests: Number of requests that gave no usable result, including refused ones.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    invalid: int = 0
    repaired: int = 0
    failed_requests: int = 0

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    def stored(self) -> dict[str, int | float]:
        """The counts under the names that they have in databases and result files."""
        return dict(zip(STORED_NAMES, astuple(self), strict=True))

    @classmethod
    def of_stored(cls, counts: Mapping[Any, Any]) -> Self:
        """The counts that ``stored`` gave; those that are missing are 0."""
        return cls(*(counts.get(name, 0) for name in STORED_NAMES))

    def __str__(self) -> str:
        cost = f", cost {self.cost:.4f}" if self.cost else ""
        faults = (("invalid", self.invalid), ("repaired", self.repaired), ("given up", self.failed_requests))
        wrong = "".join(f", {number:,} {name}" for name, number in faults if number)
        read = counted(self.input_tokens, "token")
        return f"{counted(self.calls, 'call')}, {read} read, {self.output_tokens:,} written{cost}{wrong}"
