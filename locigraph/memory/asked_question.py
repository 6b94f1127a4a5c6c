"""A question to a memory, with everything that decides its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from os import PathLike
from typing import TYPE_CHECKING, Any

from locigraph.assembly import options
from locigraph.assembly.strategies import strategy_named
from locigraph.kg.errors import LocigraphError, shortened
from locigraph.kg.types import Scope
from locigraph.retrieval.budgets import KindLimits
from locigraph.retrieval.conditions import Condition, parsed
from locigraph.retrieval.hit_filters import DEFAULT_FOLD
from locigraph.retrieval.protocols import MAX_TOP_K

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
    reranker: str | PathLike[str] | None = None
    speaker: str | Sequence[str] | None = None
    fold: float | None = DEFAULT_FOLD
    include_superseded: bool = False
    filter: Mapping[str, Any] | None = None
    min_confidence: float | None = None
    queries: QueryGenerator | None = None

    def __post_init__(self) -> None:
        options.check_question(self.question)
        self._check_strategy()
        if not isinstance(self.reranker, str | PathLike | None):
            raise LocigraphError(f"reranker is {shortened(self.reranker)}; expected a name, or None")
        options.check_positive("top_k", self.top_k, most=MAX_TOP_K)
        if self.budget_tokens is not None:
            options.check_positive("budget_tokens", self.budget_tokens)
        if self.budget_kinds is not None and self.budget_tokens is None:
            raise LocigraphError("budget_kinds limits a context, but no context was asked for; set budget_tokens too")
        if self.fold is not None and not (isinstance(self.fold, int | float) and 0 < self.fold <= 1):
            raise LocigraphError(
                f"fold is {shortened(self.fold)}; expected a word similarity above 0 and up to 1, or null to fold "
                "nothing"
            )
        self._check_confidence()
        if self.queries is not None and not callable(self.queries):
            raise LocigraphError(
                f"queries is {shortened(self.queries)}; expected a function such as generate_queries, or None"
            )
        _ = self.kinds, self.time, self.condition  # raise if they are invalid

    def _check_strategy(self) -> None:
        name = self.strategy
        if name is None:
            return
        if not isinstance(name, str):
            raise LocigraphError(f"strategy is {shortened(name)}; expected a name, or None")
        strategy_named(name)  # raises if there is none

    def _check_confidence(self) -> None:
        least = self.min_confidence
        if least is None:
            return
        if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
            raise LocigraphError(f"min_confidence is {shortened(least)}; expected a number from 0 to 1")
        if self.strategy not in (None, "v2"):
            raise LocigraphError(f"min_confidence needs v2, but strategy is {self.strategy!r}; leave one of them out")

    @cached_property
    def kinds(self) -> KindLimits:
        """The limits of a context by kind of memory."""
        return options.kind_limits(self.budget_kinds)

    @cached_property
    def condition(self) -> Condition | None:
        """What the turns of hits must satisfy; None for no condition."""
        return None if self.filter is None else parsed(self.filter)

    @property
    def filter_name(self) -> str:
        """What no other filter is called."""
        return sha256(repr(_plain(self.filter)).encode(errors="surrogatepass")).hexdigest()

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
        return self.strategy in (None, "v2") and self.reranker is None


def _plain(given: object) -> object:
    """A filter as pairs and lists of Python itself, whose words tell them from others."""
    if isinstance(given, Mapping):
        return [(str(key), _plain(value)) for key, value in given.items()]
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [_plain(each) for each in given]
    return given
