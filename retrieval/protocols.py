"""What the strategies exchange, and what they ask of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.types import NodeId, SpaceId, TurnId

#: Turns a strategy returns when the caller does not say.
DEFAULT_TOP_K = 20


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved node.

    Attributes:
        node_id, type, description: The node.
        turn_ids: Its source turns, in conversation order: what a hit stands for when turns are counted.
        score: What the ranking is sorted by; comparable within one result only.
        signals: Score per signal, such as ``{"bm25": 7.1, "ann": .61}``; a signal that did not find the node is absent.
    """

    node_id: NodeId
    type: str
    description: str
    turn_ids: tuple[TurnId, ...]
    score: float
    signals: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds spent on encoding the query, and on all the rest."""

    encode_ms: float
    search_ms: float


@dataclass(frozen=True, slots=True)
class Result:
    """Hits, best first, and the time they took."""

    hits: tuple[Hit, ...]
    timing: Timing


class Retriever(Protocol):
    """A retrieval strategy.

    ``retrieve`` raises ``UnknownSpaceError`` for a tenant that does not exist, and ``IndexUnavailableError`` when
    the index fails: an outage is never an empty result.
    """

    name: str

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """The best nodes for a query among those known at ``as_of``, enough of them for ``top_k`` turns."""
        ...


class TextEncoder(Protocol):
    """Text to vectors."""

    @property
    def model_id(self) -> str:
        """Names the maker of the vectors."""
        ...

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """float32 [texts, dim]."""
        ...


class QueryEncoder(Protocol):
    """A question to a vector in the space of the graph embeddings; who makes it need not be known here."""

    @property
    def version(self) -> str:
        """Must equal the version of the collection that is searched."""
        ...

    def encode_query(self, text: str, *, asked_at: datetime | None = None) -> NDArray[np.float32]:
        """float32 [dim]; ``asked_at`` anchors relative dates, None leaves them unread."""
        ...


@dataclass(frozen=True, slots=True)
class SearchScope:
    """What a search may see: always one tenant.

    Attributes:
        space: The tenant, or a view of one (see ``training.refresh``); empty is an error.
        types: Node types; None for all.
        as_of: Nodes recorded later are invisible; None for now.
    """

    space: str
    types: tuple[str, ...] | None = None
    as_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class VectorMatch:
    """A row that a vector search found; ``score`` is cosine or inner product."""

    node_id: NodeId
    type: str
    turn_ids: tuple[TurnId, ...]
    score: float


class VectorSearch(Protocol):
    """The one thing a strategy needs of a vector index."""

    def search(self, vector: NDArray[np.float32], scope: SearchScope, *, top_k: int) -> list[VectorMatch]:
        """Nearest rows, best first."""
        ...
