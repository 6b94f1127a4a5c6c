"""Interfaces of what training needs from other packages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class QuestionWriter(Protocol):
    """Turns statements into questions that they answer."""

    @property
    def name(self) -> str:
        """Identifies the writer and everything that affects what it writes; part of a training's identity."""
        ...

    def write(self, statements: Sequence[str]) -> list[list[str]]:
        """The questions that each statement answers; an empty list for a statement about which none can be asked."""
        ...
