"""Snapshots of spaces as of the times at which questions are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from locigraph.kg.byte_cache import ByteCache
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.times import epoch
from locigraph.kg.types import NodeId, SpaceId

_KEPT = 2 * 2**30  # bytes; all snapshots of the corpora of the record


@dataclass(frozen=True, slots=True)
class View:
    """A space as known at ``as_of`` (None: now); ``name`` identifies it in a collection of embeddings."""

    space: SpaceId
    as_of: datetime | None = None

    @property
    def name(self) -> str:
        """The name of the space, followed by ``@`` and the time in seconds unless it is the present graph."""
        return str(self.space) if self.as_of is None else f"{self.space}@{epoch(self.as_of)}"


class Views:
    """Snapshots of spaces as of the times of questions; those used last are kept.

    Args:
        load: Loads the snapshot of a space as of a time (None: now).
        last_turn: When the last turn of each space was spoken; None if its turns have no dates.
        keep: Bytes that the kept snapshots may hold together.
    """

    def __init__(
        self,
        load: Callable[[SpaceId, datetime | None], Snapshot],
        last_turn: Mapping[SpaceId, datetime | None],
        *,
        keep: int = _KEPT,
    ) -> None:
        self._load = load
        self._last_turn = last_turn
        self._kept: ByteCache[View, Snapshot] = ByteCache(keep, lambda snapshot: snapshot.nbytes)

    def of(self, space: SpaceId, as_of: datetime | None) -> View:
        """The view of a space as of a time; the present view if no turn was spoken after that time."""
        last = self._last_turn.get(space)
        if as_of is None or last is None or epoch(as_of) >= epoch(last):
            return View(space)
        return View(space, as_of)

    def at(self, space: SpaceId, as_of: datetime | None) -> Snapshot:
        """The snapshot of a space as of a time (None: now)."""
        return self.snapshot(self.of(space, as_of))

    def snapshot(self, view: View) -> Snapshot:
        """The snapshot of a view."""
        return self._kept.get(view, lambda: self._load(view.space, view.as_of))

    def texts(self, space: SpaceId, node_ids: Sequence[NodeId], as_of: datetime | None) -> dict[NodeId, str]:
        """The descriptions of some nodes of a space as of a time (None: now)."""
        snapshot = self.at(space, as_of)
        return {node: snapshot.descriptions[snapshot.row_of[node]] for node in node_ids}
