"""How long a space keeps its turns: each gets a time at which it expires, and none is ever put off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, or_, select, update

from locigraph.kg.store import changes
from locigraph.kg.store.statements import rows_in
from locigraph.kg.store.tables import spaces, turns
from locigraph.kg.times import LATEST, epoch, optional_epoch
from locigraph.kg.types import SpaceId, Turn

_LATEST = epoch(LATEST) - 1  # no time that a store holds is later


def put(connection: Connection, space: SpaceId, seconds: int | None, *, now: int) -> int:
    """Set how long a space keeps its turns, in seconds since they were spoken; None for ever.

    Turns without a time count from now. Stored turns that would expire later, or never, get that earlier time.

    Returns:
        The number of turns that get another time.
    """
    connection.execute(update(spaces).where(spaces.c.space == space).values(keep_seconds=seconds))
    if seconds is None:
        return 0
    last = func.coalesce(turns.c.spoken_at, now)
    ends = case((last > _LATEST - seconds, _LATEST), else_=last + seconds)
    is_later = or_(turns.c.expires_at.is_(None), turns.c.expires_at > ends)
    moved = connection.execute(update(turns).where(turns.c.space == space, is_later).values(expires_at=ends)).rowcount
    if moved:
        changes.count(connection, space)  # what is known of its turns elsewhere is out of date
    return int(moved)


def shorten(connection: Connection, given: Sequence[Turn]) -> None:
    """Let stored turns expire as early as they do in what is given again."""
    if given:
        of_turn = turns.c.space == bindparam("its_space"), turns.c.turn_id == bindparam("its_id")
        rows = [{"its_space": t.space, "its_id": t.turn_id, "ends": optional_epoch(t.expires_at)} for t in given]
        connection.execute(update(turns).where(*of_turn).values(expires_at=bindparam("ends")), rows)
    for space in {turn.space for turn in given}:
        changes.count(connection, space)


def of(connection: Connection, names: Iterable[SpaceId]) -> dict[SpaceId, int]:
    """For how many seconds spaces keep their turns; those that keep them for ever are left out."""
    query = select(spaces.c.space, spaces.c.keep_seconds).where(spaces.c.keep_seconds.is_not(None))
    return {SpaceId(row.space): row.keep_seconds for row in rows_in(connection, query, spaces.c.space, [*names])}


def limited(rows: Sequence[dict[str, Any]], kept: dict[SpaceId, int], *, now: int) -> list[dict[str, Any]]:
    """Rows of new turns, of which none outlasts what its space keeps."""

    found = []
    for row in rows:
        keep = kept.get(row["space"])
        spoken_at = now if row["spoken_at"] is None else row["spoken_at"]
        ends = () if keep is None else (min(spoken_at + keep, _LATEST),)
        own = () if row["expires_at"] is None else (row["expires_at"],)
        found.append({**row, "expires_at": min((*ends, *own), default=None)})
    return found
