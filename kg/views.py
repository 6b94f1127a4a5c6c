"""Snapshots of spaces as of the times of questions about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from locigraph.kg.snapshot import Snapshot
from locigraph.kg.times import epoch
from locigraph.kg.types import SpaceId


@dataclass(frozen=True, slots=True)
class View:
    """A space as known at a time; ``name`` is the name of the space in a collection of embeddings."""

    space: SpaceId
    as_of: datetime | None = None

    @property
    def name(self) -> str:
        """The space's own name for the present graph."""
        return str(self.space) if self.as_of is None else f"{self.space}@{epoch(self.as_of)}"


class Views:
    """Snapshots of spaces as of their questions' times, read once.

    Args:
        load: Snapshot of a space as of a time.
        last_turn: When the last turn of each space was spoken; None where undated.
    """

    def __init__(
        self,
        load: Callable[[SpaceId, datetime | None], Snapshot],
        last_turn: Mapping[SpaceId, datetime | None],
    ) -> None:
        self._load = load
        self._last_turn = last_turn
        self._held: dict[View, Snapshot] = {}

    def of(self, space: SpaceId, as_of: datetime | None) -> View:
        """The view that shows a space as of a time; the present one when nothing came later."""
        last = self._last_turn.get(space)
        if as_of is None or last is None or as_of >= last:
            return View(space)
        return View(space, as_of)

    def at(self, space: SpaceId, as_of: datetime | None) -> Snapshot:
        """The snapshot that shows a space as of a time."""
        return self.snapshot(self.of(space, as_of))

    def snapshot(self, view: View) -> Snapshot:
        """The snapshot of a view."""
        if view not in self._held:
            self._held[view] = self._load(view.space, view.as_of)
        return self._held[view]
