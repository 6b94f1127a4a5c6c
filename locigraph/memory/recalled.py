"""The results of ``Memory.recall`` and ``Memory.state``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from locigraph.retrieval.protocols import Hit, Timing

if TYPE_CHECKING:
    from locigraph.retrieval.packing import Context


@dataclass(frozen=True, slots=True)
class Recalled(Sequence[Hit]):
    """The result of a search: a sequence of hits, best first, with ``text``, ``turn_ids``, ``score`` and ``signals``.

    Attributes:
        hits: The hits.
        strategy: Name of the strategy that found them.
        timing: Duration of the search.
        notes: Warnings for the caller, such as that another strategy answered or that turns are missing.
        confidence: Probability that what was searched holds an answer (see ``retrieval.confidence``); None where it is
            not known, as for all strategies but v2.
        context: The hits as lines for a language model; None if no budget was given. If several spaces were searched,
            it names turns as ``space:turn`` and shows one conversation after the other.
    """

    hits: tuple[Hit, ...]
    strategy: str
    timing: Timing
    notes: tuple[str, ...] = ()
    context: Context | None = None
    confidence: float | None = None

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[place]

    def __len__(self) -> int:
        return len(self.hits)

    def as_json(self) -> dict[str, object]:
        """The result as a JSON object, as the server sends it; the context is its text."""
        return {
            "hits": [hit.as_json() for hit in self.hits], "strategy": self.strategy, "notes": list(self.notes),
            "confidence": self.confidence,
            "context": None if self.context is None else str(self.context),
            "context_tokens": None if self.context is None else self.context.tokens,
            "left_out": None if self.context is None else self.context.left_out,
            "encode_ms": self.timing.encode_ms, "search_ms": self.timing.search_ms,
        }  # fmt: skip

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Recalled:
        """The result of which ``as_json`` made a JSON object, without its context."""
        return cls(
            tuple(map(Hit.from_json, made["hits"])),
            made["strategy"],
            Timing(made["encode_ms"], made["search_ms"]),
            tuple(made["notes"]),
            confidence=made["confidence"],
        )


@dataclass(frozen=True, slots=True)
class MemoryState:
    """Whether v2 can answer, and what is still to be indexed.

    Attributes:
        checkpoint: Version of the checkpoint with which v2 answers; None if v1 answers.
        reason: Why v2 cannot answer; empty if it can.
        due_rows: Number of node rows that are not yet in the index.
        due_spaces: Number of spaces whose graph embeddings the next recall brings up to date; 0 if v1 answers.
    """

    checkpoint: str | None
    reason: str
    due_rows: int
    due_spaces: int

    @property
    def strategy(self) -> str:
        """The strategy that answers where none is named: v2, or v1 without a usable checkpoint."""
        return "v1" if self.checkpoint is None else "v2"
