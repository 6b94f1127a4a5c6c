"""Strategies: their base class, the values they take and return, and the protocols of the parts that they use."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.joint import joint_name
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import NodeId, SpaceId, TurnId
from locigraph.retrieval.budgets import ContextRules
from locigraph.retrieval.errors import FilterError

#: Number of turns that a strategy returns when the caller does not say.
DEFAULT_TOP_K = 20
#: Largest ``top_k`` that a caller may pass; an index may allocate memory for that many results, however few it holds.
MAX_TOP_K = 10_000
#: Largest number of results to search for when they are filtered or folded afterwards: a Milvus server returns no more,
#: and Milvus Lite allocates memory for as many as it is asked for.
MOST_FOUND = 16_384

#: Reads the texts of nodes for display: (space, node IDs, as_of) -> text by node ID, as known at ``as_of`` (None: now).
#: Nodes that the space did not hold at that time are left out; a space that does not exist is an ``UnknownSpaceError``.
NodeTexts = Callable[[SpaceId, Sequence[NodeId], datetime | None], Mapping[NodeId, str]]
#: Reads the graph of a space as of a time (None: now); a space that does not exist is an ``UnknownSpaceError``.
SnapshotLoader = Callable[[SpaceId, datetime | None], Snapshot]


_AS_THEY_ARE = (
    "space",
    "node_id",
    "type",
    "text",
    "score",
    "signals",
    "confidence",
)  # fields that are the same in JSON


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved node.

    Attributes:
        node_id: ID of the node.
        type: Type of the node.
        text: Description of the node, as known at the time ``as_of`` of the search.
        turn_ids: Source turns of the node, in conversation order; metrics over turns count these.
        score: The score by which hits are sorted; comparable only within one result.
        signals: Score per signal, such as ``{"bm25": 7.1, "ann": .61}``; a signal that did not find the node is absent.
        same: Source turns of near-duplicate hits that were folded into this one (see ``retrieval.hit_filters``).
        space: The space of the node and its turns. Strategies leave it empty.
        elsewhere: Like ``same``, for hits in other spaces, by space.
        spoken_at: When the last of its words were spoken; None if that is not known. Strategies leave it empty.
        again: When the turns of ``same`` and ``elsewhere`` were spoken, as far as that is known.
        until: The day on which something replaced it, for a turn most of what it says; None while it holds, and if that
            day is not known. Strategies leave it empty.
        superseded_by: The turns that say what has replaced it. Strategies leave it empty.
        confidence: Probability that it is evidence for the answer of the question (see ``retrieval.confidence``); None
            where it is not known, as for all strategies but v2.
    """

    node_id: NodeId
    type: str
    text: str
    turn_ids: tuple[TurnId, ...]
    score: float
    signals: Mapping[str, float] = field(default_factory=dict)
    same: tuple[TurnId, ...] = ()
    space: str = ""
    elsewhere: Mapping[str, tuple[TurnId, ...]] = field(default_factory=dict)
    spoken_at: datetime | None = None
    again: tuple[datetime, ...] = ()
    until: date | None = None
    superseded_by: tuple[TurnId, ...] = ()
    confidence: float | None = None

    def as_json(self) -> dict[str, object]:
        """The hit as a JSON object."""
        return {
            "space": self.space, "node_id": self.node_id, "type": self.type, "text": self.text,
            "turn_ids": list(self.turn_ids), "score": self.score, "signals": dict(self.signals),
            "same": list(self.same), "elsewhere": {space: list(turns) for space, turns in self.elsewhere.items()},
            "spoken_at": None if self.spoken_at is None else self.spoken_at.isoformat(),
            "again": [time.isoformat() for time in self.again],
            "until": None if self.until is None else self.until.isoformat(),
            "superseded_by": list(self.superseded_by), "confidence": self.confidence,
        }  # fmt: skip

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Hit:
        """The hit of which ``as_json`` made a JSON object."""
        fields: dict[str, Any] = {name: made[name] for name in _AS_THEY_ARE}
        return cls(
            **fields,
            turn_ids=tuple(made["turn_ids"]),
            same=tuple(made["same"]),
            superseded_by=tuple(made["superseded_by"]),
            elsewhere={space: tuple(turns) for space, turns in made["elsewhere"].items()},
            spoken_at=None if made["spoken_at"] is None else datetime.fromisoformat(made["spoken_at"]),
            again=tuple(map(datetime.fromisoformat, made["again"])),
            until=None if made["until"] is None else date.fromisoformat(made["until"]),
        )


@dataclass(frozen=True, slots=True)
class Timing:
    """Time spent on encoding the query and on searching, in milliseconds.

    Loading a lexical index and reading the texts of hits are not counted: some strategies hold these in memory.
    """

    encode_ms: float = 0.0
    search_ms: float = 0.0

    def __add__(self, other: Timing) -> Timing:
        return Timing(self.encode_ms + other.encode_ms, self.search_ms + other.search_ms)


