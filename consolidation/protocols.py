"""Protocols of the extractors, retrievers and text encoders that the pipeline uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from locigraph.consolidation.blueprint import Blueprint, ContextNode, Wording
from locigraph.consolidation.ledger import Ledger
from locigraph.kg.counts import Spent
from locigraph.kg.schema import RelationLabel
from locigraph.kg.types import Node, NodeId, SpaceId, Turn


@dataclass(frozen=True, slots=True)
class Context:
    """What an architect sees beside the turn.

    Attributes:
        nodes: Nodes found for the turn, best first.
        recent: The turns just before it in its session.
        latest: Nodes that those turns made or said again and that were not found: what "it" and "there" may mean.
        labels: Relation labels that earlier turns of the space have coined.
    """

    nodes: tuple[ContextNode, ...]
    recent: tuple[Turn, ...]
    latest: tuple[ContextNode, ...] = ()
    labels: tuple[RelationLabel, ...] = ()

    @property
    def shown(self) -> tuple[ContextNode, ...]:
        """All nodes that a plan may name."""
        return self.nodes + self.latest


class Extractor(Protocol):
    """An architect, which decides what a turn changes in the graph, and a scribe, which finds the words for it.

    Both are checked, and a turn whose plan or words break a rule fails. ``name`` is remembered with every space, since
    two extractors must not build one graph.
    """

    name: str

    def plan(self, turn: Turn, context: Context) -> Blueprint:
        """The architect's plan; raises ConsolidationError if this turn cannot be planned."""
        ...

    def write(self, turn: Turn, plan: Blueprint, context: Context) -> Mapping[str, Wording]:
        """The scribe's words by ``AddNode.ref`` or ``UpdateNode.id``."""
        ...

    def expected_texts(self, turns: Sequence[Turn]) -> Sequence[str]:
        """Texts that will probably need embedding, so that they can be encoded in one batch; may be empty."""
        ...


@runtime_checkable
class MeteredExtractor(Protocol):
    """An extractor that asks others: it waits for them, counts what it spends, and can say before what it will.

    Attributes:
        ledger: What was spent; stopping it stops the extractor.
        concurrency: Largest number of conversations that it may work on at a time.
    """

    ledger: Ledger
    concurrency: int

    @property
    def version(self) -> str:
        """Models and prompts, by which what they have made is known."""
        ...

    def estimate(self, turns: Sequence[Turn]) -> Spent:
        """About what the consolidation of these turns, of one conversation, would cost; nothing is spent."""
        ...


class ContextSource(Protocol):
    """The active retriever as the pipeline sees it."""

    def find(self, turn: Turn, *, limit: int) -> Sequence[NodeId]:
        """Ids of the nodes of plannable types that the turn may change, best first."""
        ...

    def observe(self, space: SpaceId, nodes: Sequence[Node], vectors: NDArray[np.float32]) -> None:
        """New and reworded nodes, which later turns must find as they are now, and archived ones, which they must not.

        ``vectors`` is float32 [nodes, dim]; an archived node's row means nothing.
        """
        ...

    def drop(self, space: SpaceId) -> None:
        """Let go of what was observed of a space: the store may hold it otherwise by now."""
        ...


class TextEncoder(Protocol):
    """Text to vectors."""

    @property
    def model_id(self) -> str:
        """Name of what makes the vectors."""
        ...

    def encode(self, texts: Sequence[str], *, progress: str | None = None) -> NDArray[np.float32]:
        """float32 [texts, dim], rows of length 1."""
        ...
