"""Dataclasses of counts that can be added up, and helpers to print counts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self


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


@dataclass(frozen=True, slots=True)
class Spent(Counts):
    """Usage of language models: calls, tokens, cost and unusable replies.

    Attributes:
        calls: Number of replies, including unusable ones.
        read: Input tokens.
        written: Output tokens.
        cost: Cost of these tokens, in the currency of the prices.
        invalid: Number of replies that could not be used.
        repaired: Number of invalid replies that the model corrected when it was told the error.
        given_up: Number of requests that gave no usable result, including refused ones.
    """

    calls: int = 0
    read: int = 0
    written: int = 0
    cost: float = 0.0
    invalid: int = 0
    repaired: int = 0
    given_up: int = 0

    @property
    def tokens(self) -> int:
        """Tokens read and written."""
        return self.read + self.written

    def __str__(self) -> str:
        cost = f", cost {self.cost:.4f}" if self.cost else ""
        faults = (("invalid", self.invalid), ("repaired", self.repaired), ("given up", self.given_up))
        wrong = "".join(f", {number:,} {name}" for name, number in faults if number)
        told = f"{counted(self.calls, 'call')}, {counted(self.read, 'token')} read, {self.written:,} written"
        return f"{told}{cost}{wrong}"
