"""Counts the tokens, costs and unusable replies of language models, and stops at a limit."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from locigraph.consolidation.errors import LimitReachedError, StoppedError
from locigraph.kg.counts import Spent
from locigraph.kg.types import SpaceId, TurnId

_CHARACTERS_A_TOKEN = 4  # of English, for what no endpoint has counted


@dataclass(frozen=True, slots=True)
class Prices:
    """Price of a million tokens that a model reads and that it writes, in any one currency."""

    read: float = 0.0
    written: float = 0.0


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a call is made for: a stage such as ``architect``, and the turn, where it is about one."""

    stage: str
    space: SpaceId | None = None
    turn_id: TurnId | None = None


class Accounts(Protocol):
    """The store as the ledger sees it: it remembers what was spent on each space."""

    def spent_by_stage(self) -> Mapping[str, Spent]:
        """What was spent on all spaces."""
        ...

    def add_spent(self, space: SpaceId, turn_id: str, stage: str, spent: Spent) -> None:
        """Remember that more was spent."""
        ...


class Ledger:
    """What was spent by stage, earlier runs on the same store included; threads may use it at the same time.

    The store remembers it by turn as well.

    Replies from a cassette cost nothing and are not counted.

    Args:
        max_tokens: Most tokens, read and written, that a store may cost; None for any number.
        max_cost: Most that they may cost, in the currency of the prices; None for any sum.
    """

    def __init__(self, *, max_tokens: int | None = None, max_cost: float | None = None) -> None:
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._stages: dict[str, Spent] = {}
        self._under_way: dict[int, Spent] = {}  # the most that each request may cost whose reply is not there yet
        self._requests = 0
        self._is_stopped = False
        self._store: Accounts | None = None
        self._changed = threading.Condition()

    def bind(self, store: Accounts) -> None:
        """Go on from what a store remembers, and have it remember what is spent from now on."""
        with self._changed:
            self._is_stopped = False
            if store is not self._store:
                self._store = store
                for stage, spent in store.spent_by_stage().items():
                    self._add(stage, spent)

    @contextmanager
    def request(self, read: int, written: int, prices: Prices) -> Iterator[None]:
        """Hold back what one request may cost while it is under way.

        While others are under way, it begins only if all may be as costly as they can be; else it waits for them. So a
        limit stops many requests at a time exactly where it would stop one after another.

        Args:
            read: Tokens of the request.
            written: Most tokens that its reply may have.
            prices: What they cost.

        Raises:
            LimitReachedError: If the request alone may go beyond a limit; its reply is not foreseen.
            StoppedError: If ``stop`` was called.
        """
        most = _spent(read, written, prices)
        with self._changed:
            while True:
                self.refuse_if_stopped()
                if self._beyond(sum(self._under_way.values(), self.total) + most) is None:
                    break
                if not self._under_way:
                    self.check(read, prices)
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

    def check(self, read: int, prices: Prices) -> None:
        """Raise LimitReachedError if a request of so many tokens may go beyond a limit; its reply is not foreseen."""
        beyond = self._beyond(self.total + _spent(read, 0, prices))
        if beyond is not None:
            name, limit = beyond
            raise LimitReachedError(
                f"stopped by {name} {limit:,}: so far {self.total}; what is done is kept; run again with "
                f"a higher {name} to go on"
            )

    def stop(self) -> None:
        """Let no request begin until the next ``bind``; those under way are not disturbed."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def refuse_if_stopped(self) -> None:
        """Raise StoppedError after ``stop``."""
        if self._is_stopped:
            raise StoppedError("no request begins, since the run was stopped; run again to go on")

    def pause(self, seconds: float) -> None:
        """Wait before a request is repeated; raises StoppedError as soon as ``stop`` is called."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped, timeout=seconds)
            self.refuse_if_stopped()

    def book(self, purpose: Purpose, read: int, written: int, prices: Prices) -> None:
        """Count one call, before its reply is used."""
        self.count(purpose, _spent(read, written, prices))

    def count(self, purpose: Purpose, more: Spent) -> None:
        """Count more of what is made for a purpose, such as a reply that could not be used."""
        with self._changed:
            self._add(purpose.stage, more)
            if self._store is not None and purpose.space is not None:
                self._store.add_spent(purpose.space, purpose.turn_id or "", purpose.stage, more)

    @property
    def total(self) -> Spent:
        """All that was spent."""
        return sum(self.by_stage().values(), Spent())

    def by_stage(self) -> dict[str, Spent]:
        """What was spent on each stage."""
        with self._changed:
            return dict(self._stages)

    def _add(self, stage: str, spent: Spent) -> None:
        self._stages[stage] = self._stages.get(stage, Spent()) + spent

    def _beyond(self, total: Spent) -> tuple[str, float] | None:
        """The first limit that a sum is beyond, with its name."""
        limits = (("max_tokens", total.tokens, self._max_tokens), ("max_cost", total.cost, self._max_cost))
        return next(((name, limit) for name, value, limit in limits if limit is not None and value > limit), None)


def _spent(read: int, written: int, prices: Prices) -> Spent:
    return Spent(1, read, written, (read * prices.read + written * prices.written) / 1e6)


def tokens_of(text: str) -> int:
    """About how many tokens a text has; endpoints count exactly."""
    return len(text) // _CHARACTERS_A_TOKEN + 1
