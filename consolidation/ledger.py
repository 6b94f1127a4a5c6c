"""Counts the tokens that language models read and write, what they cost, and stops when a limit is reached."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Protocol

from locigraph.consolidation.errors import LimitReachedError, StoppedError
from locigraph.kg.counts import Counts
from locigraph.kg.types import SpaceId, TurnId

_CHARACTERS_A_TOKEN = 4  # of English, for what no endpoint has counted


@dataclass(frozen=True, slots=True)
class Prices:
    """Price of a million tokens that a model reads and that it writes, in any one currency."""

    read: float = 0.0
    written: float = 0.0


@dataclass(frozen=True, slots=True)
class Spent(Counts):
    """Calls, tokens read and written, and what they cost."""

    calls: int = 0
    read: int = 0
    written: int = 0
    cost: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens read and written."""
        return self.read + self.written

    def __str__(self) -> str:
        cost = f", cost {self.cost:.4f}" if self.cost else ""
        return f"{self.calls:,} calls, {self.read:,} tokens read, {self.written:,} written{cost}"


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a call is made for: a stage such as ``architect``, and the turn, where it is about one."""

    stage: str
    space: SpaceId | None = None
    turn_id: TurnId | None = None


class Settings(Protocol):
    """The store as the ledger sees it: it remembers what the ledger holds of each space."""

    def setting(self, name: str) -> str | None:
        """A remembered value, or None."""
        ...

    def set_setting(self, name: str, value: str) -> None:
        """Remember a value under a name."""
        ...


class Ledger:
    """What was spent by stage and turn, earlier runs on the same store included; threads may use it at the same time.

    Replies from a cassette cost nothing and are not counted.

    Attributes:
        invalid: Replies of this run that could not be used.
        repaired: Those of them that the model mended when it was told.

    Args:
        max_tokens: Most tokens, read and written, that a store may cost; None for any number.
        max_cost: Most that they may cost, in the currency of the prices; None for any sum.
    """

    def __init__(self, *, max_tokens: int | None = None, max_cost: float | None = None) -> None:
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._pages: dict[SpaceId | None, dict[str, dict[str, Spent]]] = {}  # space -> turn -> stage
        self._stages: dict[str, Spent] = {}  # the sums of all pages
        self._under_way: dict[int, Spent] = {}  # the most that each request may cost whose reply is not there yet
        self._requests = 0
        self._is_stopped = False
        self._store: Settings | None = None
        self._changed = threading.Condition()
        self.invalid = self.repaired = 0

    def bind(self, store: Settings, spaces: list[SpaceId]) -> None:
        """Go on from what a store remembers of these spaces, and have it remember what is spent from now on."""
        with self._changed:
            self._store = store
            self._is_stopped = False
            for space in spaces:
                held = json.loads(store.setting(_name(space)) or "{}")
                self._pages[space] = {
                    turn: {stage: Spent(**spent) for stage, spent in stages.items()} for turn, stages in held.items()
                }
            self._stages = {}
            for page in self._pages.values():
                for stages in page.values():
                    for stage, spent in stages.items():
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
        with self._changed:
            spent = _spent(read, written, prices)
            stages = self._pages.setdefault(purpose.space, {}).setdefault(purpose.turn_id or "", {})
            stages[purpose.stage] = stages.get(purpose.stage, Spent()) + spent
            self._add(purpose.stage, spent)
            if self._store is not None and purpose.space is not None:
                page = {
                    turn: {s: asdict(v) for s, v in held.items()} for turn, held in self._pages[purpose.space].items()
                }
                self._store.set_setting(_name(purpose.space), json.dumps(page))

    def judge(self, *, is_repaired: bool) -> None:
        """Count a reply that could not be used, or one that is right after one that could not."""
        with self._changed:
            self.repaired += is_repaired
            self.invalid += not is_repaired

    @property
    def total(self) -> Spent:
        """All that was spent."""
        return sum(self.by_stage().values(), Spent())

    def by_stage(self) -> dict[str, Spent]:
        """What was spent on each stage."""
        with self._changed:
            return dict(self._stages)

    def by_turn(self, space: SpaceId) -> Mapping[str, Spent]:
        """What was spent on each turn of a space."""
        return {turn: sum(stages.values(), Spent()) for turn, stages in self._pages.get(space, {}).items() if turn}

    def _add(self, stage: str, spent: Spent) -> None:
        self._stages[stage] = self._stages.get(stage, Spent()) + spent

    def _beyond(self, total: Spent) -> tuple[str, float] | None:
        """The first limit that a sum is beyond, with its name."""
        limits = (("max_tokens", total.tokens, self._max_tokens), ("max_cost", total.cost, self._max_cost))
        return next(((name, limit) for name, value, limit in limits if limit is not None and value > limit), None)


def _name(space: SpaceId) -> str:
    return f"spent/{space}"  # is forgotten with its space


def _spent(read: int, written: int, prices: Prices) -> Spent:
    return Spent(1, read, written, (read * prices.read + written * prices.written) / 1e6)


def tokens_of(text: str) -> int:
    """About how many tokens a text has; endpoints count exactly."""
    return len(text) // _CHARACTERS_A_TOKEN + 1
