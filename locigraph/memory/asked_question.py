"""A question to a memory, with everything that decides its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from locigraph.assembly import options
from locigraph.kg.types import Scope
from locigraph.retrieval.conditions import Condition, parsed
from locigraph.retrieval.hit_filters import DEFAULT_FOLD

if TYPE_CHECKING:
    from locigraph.retrieval.query_generator import QueryGenerator


@dataclass(frozen=True, kw_only=True)
class AskedQuestion:
    """A question to a memory; the attributes are the arguments of ``Memory.recall``.

    Raises:
        LocigraphError: If one of them is invalid.
    """

    question: str
    space: str | Sequence[str] | None = None
    user: str | None = None
    agent: str | None = None
    top_k: int = 10
    budget_tokens: int | None = None
    budget_kinds: Mapping[str, int] | None = None
    as_of: str | datetime | None = None
    strategy: str | None = None
    reranker: str | None = None
    speaker: str | Sequence[str] | None = None
    fold: float | None = DEFAULT_FOLD
    include_superseded: bool = False
    filter: Mapping[str, Any] | None = None
    min_confidence: float | None = None
    queries: QueryGenerator | None = None

    def __post_init__(self) -> None:
        options.check_recall(
            self.question,
            top_k=self.top_k,
            budget_tokens=self.budget_tokens,
            budget_kinds=self.budget_kinds,
            as_of=self.as_of,
            strategy=self.strategy,
            fold=self.fold,
            min_confidence=self.min_confidence,
            queries=self.queries,
        )
        options.time_of(self.as_of)
        _ = self.condition

    @cached_property
    def condition(self) -> Condition | None:
        """What the turns of hits must satisfy; None for no condition."""
        return None if self.filter is None else parsed(self.filter)

    @cached_property
    def time(self) -> datetime | None:
        """The time as of which is asked; None for now."""
        return options.time_of(self.as_of)

    @property
    def scope(self) -> Scope:
        """The user and agent whose spaces are searched."""
        return Scope(self.user, self.agent)

    @property
    def is_plain(self) -> bool:
        """Whether it takes a search by v2 and nothing else."""
        return self.strategy in (None, "v2") and self.budget_tokens is None and self.reranker is None
