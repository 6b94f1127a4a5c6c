"""The one deletion there is: turns, or a whole tenant, with all that was drawn from them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, select

from kg import tables
from kg.commit import chunks, post, turn_keys_of
from kg.errors import StoreError
from kg.types import SpaceId, TurnId

# They are made of many turns and only name what these speak of; the wording of all others may hold what must go.
_SHARED = ("concept", "entity")


def turns(connection: Connection, space: SpaceId, turn_ids: Sequence[TurnId]) -> int:
    """Erase turns and what was drawn from them; see ``Store.forget``.

    Args:
        connection: Of the transaction.
        space: The tenant.
        turn_ids: All of them must be there.

    Returns:
        Number of nodes removed.

    Raises:
        StoreError: If a turn is not in the space.
    """
    turn_keys = turn_keys_of(connection, space, turn_ids)
    missing = sorted(set(turn_ids) - set(turn_keys))
    if missing:
        raise StoreError(f"space {space!r} holds no turn {missing[0]!r}; nothing was forgotten")
    doomed_turns = set(turn_keys.values())
    touched: dict[int, str] = {}
    for chunk in chunks(sorted(doomed_turns)):
        touched.update(
            (row.key, row.type)
            for row in connection.execute(
                select(tables.nodes.c.key, tables.nodes.c.type)
                .join(tables.provenance, tables.provenance.c.node_key == tables.nodes.c.key)
                .where(tables.provenance.c.turn_key.in_(chunk))
            )
        )
    doomed = [key for key, kind in touched.items() if kind not in _SHARED]
    for key in (key for key, kind in touched.items() if kind in _SHARED):
        sources = connection.scalars(select(tables.provenance.c.turn_key).where(tables.provenance.c.node_key == key))
        if set(sources) <= doomed_turns:
            doomed.append(key)
    _nodes(connection, space, doomed)
    relations = tables.relations
    for names in chunks(sorted(turn_keys)):  # what a turn said of nodes that stay
        connection.execute(delete(relations).where(relations.c.space == space, relations.c.turn_id.in_(names)))
    for chunk in chunks(sorted(doomed_turns)):
        connection.execute(delete(tables.turns).where(tables.turns.c.key.in_(chunk)))
    return len(doomed)


def space(connection: Connection, space: SpaceId) -> None:
    """Erase a tenant with everything it holds, within the connection's transaction."""
    keys = list(connection.scalars(select(tables.nodes.c.key).where(tables.nodes.c.space == space)))
    _nodes(connection, space, keys)
    connection.execute(delete(tables.turns).where(tables.turns.c.space == space))
    for name in connection.scalars(select(tables.settings.c.name)).all():
        if name.partition("/")[2] == space:
            connection.execute(delete(tables.settings).where(tables.settings.c.name == name))
    connection.execute(delete(tables.spaces).where(tables.spaces.c.space == space))


def _nodes(connection: Connection, space: SpaceId, keys: Sequence[int]) -> None:
    """Relations, earlier versions and embeddings go with their nodes; the outbox tells every index."""
    for chunk in chunks(sorted(keys)):
        connection.execute(delete(tables.nodes).where(tables.nodes.c.key.in_(chunk)))
    post(connection, space, keys, "delete")
