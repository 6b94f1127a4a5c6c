"""Counts the tokens that language models read and write, what they cost, and stops when a limit is reached."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Protocol

from locigraph.consolidation.errors import LimitReachedError
from locigraph.kg.types import SpaceId, TurnId

_CHARACTERS_A_TOKEN = 4  # of English, for what no endpoint has counted


@dataclass(frozen=True, slots=True)
class Prices:
    """Price of a million tokens that a model reads and that it writes, in any one currency."""

    read: float = 0.0
    written: float = 0.0


@dataclass(frozen=True, slots=True)
class Spent:
    """Calls, tokens read and written, and what they cost."""

    calls: int = 0
    read: int = 0
    written: int = 0
    cost: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens read and written."""
        return self.read + self.written

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls, self.read + other.read, self.written + other.written, self.cost + other.cost
        )

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
    """What was spent by stage and turn, earlier runs on the same store included.

    Replies from a cassette cost nothing and are not counted.

    Args:
        max_tokens: Most tokens, read and written, that a store may cost; None for any number.
        max_cost: Most that they may cost, in the currency of the prices; None for any sum.
    """

    def __init__(self, *, max_tokens: int | None = None, max_cost: float | None = None) -> None:
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._pages: dict[SpaceId | None, dict[str, dict[str, Spent]]] = {}  # space -> turn -> stage
        self._store: Settings | None = None
        self._lock = threading.Lock()

    def bind(self, store: Settings, spaces: list[SpaceId]) -> None:
        """Go on from what a store remembers of these spaces, and have it remember what is spent from now on."""
        self._store = store
        for space in spaces:
            held = json.loads(store.setting(_name(space)) or "{}")
            self._pages[space] = {
                turn: {stage: Spent(**spent) for stage, spent in stages.items()} for turn, stages in held.items()
            }

    def check(self, read: int, prices: Prices) -> None:
        """Raise LimitReachedError if a request of so many tokens may go beyond a limit; its reply is not foreseen."""
        total = self.total + _spent(read, 0, prices)
        for name, value, limit in (
            ("max_tokens", total.tokens, self._max_tokens),
            ("max_cost", total.cost, self._max_cost),
        ):
            if limit is not None and value > limit:
                raise LimitReachedError(
                    f"stopped by {name} {limit:,}: so far {self.total}; what is done is kept; run again with "
                    f"a higher {name} to go on"
                )

    def book(self, purpose: Purpose, read: int, written: int, prices: Prices) -> None:
        """Count one call, before its reply is used."""
        with self._lock:
            stages = self._pages.setdefault(purpose.space, {}).setdefault(purpose.turn_id or "", {})
            stages[purpose.stage] = stages.get(purpose.stage, Spent()) + _spent(read, written, prices)
            if self._store is not None and purpose.space is not None:
                page = {
                    turn: {s: asdict(v) for s, v in held.items()} for turn, held in self._pages[purpose.space].items()
                }
                self._store.set_setting(_name(purpose.space), json.dumps(page))

    @property
    def total(self) -> Spent:
        """All that was spent."""
        return sum(self.by_stage().values(), Spent())

    def by_stage(self) -> dict[str, Spent]:
        """What was spent on each stage."""
        found: dict[str, Spent] = {}
        for page in list(self._pages.values()):
            for stages in list(page.values()):
                for stage, spent in list(stages.items()):
                    found[stage] = found.get(stage, Spent()) + spent
        return found

    def by_turn(self, space: SpaceId) -> Mapping[str, Spent]:
        """What was spent on each turn of a space."""
        return {turn: sum(stages.values(), Spent()) for turn, stages in self._pages.get(space, {}).items() if turn}


def _name(space: SpaceId) -> str:
    return f"spent/{space}"  # is forgotten with its space


def _spent(read: int, written: int, prices: Prices) -> Spent:
    return Spent(1, read, written, (read * prices.read + written * prices.written) / 1e6)


def tokens_of(text: str) -> int:
    """About how many tokens a text has; endpoints count exactly."""
    return len(text) // _CHARACTERS_A_TOKEN + 1
