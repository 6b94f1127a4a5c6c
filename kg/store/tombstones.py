"""Tombstones of forgotten turns, which keep them from being added again: keyed digests of their ids and content."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from sqlalchemy import Connection, delete, select

from locigraph.kg.errors import TurnConflictError
from locigraph.kg.store import remembered, tables
from locigraph.kg.store.alike import Mark, marks_of, marks_sought, recognised
from locigraph.kg.store.rows import content_of, turn_of
from locigraph.kg.store.statements import chunks, insert_or_keep, rows_in
from locigraph.kg.types import SpaceId, Turn, TurnId

_KEY = "tombstone_key"


def put(connection: Connection, space: SpaceId, turn_ids: Sequence[TurnId] | None) -> None:
    """Write tombstones for turns that are about to be erased; None stands for all turns of the space."""
    table, key = tables.turns, _key(connection)
    query = select(table).where(table.c.space == space)
    found = connection.execute(query) if turn_ids is None else rows_in(connection, query, table.c.turn_id, turn_ids)
    turns = [turn_of(row) for row in found]
    rows = [
        {"space": space, "turn": _digest(turn.turn_id, key), "content": _digest(content_of(turn), key)}
        for turn in turns
    ]
    if rows:
        connection.execute(insert_or_keep(connection, tables.tombstones), rows)
        marks = [
            {"space": space, "mark": _digest(mark, key), "turn": row["turn"]}
            for turn, row in zip(turns, rows, strict=True)
            for mark in marks_of(turn)
        ]
        connection.execute(insert_or_keep(connection, tables.tombstone_marks), marks)


def any_of(connection: Connection, space: SpaceId) -> bool:
    """Whether any turn of a space was forgotten."""
    query = select(tables.tombstones.c.turn).where(tables.tombstones.c.space == space).limit(1)
    return connection.execute(query).first() is not None


def without_forgotten(connection: Connection, space: SpaceId, turns: Sequence[Turn]) -> list[Turn]:
    """The turns of a space without those that were forgotten.

    Raises:
        TurnConflictError: If a turn has the id of a forgotten one but different content.
    """
    contents = contents_of(connection, space, [turn.turn_id for turn in turns])
    if not contents:
        return list(turns)
    key = _key(connection)
    for turn in turns:
        content = contents.get(turn.turn_id)
        if content is not None and not hmac.compare_digest(content, _digest(content_of(turn), key)):
            raise TurnConflictError(
                f"space {space!r}: turn {turn.turn_id!r} has the id of a forgotten turn but different content; "
                "give the new turn a new id, or first run locigraph forget --restore for this id"
            )
    return [turn for turn in turns if turn.turn_id not in contents]


def remove(connection: Connection, space: SpaceId, turn_ids: Sequence[TurnId] | None) -> int:
    """Allow forgotten turns to be added again (None: all of the space); returns how many had been forgotten."""
    of_marks, of_turns = (
        delete(table).where(table.c.space == space) for table in (tables.tombstone_marks, tables.tombstones)
    )
    if turn_ids is None:
        connection.execute(of_marks)
        return connection.execute(of_turns).rowcount
    key, removed = _key(connection), 0
    for part in chunks([_digest(turn_id, key) for turn_id in turn_ids]):
        connection.execute(of_marks.where(tables.tombstone_marks.c.turn.in_(part)))
        removed += connection.execute(of_turns.where(tables.tombstones.c.turn.in_(part))).rowcount
    return removed


def contents_of(connection: Connection, space: SpaceId, turn_ids: Iterable[TurnId]) -> dict[TurnId, str]:
    """Content digests of those given turns that were forgotten; only the tombstones of given turns are read."""
    if not any_of(connection, space):
        return {}  # returns early, since the store may have no key yet: only forgetting generates it
    table = tables.tombstones
    of_space = select(table.c.turn, table.c.content).where(table.c.space == space)
    key = _key(connection)
    named = {_digest(turn_id, key): turn_id for turn_id in turn_ids}
    return {named[row.turn]: row.content for row in rows_in(connection, of_space, table.c.turn, named)}


def alike(
    connection: Connection, space: SpaceId, turns: Sequence[Turn], stored: AbstractSet[TurnId]
) -> frozenset[TurnId]:
    """Which exported turns, apart from stored ones, are forgotten ones under another id; see ``kg.store.alike``."""
    if not any_of(connection, space):
        return frozenset()
    key, table = _key(connection), tables.tombstone_marks
    given = {_digest(turn.turn_id, key): turn.turn_id for turn in turns}
    known = stored | contents_of(connection, space, given.values()).keys()
    unknown = [turn for turn in turns if turn.turn_id not in known]
    digests = {_digest(mark, key): mark for turn in unknown for mark in marks_sought(turn)}
    forgotten: defaultdict[Mark, list[str]] = defaultdict(list)
    for row in rows_in(connection, select(table).where(table.c.space == space), table.c.mark, digests):
        if row.turn not in given:
            forgotten[digests[row.mark]].append(row.turn)
    return frozenset(recognised(unknown, forgotten))


def _key(connection: Connection) -> bytes:
    """The store's secret key for digests, generated with the first tombstone."""
    return bytes.fromhex(remembered.put_first(connection, _KEY, secrets.token_hex(32)))


def _digest(value: object, key: bytes) -> str:
    return hmac.new(key, json.dumps(value).encode(), hashlib.sha256).hexdigest()
