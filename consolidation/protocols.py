"""What the pipeline asks of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from locigraph.consolidation.blueprint import Blueprint, ContextNode, Wording
from locigraph.kg.types import Node, SpaceId, Turn


@dataclass(frozen=True, slots=True)
class Context:
    """What an architect sees beside the turn: nodes found for it, and the turns just before it in its session."""

    nodes: tuple[ContextNode, ...]
    recent: tuple[Turn, ...]


class Architect(Protocol):
    """Decides what a turn changes in the graph."""

    def plan(self, turn: Turn, context: Context, *, complaint: str | None = None) -> Blueprint:
        """The plan; ``complaint`` says what was wrong with the first attempt, None at the first.

        Raises:
            ConsolidationError: If this turn cannot be planned.
        """
        ...


class Scribe(Protocol):
    """Finds the words."""

    def write(
        self, turn: Turn, plan: Blueprint, context: Context, *, complaint: str | None = None
    ) -> Mapping[str, Wording]:
        """Words by ``AddNode.ref`` or ``UpdateNode.id``."""
        ...


class Extractor(Architect, Scribe, Protocol):
    """An architect and a scribe that work together.

    ``name`` is remembered with every space, since two extractors must not build one graph.
    """

    name: str

    def expected_texts(self, turns: Sequence[Turn]) -> Sequence[str]:
        """Texts it will probably need embedded, so that they can be encoded in one batch; may be empty."""
        ...


class ContextSource(Protocol):
    """The active retriever as the pipeline sees it."""

    def find(self, turn: Turn, *, limit: int) -> Sequence[ContextNode]:
        """Event and knowledge nodes that the turn may change."""
        ...

    def observe(self, space: SpaceId, nodes: Sequence[Node], vectors: NDArray[np.float32]) -> None:
        """New and reworded nodes, which later turns must find as they are now, and archived ones, which they must not.

        ``vectors`` is float32 [nodes, dim]; an archived node's row means nothing.
        """
        ...


class TextEncoder(Protocol):
    """Text to vectors."""

    @property
    def model_id(self) -> str:
        """Names the maker of the vectors."""
        ...

    def encode(self, texts: Sequence[str], *, progress: str | None = None) -> NDArray[np.float32]:
        """float32 [texts, dim], rows of length 1."""
        ...
