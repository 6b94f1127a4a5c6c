"""Interfaces of what training needs from other packages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

#: A text encoder: maps texts to embeddings, float32 [texts, dim], rows of length 1.
Embed = Callable[[Sequence[str]], NDArray[np.float32]]


class QuestionWriter(Protocol):
    """Turns statements into questions that they answer."""

    @property
    def name(self) -> str:
        """Identifies the writer and everything that affects what it writes; part of a training's identity."""
        ...

    def write(self, statements: Sequence[str]) -> list[list[str]]:
        """The questions that each statement answers; an empty list for a statement about which none can be asked."""
        ...
