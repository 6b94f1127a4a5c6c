"""Counts of what was done, which add up."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self


def counted(number: int, noun: str) -> str:
    """A number and what is counted, such as "1 turn" or "2,000 turns"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


@dataclass(frozen=True, slots=True)
class Counts:
    """Base of frozen dataclasses of numbers, or tuples of them: two of a kind add up field by field."""

    def __add__(self, other: Self, /) -> Self:
        return type(self)(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Spent(Counts):
    """Calls of language models, tokens that they read and wrote, and what these cost."""

    calls: int = 0
    read: int = 0
    written: int = 0
    cost: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens read and written."""
        return self.read + self.written

    def __str__(self) -> str:
        cost = f", cost {self.cost:.4f}" if self.cost else ""
        return f"{counted(self.calls, 'call')}, {counted(self.read, 'token')} read, {self.written:,} written{cost}"
