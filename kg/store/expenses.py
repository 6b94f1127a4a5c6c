"""Usage of language models (calls, tokens, cost, unusable replies) by space, turn and stage."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, delete, insert, select, update

from locigraph.kg.counts import Spent
from locigraph.kg.store import tables, turns
from locigraph.kg.types import SpaceId, TurnId

_TABLE = tables.spent.c
_NO_TURN = ""


def read(connection: Connection, space: SpaceId) -> dict[tuple[str, str], Spent]:
    """Usage for a space, by turn and stage."""
    rows = connection.execute(select(tables.spent).where(_TABLE.space == space).order_by(_TABLE.turn_id, _TABLE.stage))
    return {(row.turn_id, row.stage): Spent.of_stored(row._mapping) for row in rows}


def add(connection: Connection, space: SpaceId, turn_id: str, stage: str, spent: Spent) -> None:
    """Add to the stored usage; that for a turn that is not stored counts for no turn, since it was forgotten."""
    if not turns.keys_of(connection, space, [TurnId(turn_id)]):
        turn_id = _NO_TURN
    more = spent.stored()
    is_row = _TABLE.space == space, _TABLE.turn_id == turn_id, _TABLE.stage == stage
    sums = {name: _TABLE[name] + value for name, value in more.items()}
    if not connection.execute(update(tables.spent).where(*is_row).values(sums)).rowcount:
        connection.execute(insert(tables.spent).values(space=space, turn_id=turn_id, stage=stage, **more))


def forget_turns(connection: Connection, space: SpaceId, turn_ids: Collection[TurnId]) -> None:
    """Move the usage of forgotten turns to the turn ``""``: the sums count against limits, but no turn id is kept."""
    for (turn, stage), spent in read(connection, space).items():
        if turn in turn_ids:
            is_row = _TABLE.space == space, _TABLE.turn_id == turn, _TABLE.stage == stage
            connection.execute(delete(tables.spent).where(*is_row))
            add(connection, space, _NO_TURN, stage, spent)
