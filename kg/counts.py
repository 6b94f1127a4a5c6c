"""Counts of what was done, which add up."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self


def counted(number: int, noun: str) -> str:
    """A number and what is counted, such as "1 turn" or "2,000 turns"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def is_or_are(number: int) -> str:
    """The verb of so many."""
    return "is" if number == 1 else "are"


@dataclass(frozen=True, slots=True)
class Counts:
    """Base of frozen dataclasses of numbers, or tuples of them: two of a kind add up field by field."""

    def __add__(self, other: Self, /) -> Self:
        return type(self)(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Spent(Counts):
    """What language models cost, and what came of it.

    Attributes:
        calls: Replies, wrong ones among them.
        read: Tokens that the models read.
        written: Tokens that they wrote.
        cost: What these cost, in the currency of the prices.
        invalid: Replies that could not be used.
        repaired: Those of them that the model mended when it was told.
        given_up: Requests that came to nothing, refused ones among them.
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
