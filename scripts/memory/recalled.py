"""What a memory answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from locigraph.retrieval.protocols import Hit, Timing

if TYPE_CHECKING:
    from locigraph.retrieval.packing import Context


@dataclass(frozen=True, slots=True)
class Recalled(Sequence[Hit]):
    """What was found, best first: a sequence of hits with ``text``, ``turn_ids``, ``score`` and ``signals``.

    Attributes:
        hits: The hits.
        strategy: What found them.
        timing: How long that took.
        notes: What the caller should know: that another strategy answered, that turns are missing.
        context: The hits as lines for a language model; None where no budget was given. Where several spaces were
            asked, it names turns as ``space:turn``, and shows one conversation after the other.
    """

    hits: tuple[Hit, ...]
    strategy: str
    timing: Timing
    notes: tuple[str, ...] = ()
    context: Context | None = None

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[place]

    def __len__(self) -> int:
        return len(self.hits)

    def as_json(self) -> dict[str, object]:
        """The answer as JSON holds it, and as the server sends it; the context as its text."""
        return {
            "hits": [hit.as_json() for hit in self.hits], "strategy": self.strategy, "notes": list(self.notes),
            "context": None if self.context is None else str(self.context),
            "encode_ms": self.timing.encode_ms, "search_ms": self.timing.search_ms,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemoryState:
    """How far a memory is ready to answer.

    Attributes:
        checkpoint: Version of the checkpoint with which v2 answers; None where v1 does.
        reason: Why v2 cannot answer; empty if it can.
        due_rows: Rows of nodes that the index has not taken yet.
        due_spaces: Spaces whose graph embeddings the next recall brings up to date.
    """

    checkpoint: str | None
    reason: str
    due_rows: int
    due_spaces: int
