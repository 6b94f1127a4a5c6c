"""Counts the tokens, costs and unusable replies of language models, and enforces limits on them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from locigraph.consolidation.errors import LimitReachedError, StoppedError
from locigraph.kg.counts import Spent
from locigraph.kg.types import SpaceId, TurnId

_CHARACTERS_A_TOKEN = 4  # for English; used where the endpoint has not counted tokens


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a million input tokens and of a million output tokens, in any one currency."""

    read: float = 0.0
    written: float = 0.0

    def spent(self, input_tokens: int, output_tokens: int) -> Spent:
        """What one call with these numbers of tokens uses."""
        cost = (input_tokens * self.read + output_tokens * self.written) / 1e6
        return Spent(1, input_tokens, output_tokens, cost)


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a call is made for: a stage such as ``architect``, and the space and turn, if it is about one."""

    stage: str
    space: SpaceId | None = None
    turn_id: TurnId | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a recorded reply came from, and what it took.

    Attributes:
        endpoint: Base URL of the endpoint.
        spent: Usage of the request, including its unusable replies.
    """

    endpoint: str
    spent: Spent


class Accounts(Protocol):
    """The part of a store that the ledger needs: it keeps the usage of each space."""

    def spent_by_stage(self) -> Mapping[str, Spent]:
        """Usage by stage, summed over all spaces."""
        ...

    def add_spent(self, space: SpaceId, turn_id: str, stage: str, spent: Spent) -> None:
        """Add to the stored usage."""
        ...


class Ledger:
    """Usage of language models by stage, including earlier runs on the same store; safe to use from several threads.

    The store also keeps it by turn. Replies from a cassette cost nothing and are not counted.

    Args:
        max_tokens: Limit on input plus output tokens for a store, over all runs; None for no limit.
        max_cost: Limit on their cost, in the currency of the prices; None for no limit.
        on_recorded: Called with each reply or failure that a cassette is about to repeat; its origin is None if it is
            unknown. An error that it raises prevents the use of the reply.
    """

    def __init__(
        self,
        *,
        max_tokens: int | None = None,
        max_cost: float | None = None,
        on_recorded: Callable[[Purpose, Origin | None], None] = lambda purpose, origin: None,
    ) -> None:
        self.on_recorded = on_recorded
        self._max_tokens = max_tokens
        self.max_cost = max_cost
        self._stages: dict[str, Spent] = {}
        self._unsaved: dict[str, Spent] = {}  # the part of it that no store keeps
        self._under_way: dict[int, Spent] = {}  # highest possible cost of each request that is in progress
        self._requests = 0
        self._is_stopped = False
        self._store: Accounts | None = None
        self._changed = threading.Condition()

    def bind(self, store: Accounts) -> None:
        """Continue from the usage that a store has recorded, and record further usage there.

        With a limit, what other processes have spent since is known after the next ``bind``.
        """
        with self._changed:
            self._is_stopped = False
            if store is self._store and self._max_tokens is None and self.max_cost is None:
                return  # what others have spent matters to limits alone
            self._store = store
            self._stages = dict(self._unsaved)
            for stage, spent in store.spent_by_stage().items():
                _add(self._stages, stage, spent)

    @contextmanager
    def request(self, input_tokens: int, most_output: int, prices: Prices) -> Iterator[None]:
        """Reserve the highest possible cost of one request while it is in progress.

        While other requests are in progress, this one begins only if all of them at their highest cost stay within the
        limits; otherwise it waits. So a limit stops concurrent requests exactly where it would stop sequential ones.

        Args:
            input_tokens: Number of tokens in the request.
            most_output: Largest possible number of tokens of its reply.
            prices: Prices of the tokens.

        Raises:
            LimitReachedError: If no other request is in progress and the input alone would exceed a limit.
            StoppedError: If ``stop`` was called.
        """
        most = prices.spent(input_tokens, most_output)
        with self._changed:
            while True:
                self.refuse_if_stopped()
                if self._beyond(sum(self._under_way.values(), self.total) + most) is None:
                    break
                if not self._under_way:
                    self.check(input_tokens, prices)
                    break
                self._changed.wait()
            self._requests += 1
            number = self._requests
            self._under_way[number] = most
        try:
            yield
        finally:
            with self._changed:
                del self._under_way[number]
                self._changed.notify_all()

    def check(self, input_tokens: int, prices: Prices) -> None:
        """Raise LimitReachedError if so many input tokens would exceed a limit; the reply is not counted."""
        beyond = self._beyond(self.total + prices.spent(input_tokens, 0))
        if beyond is not None:
            name, limit = beyond
            raise LimitReachedError(
                f"stopped by {name} {limit:,}: so far {self.total}; finished work is kept; run again with "
                f"a higher {name} to continue"
            )

    def stop(self) -> None:
        """Let no request begin until the next ``bind``; requests in progress continue."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def refuse_if_stopped(self) -> None:
        """Raise StoppedError after ``stop``."""
        if self._is_stopped:
            raise StoppedError("no more requests are sent, since the run was stopped; run again to continue")

    def pause(self, seconds: float) -> None:
        """Wait before a request is repeated; raises StoppedError as soon as ``stop`` is called."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped, timeout=seconds)
            self.refuse_if_stopped()

    def count(self, purpose: Purpose, more: Spent) -> None:
        """Add to the usage for a purpose, for example a reply that could not be used."""
        with self._changed:
            _add(self._stages, purpose.stage, more)
            if self._store is not None and purpose.space is not None:
                self._store.add_spent(purpose.space, purpose.turn_id or "", purpose.stage, more)
            else:
                _add(self._unsaved, purpose.stage, more)

    @property
    def total(self) -> Spent:
        """Usage summed over all stages."""
        return sum(self.by_stage().values(), Spent())

    def by_stage(self) -> dict[str, Spent]:
        """Usage of each stage."""
        with self._changed:
            return dict(self._stages)

    def lines(self) -> list[str]:
        """The usage of each stage, and of all together if there are several, as lines to print."""
        stages = self.by_stage()
        total = {"in all": self.total} if len(stages) > 1 else {}
        return [f"{stage}: {spent}" for stage, spent in (stages | total).items()]

    def _beyond(self, total: Spent) -> tuple[str, float] | None:
        """Name and value of the first limit that a total exceeds; None if it exceeds none."""
        limits = (("max_tokens", total.tokens, self._max_tokens), ("max_cost", total.cost, self.max_cost))
        return next(((name, limit) for name, value, limit in limits if limit is not None and value > limit), None)


def _add(sums: dict[str, Spent], stage: str, more: Spent) -> None:
    sums[stage] = sums.get(stage, Spent()) + more


def tokens_of(text: str) -> int:
    """Approximate number of tokens of a text; endpoints give exact counts."""
    return len(text) // _CHARACTERS_A_TOKEN + 1