@dataclass(frozen=True, slots=True)
class Result:
    """Hits, best first, and the time that the search took."""

    hits: tuple[Hit, ...]
    timing: Timing


class Retriever(ABC):
    """A retrieval strategy.

    Attributes:
        name: Name of the strategy in results.
        context_rules: The strategy's own rules for contexts; by default there are none.
    """

    name: str
    context_rules: ContextRules = ContextRules()
    # What ``asked_from`` and ``limited_to`` were given, where a strategy uses them.
    _day_of: Callable[[SpaceId], date | None] | None = None
    _only: frozenset[NodeId] | None = None

    def _changed(self, **attributes: Any) -> Self:
        """The same strategy with other values of some attributes."""
        changed = copy.copy(self)
        vars(changed).update(attributes)
        return changed

    @abstractmethod
    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """The best nodes for a query among those known at ``as_of``, enough of them for ``top_k`` turns.

        Raises:
            UnknownSpaceError: If there is no such space.
            IndexUnavailableError: If the index fails: an outage is never an empty result.
        """

    def asked_from(self, day_of: Callable[[SpaceId], date | None]) -> Retriever:
        """The same strategy, which reckons relative dates of questions from a day where no ``as_of`` is given.

        By default it is the strategy itself, which reads no dates, or has a rule of its own.

        Args:
            day_of: Reads the day on which questions are asked of a space.
        """
        return self

    def limited_to(self, only: Callable[[str | None], frozenset[NodeId]]) -> Retriever:
        """The same strategy, which looks for some nodes of a space alone; it may find others too, as by default.

        Args:
            only: Reads these nodes, those of one type or, with None, of all types, which takes longer.
        """
        return self

    def arrange(
        self, question: str, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None = None
    ) -> list[NodeId] | None:
        """Node IDs of the hits in the order of a context; None, the default, for chronological order."""
        return None

    def reworded(self, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None = None) -> list[str]:
        """The texts that a cross-encoder reads, in the order of the hits; by default their descriptions."""
        return [hit.text for hit in hits]


class QueryEncoder(Protocol):
    """Encodes a question as a vector that can be compared with graph embeddings; retrieval never sees the network."""

    @property
    def version(self) -> str:
        """Version of the checkpoint; must equal that of the collection that is searched."""
        ...

    def encode_query(self, text: str, *, asked_at: datetime | None = None) -> NDArray[np.float32]:
        """The vector, float32 [dim]; relative dates are resolved from ``asked_at``, and ignored when it is None."""
        ...


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """The nodes that a search may return: only those of the named spaces.

    Attributes:
        space: The space, or a view of it (see ``kg.views``), or a tuple of several to search together; matches then
            have IDs of the form that ``kg.joint.joint_name`` writes.
        types: Node types that may be found; None for all.
        as_of: Nodes recorded later are invisible; None hides nothing.
        only: Nodes that may be found, of several spaces by their joint names; None for all.

    Raises:
        FilterError: If it names no space (there is no search across all), or its tuple of types is empty.
    """

    space: str | tuple[str, ...]
    types: tuple[str, ...] | None = None
    as_of: datetime | None = None
    only: frozenset[NodeId] | None = None

    def __post_init__(self) -> None:
        if not self.spaces or not all(self.spaces):
            raise FilterError("a search must name its space; pass the space to search")
        if self.types is not None and not self.types:
            raise FilterError(f"space {self.space!r}: the list of node types is empty, so nothing could be found")

    @property
    def spaces(self) -> tuple[str, ...]:
        """The spaces; one or several."""
        return (self.space,) if isinstance(self.space, str) else self.space


@dataclass(frozen=True, slots=True)
class VectorMatch:
    """A row that a vector search found; ``score`` is the similarity: cosine or inner product."""

    node_id: NodeId
    type: str
    turn_ids: tuple[TurnId, ...]
    score: float

    def named_in(self, space: str) -> VectorMatch:
        """The match with its IDs prefixed with their space, as a search of several spaces returns it."""
        turn_ids = tuple(joint_name(space, turn) for turn in self.turn_ids)
        return replace(self, node_id=joint_name(space, self.node_id), turn_ids=turn_ids)


class VectorSearch(Protocol):
    """The part of a vector index that strategies use."""

    def search(self, vector: NDArray[np.float32], scope: SearchFilter, *, top_k: int) -> list[VectorMatch]:
        """The most similar rows, best first."""
        ...


class GraphVectors(VectorSearch, Protocol):
    """Graph embeddings that can be searched."""

    @property
    def name(self) -> str:
        """Name for messages."""
        ...

    @property
    def version(self) -> str:
        """Version of the checkpoint that made them."""
        ...
