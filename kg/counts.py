"""Counts of what was done, which add up."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self


@dataclass(frozen=True, slots=True)
class Counts:
    """Base of frozen dataclasses of numbers, or tuples of them: two of a kind add up field by field."""

    def __add__(self, other: Self, /) -> Self:
        return type(self)(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))
