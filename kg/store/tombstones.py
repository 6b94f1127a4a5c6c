"""What is remembered of forgotten turns: their ids and keyed digests of their content, so that they stay forgotten."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select

from locigraph.kg.errors import TurnConflictError
from locigraph.kg.store import tables
from locigraph.kg.store.rows import content_of, turn_of
from locigraph.kg.store.statements import chunks, insert_or_keep
from locigraph.kg.types import SpaceId, Turn, TurnId

_KEY = "tombstone_key"


def put(connection: Connection, space: SpaceId, turn_ids: Sequence[TurnId] | None) -> None:
    """Remember turns that are about to be erased; None stands for all turns of the space."""
    table, key = tables.turns, _key(connection)
    query = select(table).where(table.c.space == space)
    queries = [query] if turn_ids is None else [query.where(table.c.turn_id.in_(ids)) for ids in chunks(turn_ids)]
    turns = [turn_of(row) for each in queries for row in connection.execute(each)]
    rows = [{"space": space, "turn_id": turn.turn_id, "digest": _digest(turn, key)} for turn in turns]
    if rows:
        connection.execute(insert_or_keep(connection, tables.tombstones), rows)


def read(connection: Connection, space: SpaceId) -> dict[TurnId, str]:
    """Digests of the forgotten turns of a space by id."""
    table = tables.tombstones
    rows = connection.execute(select(table.c.turn_id, table.c.digest).where(table.c.space == space))
    return {TurnId(row.turn_id): row.digest for row in rows}


def living(connection: Connection, turns: Sequence[Turn]) -> list[Turn]:
    """The turns without those that were forgotten.

    Raises:
        TurnConflictError: If a turn has the id of a forgotten one and other content.
    """
    stones = {space: read(connection, space) for space in {turn.space for turn in turns}}
    if not any(stones.values()):
        return list(turns)
    key = _key(connection)
    kept = []
    for turn in turns:
        digest = stones[turn.space].get(turn.turn_id)
        if digest is None:
            kept.append(turn)
        elif not hmac.compare_digest(digest, _digest(turn, key)):
            raise TurnConflictError(
                f"space {turn.space!r}: turn {turn.turn_id!r} has the id of a forgotten turn and other content; give "
                "the new turn a new id, or run locigraph forget --restore for the id first"
            )
    return kept


def remove(connection: Connection, space: SpaceId, turn_ids: Sequence[TurnId] | None) -> int:
    """Let turns come back, all of the space where None are named; returns how many had been forgotten."""
    table = tables.tombstones
    of_space = delete(table).where(table.c.space == space)
    if turn_ids is None:
        return connection.execute(of_space).rowcount
    return sum(connection.execute(of_space.where(table.c.turn_id.in_(ids))).rowcount for ids in chunks(turn_ids))


def _key(connection: Connection) -> bytes:
    table = tables.settings
    held = connection.execute(select(table.c.value).where(table.c.name == _KEY)).scalar()
    if held is None:
        held = secrets.token_hex(32)
        connection.execute(insert(table).values(name=_KEY, value=held))
    return bytes.fromhex(held)


def _digest(turn: Turn, key: bytes) -> str:
    return hmac.new(key, json.dumps(content_of(turn)).encode(), hashlib.sha256).hexdigest()
