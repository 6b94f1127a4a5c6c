"""Takes back what was drawn from the turns of a space, so that they are consolidated again, in order."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select, update

from locigraph.kg.store import changes, outbox, tables
from locigraph.kg.types import SpaceId, TurnState


def space(connection: Connection, space: SpaceId) -> None:
    """Remove the nodes of a space and make all its turns pending.

    What a turn changes depends on those before it, so a turn that comes before consolidated ones changes what these
    have come to. No words are erased, so the indexes need not be made anew: they drop rows of nodes that are gone.
    """
    nodes, turns = tables.nodes, tables.turns
    keys = list(connection.scalars(select(nodes.c.key).where(nodes.c.space == space)))
    connection.execute(delete(nodes).where(nodes.c.space == space))
    connection.execute(update(turns).where(turns.c.space == space).values(state=TurnState.PENDING, error=None))
    outbox.post(connection, space, keys, "upsert")
    changes.note(connection, space)
