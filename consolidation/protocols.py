"""Interfaces of the extractors and retrievers that the pipeline uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from locigraph.consolidation.blueprint import Blueprint, ContextNode, Wording
from locigraph.consolidation.ledger import Ledger
from locigraph.kg.counts import Spent
from locigraph.kg.schema import RelationLabel
from locigraph.kg.types import Node, NodeId, SpaceId, Turn


@dataclass(frozen=True, slots=True)
class Context:
    """What an architect sees in addition to the turn.

    Attributes:
        nodes: Nodes that retrieval found for the turn, best first.
        recent: The turns just before it in its session, oldest first.
        latest: Nodes that those turns created or repeated and that are not in ``nodes``; pronouns may refer to them.
        labels: Relation labels that earlier turns of the space have coined.
        later: Nodes that retrieval found for a late turn and that later turns created or repeated, in the order of
            these. A plan may say that one of them has replaced what the turn states. Those that are in ``nodes``, too,
            were said before and after the turn: rules neither end them nor let them end anything.
    """

    nodes: tuple[ContextNode, ...]
    recent: tuple[Turn, ...]
    latest: tuple[ContextNode, ...] = ()
    labels: tuple[RelationLabel, ...] = ()
    later: tuple[ContextNode, ...] = ()

    @property
    def shown(self) -> tuple[ContextNode, ...]:
        """All nodes to which a plan may refer."""
        return self.nodes + self.latest


class Extractor(Protocol):
    """An architect, which decides what a turn changes in the graph, and a scribe, which writes the texts for it.

    The pipeline checks both results; a turn whose plan or texts break a rule fails. ``name`` is stored with every
    space, since a graph must not be built by two different extractors.
    """

    name: str

    def plan(self, turn: Turn, context: Context) -> Blueprint:
        """The architect's step: plan a turn; raises ConsolidationError if this turn cannot be planned."""
        ...

    def write(self, turn: Turn, plan: Blueprint, context: Context) -> Mapping[str, Wording]:
        """The scribe's step: write the label and description of each node, by ``AddNode.ref`` or ``UpdateNode.id``."""
        ...

    def expected_texts(self, turns: Sequence[Turn]) -> Sequence[str]:
        """Texts that will probably need embedding, so that they can be encoded in one batch; may be empty."""
        ...


@runtime_checkable
class MeteredExtractor(Protocol):
    """An extractor that calls language models: it waits for replies, counts its usage, and can estimate it beforehand.

    Attributes:
        ledger: Counts the usage; stopping it stops the extractor.
        concurrency: Largest number of conversations that it may process at the same time.
    """

    ledger: Ledger
    concurrency: int

    @property
    def version(self) -> str:
        """Identifies the models and prompts, so that their results can be attributed."""
        ...

    def estimate(self, turns: Sequence[Turn]) -> Spent:
        """Estimate the usage for consolidating these turns of one conversation; no model is called."""
        ...


class Found(NamedTuple):
    """Ids of the nodes of plannable types that retrieval found for a turn, best first.

    Attributes:
        known: Those that were known when the turn was said.
        later: Those that became known later, such as those of later turns if this is a late or a retried one.
    """

    known: Sequence[NodeId]
    later: Sequence[NodeId] = ()


class ContextSource(Protocol):
    """The part of a retriever that the pipeline needs: it finds existing nodes for a turn."""

    def find(self, turn: Turn, *, limit: int) -> Found:
        """The nodes nearest to the turn, at most ``limit`` that were known when it was said."""
        ...

    def observe(self, space: SpaceId, nodes: Sequence[Node], vectors: NDArray[np.float32]) -> None:
        """Take in new, reworded and archived nodes, so that later turns find the current ones and no archived ones.

        ``vectors`` is float32 [nodes, dim]; the rows of archived nodes are to be ignored.
        """
        ...

    def drop(self, space: SpaceId) -> None:
        """Discard what was observed of a space, since the store may have changed meanwhile."""
        ...
