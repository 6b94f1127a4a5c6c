"""Reads and writes turns and the source turns of nodes; once written, the content of a turn never changes."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from sqlalchemy import Connection, func, insert, select, update

from locigraph.kg.errors import LateTurnError, StoreError, shortened
from locigraph.kg.store import retention, rewind, scopes, sequence, tables, tombstones
from locigraph.kg.store.rows import require_same, turn_of, turn_row
from locigraph.kg.store.statements import rows_in
from locigraph.kg.types import Scope, SpaceId, Turn, TurnId


def append(
    connection: Connection,
    turns: Sequence[Turn],
    scoped: Sequence[tuple[SpaceId, Scope]],
    *,
    may_rewind: bool,
    most_redone: int | None = None,
    now: int,
) -> int:
    """Write turns that are not stored yet, at a time in seconds since 1970; see ``Store.append_turns``."""
    living, new, owners, earlier = appendable(connection, turns, scoped)
    for space in dict.fromkeys(turn.space for turn in new):
        if not connection.execute(select(tables.spaces).where(tables.spaces.c.space == space)).first():
            first = secrets.randbits(48)
            connection.execute(insert(tables.spaces).values(space=space, revision=first, renewed_in=first))
    # A space gets no owner if all turns given for it were forgotten.
    scopes.put(connection, {space: names for space, names in owners.items() if living.get(space) != []})
    if new:
        kept = retention.of(connection, {turn.space for turn in new})
        connection.execute(insert(tables.turns), retention.limited([turn_row(turn) for turn in new], kept, now=now))
    retention.shorten(connection, earlier)
    for space, said in living.items():
        if not said:
            continue
        early = sequence.arrange(connection, space, [(turn.session_id, turn.turn_id) for turn in said])
        if early is None or (early.is_inserted and most_redone is not None and early.consolidated > most_redone):
            continue
        if not may_rewind:
            raise LateTurnError(
                f"space {space!r}: turn {early.turn_id!r} comes before turns that are already consolidated, and this "
                "file lacks some of the stored turns; build with a file that holds the whole conversation"
            )
        rewind.remove_nodes_of(connection, space, early.turn_id)
    return len(new)


def appendable(
    connection: Connection, turns: Sequence[Turn], scoped: Sequence[tuple[SpaceId, Scope]]
) -> tuple[dict[SpaceId, list[Turn]], list[Turn], dict[SpaceId, dict[str, str]], list[Turn]]:
    """What ``append`` would write.

    Returns:
        (The turns of each space that were not forgotten, those that are new, new owners, stored turns that now expire
        earlier).

    Raises:
        TurnConflictError, StoreError: As ``Store.append_turns``.
    """
    given: defaultdict[SpaceId, dict[TurnId, Turn]] = defaultdict(dict)
    for turn in sorted(turns, key=attrgetter("position")):
        if turn.fault is not None:
            field, value, expected = turn.fault
            raise StoreError(
                f"space {turn.space[:60]!r}: turn {turn.turn_id[:60]!r}: {field} is {shortened(value)}; expected "
                f"{expected}; nothing was written"
            )
        first = given[turn.space].setdefault(turn.turn_id, turn)
        require_same(first, turn)
        if _is_earlier(turn, first):
            given[turn.space][turn.turn_id] = replace(first, expires_at=turn.expires_at)
    living = {
        space: tombstones.without_forgotten(connection, space, list(unique.values()))
        for space, unique in sorted(given.items())
    }
    owners = scopes.lacking(connection, scoped)
    new: list[Turn] = []
    earlier: list[Turn] = []
    for space, said in living.items():
        stored = _stored(connection, space, said)
        new += [turn for turn in said if turn.turn_id not in stored]
        earlier += [turn for turn in said if turn.turn_id in stored and _is_earlier(turn, stored[turn.turn_id])]
    return living, new, owners, earlier


def _stored(connection: Connection, space: SpaceId, turns: Sequence[Turn]) -> dict[TurnId, Turn]:
    """Those of the given turns that are stored; raises TurnConflictError if one is stored with other content."""
    table = tables.turns
    query = select(table).where(table.c.space == space)
    rows = rows_in(connection, query, table.c.turn_id, [turn.turn_id for turn in turns])
    stored = {row.turn_id: turn_of(row) for row in rows}
    for turn in turns:
        require_same(stored.get(turn.turn_id, turn), turn)
    return stored


def _is_earlier(turn: Turn, first: Turn) -> bool:
    """Whether a turn that is given again expires earlier than the one that was given first."""
    return turn.expires_at is not None and (first.expires_at is None or turn.expires_at < first.expires_at)


def drop_reasons(connection: Connection, space: SpaceId) -> None:
    """Erase the failure reasons of a space's turns, which may quote a language model's text about forgotten turns."""
    table = tables.turns
    failed = table.c.space == space, table.c.error.is_not(None)
    reason = "the reason was erased when turns of this space were forgotten; retry the turn to see it again"
    connection.execute(update(table).where(*failed).values(error=reason))


def keys_of(connection: Connection, space: SpaceId, turn_ids: Sequence[TurnId]) -> dict[TurnId, int]:
    """Integer keys of turns by id; turns that are not stored are left out."""
    table = tables.turns.c
    query = select(table.turn_id, table.key).where(table.space == space)
    return {TurnId(row.turn_id): int(row.key) for row in rows_in(connection, query, table.turn_id, turn_ids)}


def of_nodes(
    connection: Connection, space: SpaceId, keys: Sequence[int], *, latest: int
) -> dict[int, tuple[TurnId, ...]]:
    """Source turns of nodes by integer key, in conversation order, as known at ``latest`` (seconds since 1970)."""
    p, t = tables.provenance, tables.turns
    query = (
        select(p.c.node_key, t.c.turn_id)
        .join(t, t.c.key == p.c.turn_key)
        # concat("") keeps SQLite from using the index on space, which would read all turns of a space per node.
        .where(t.c.space.concat("") == space, p.c.recorded_at <= latest)
        # A second pass may have dated a source back to when its node was new.
        .where(func.coalesce(t.c.spoken_at, 0) <= latest)
        .order_by(t.c.position)
    )
    turn_ids: dict[int, list[TurnId]] = {}
    for row in rows_in(connection, query, p.c.node_key, keys):
        turn_ids.setdefault(int(row.node_key), []).append(TurnId(row.turn_id))
    return {key: tuple(ids) for key, ids in turn_ids.items()}
