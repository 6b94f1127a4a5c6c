"""Reads and writes turns and the source turns of nodes; once written, the content of a turn never changes."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter

from sqlalchemy import Connection, insert, select, update

from locigraph.kg.errors import StoreError, shortened
from locigraph.kg.store import rewind, scopes, sequence, tables, tombstones
from locigraph.kg.store.rows import require_same, turn_of, turn_row
from locigraph.kg.store.statements import rows_in
from locigraph.kg.types import Scope, SpaceId, Turn, TurnId


def append(
    connection: Connection, turns: Sequence[Turn], scoped: Sequence[tuple[SpaceId, Scope]], *, may_rewind: bool
) -> int:
    """Write turns that are not stored yet; see ``Store.append_turns``."""
    unique: dict[tuple[SpaceId, TurnId], Turn] = {}
    for turn in sorted(turns, key=attrgetter("position")):
        if turn.fault is not None:
            field, value, expected = turn.fault
            raise StoreError(
                f"space {turn.space[:60]!r}: turn {turn.turn_id[:60]!r}: {field} is {shortened(value)}; expected "
                f"{expected}; nothing was written"
            )
        require_same(unique.setdefault((turn.space, turn.turn_id), turn), turn)
    living = tombstones.without_forgotten(connection, list(unique.values()))
    stored = _stored(connection, living)
    for turn in living:
        if (stored_turn := stored.get((turn.space, turn.turn_id))) is not None:
            require_same(stored_turn, turn)
    new = [turn for turn in living if (turn.space, turn.turn_id) not in stored]
    for space in sorted({turn.space for turn in new}):
        if not connection.execute(select(tables.spaces).where(tables.spaces.c.space == space)).first():
            connection.execute(insert(tables.spaces).values(space=space, revision=secrets.randbits(48)))
    scopes.put(connection, scoped, {space for space, _ in unique} - {turn.space for turn in living})
    if new:
        connection.execute(insert(tables.turns), [turn_row(turn) for turn in new])
    given_of: defaultdict[SpaceId, list[tuple[str, TurnId]]] = defaultdict(list)
    for turn in living:
        given_of[turn.space].append((turn.session_id, turn.turn_id))
    for space, given in sorted(given_of.items()):
        early = sequence.arrange(connection, space, given)
        if early is not None and not may_rewind:
            raise StoreError(
                f"space {space!r}: turn {early!r} comes before turns that are already consolidated, and this file "
                "lacks some of the stored turns; build with a file that holds the whole conversation"
            )
        if early is not None:
            rewind.remove_nodes_of(connection, space, early)
    return len(new)


def _stored(connection: Connection, turns: Sequence[Turn]) -> dict[tuple[SpaceId, TurnId], Turn]:
    """The stored versions of the given turns, by space and id; turns that are not stored are left out."""
    ids_of: defaultdict[SpaceId, list[TurnId]] = defaultdict(list)
    for turn in turns:
        ids_of[turn.space].append(turn.turn_id)
    table = tables.turns
    stored = [
        turn_of(row)
        for space, ids in ids_of.items()
        for row in rows_in(connection, select(table).where(table.c.space == space), table.c.turn_id, ids)
    ]
    return {(turn.space, turn.turn_id): turn for turn in stored}


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
        .order_by(t.c.position)
    )
    turn_ids: dict[int, list[TurnId]] = {}
    for row in rows_in(connection, query, p.c.node_key, keys):
        turn_ids.setdefault(int(row.node_key), []).append(TurnId(row.turn_id))
    return {key: tuple(ids) for key, ids in turn_ids.items()}
