"""Reads and writes turns and the source turns of nodes; once written, the content of a turn never changes."""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from sqlalchemy import Connection, func, insert, select, update

from locigraph.kg.errors import StoreError, shortened
from locigraph.kg.store import rewind, scopes, sequence, tables, tombstones
from locigraph.kg.store.rows import require_same, turn_of, turn_row
from locigraph.kg.store.statements import chunks
from locigraph.kg.times import moment
from locigraph.kg.types import NodeId, Scope, SpaceId, Turn, TurnId, TurnState


@dataclass(frozen=True, slots=True)
class TurnFailure:
    """A turn whose consolidation failed, and why."""

    turn_id: TurnId
    error: str


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
    held = _held(connection, living)
    for turn in living:
        if (twin := held.get((turn.space, turn.turn_id))) is not None:
            require_same(twin, turn)
    new = [turn for turn in living if (turn.space, turn.turn_id) not in held]
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


def _held(connection: Connection, turns: Sequence[Turn]) -> dict[tuple[SpaceId, TurnId], Turn]:
    """The stored versions of the given turns, by space and id; turns that are not stored are left out."""
    ids_of: defaultdict[SpaceId, list[TurnId]] = defaultdict(list)
    for turn in turns:
        ids_of[turn.space].append(turn.turn_id)
    table = tables.turns
    found = [
        turn_of(row)
        for space, ids in ids_of.items()
        for chunk in chunks(ids)
        for row in connection.execute(select(table).where(table.c.space == space, table.c.turn_id.in_(chunk)))
    ]
    return {(turn.space, turn.turn_id): turn for turn in found}


def read(connection: Connection, space: SpaceId, state: TurnState | None) -> list[Turn]:
    """Turns in conversation order: all, or those in one state."""
    table = tables.turns
    query = select(table).where(table.c.space == space).order_by(table.c.position, table.c.key)
    if state is not None:
        query = query.where(table.c.state == state)
    return [turn_of(row) for row in connection.execute(query)]


def count(connection: Connection, space: SpaceId) -> Counter[TurnState]:
    """Number of turns in each state."""
    state = tables.turns.c.state
    query = select(state, func.count()).where(tables.turns.c.space == space).group_by(state)
    return Counter({TurnState(name): int(number) for name, number in connection.execute(query)})


def failures(connection: Connection, space: SpaceId) -> list[TurnFailure]:
    """Turns whose consolidation failed."""
    table = tables.turns
    rows = connection.execute(
        select(table.c.turn_id, table.c.error)
        .where(table.c.space == space, table.c.state == TurnState.FAILED)
        .order_by(table.c.position)
    ).all()
    return [TurnFailure(TurnId(row.turn_id), row.error or "") for row in rows]


def drop_reasons(connection: Connection, space: SpaceId) -> None:
    """Erase the failure reasons of a space's turns, which may quote a language model's text about forgotten turns."""
    table = tables.turns
    failed = table.c.space == space, table.c.error.is_not(None)
    reason = "the reason was erased when turns of this space were forgotten; retry the turn to see it again"
    connection.execute(update(table).where(*failed).values(error=reason))


def set_state(connection: Connection, space: SpaceId, turn_id: TurnId, state: TurnState, error: str | None) -> None:
    """Set a turn's consolidation state; raises StoreError if the space does not hold the turn."""
    table = tables.turns
    result = connection.execute(
        update(table).where(table.c.space == space, table.c.turn_id == turn_id).values(state=state, error=error)
    )
    if result.rowcount != 1:
        raise StoreError(f"space {space!r} has no turn {turn_id!r}")


def retry(connection: Connection, space: SpaceId, turn_id: TurnId) -> None:
    """Make a failed turn pending again; see ``Store.retry_turn``."""
    table = tables.turns
    failed = table.c.space == space, table.c.turn_id == turn_id, table.c.state == TurnState.FAILED
    result = connection.execute(update(table).where(*failed).values(state=TurnState.PENDING, error=None))
    if result.rowcount != 1:
        raise StoreError(f"space {space!r} has no failed turn {turn_id!r}; only failed turns can be retried")


def keys_of(connection: Connection, space: SpaceId, turn_ids: Sequence[TurnId]) -> dict[TurnId, int]:
    """Integer keys of turns by id; turns that are not stored are left out."""
    table = tables.turns
    found: dict[TurnId, int] = {}
    for chunk in chunks(list(turn_ids)):
        rows = connection.execute(
            select(table.c.turn_id, table.c.key).where(table.c.space == space, table.c.turn_id.in_(chunk))
        )
        found.update((TurnId(row.turn_id), int(row.key)) for row in rows)
    return found


def speakers(connection: Connection, space: SpaceId) -> list[str]:
    """Names of all speakers of a space, sorted."""
    table = tables.turns
    query = select(table.c.speaker).where(table.c.space == space).distinct().order_by(table.c.speaker)
    return list(connection.scalars(query))


def last_spoken(connection: Connection, spaces: Sequence[SpaceId] | None) -> dict[SpaceId, datetime | None]:
    """Latest time of any turn of each space, or of some; None if no turn has a time."""
    table = tables.turns.c
    query = select(table.space, func.max(table.spoken_at)).group_by(table.space)
    if spaces is not None:
        query = query.where(table.space.in_(spaces))
    return {SpaceId(space): moment(latest) for space, latest in connection.execute(query)}


def speakers_of(connection: Connection, space: SpaceId, ids: Sequence[NodeId]) -> dict[NodeId, frozenset[str]]:
    """Speakers of the turns from which nodes took their words, by node; nodes that are not stored are left out."""
    n, p, t = tables.nodes, tables.provenance, tables.turns
    found: dict[NodeId, set[str]] = {}
    for chunk in chunks(list(ids)):
        query = (
            select(n.c.id, t.c.speaker)
            .join(p, p.c.node_key == n.c.key)
            .join(t, t.c.key == p.c.turn_key)
            .where(n.c.space == space, n.c.id.in_(chunk), p.c.worded)
        )
        for row in connection.execute(query):
            found.setdefault(NodeId(row.id), set()).add(row.speaker)
    return {node: frozenset(names) for node, names in found.items()}


def of_nodes(
    connection: Connection, space: SpaceId, keys: Sequence[int], *, latest: int
) -> dict[int, tuple[TurnId, ...]]:
    """Source turns of nodes by integer key, in conversation order, as known at ``latest`` (seconds since 1970)."""
    p, t = tables.provenance, tables.turns
    found: dict[int, list[TurnId]] = {}
    for chunk in chunks(list(keys)):
        query = (
            select(p.c.node_key, t.c.turn_id)
            .join(t, t.c.key == p.c.turn_key)
            # concat("") keeps SQLite from using the index on space, which would read all turns of a space per node.
            .where(t.c.space.concat("") == space, p.c.recorded_at <= latest, p.c.node_key.in_(chunk))
            .order_by(t.c.position)
        )
        for row in connection.execute(query):
            found.setdefault(int(row.node_key), []).append(TurnId(row.turn_id))
    return {key: tuple(ids) for key, ids in found.items()}
