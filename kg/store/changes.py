"""What a change of a space leaves to be done: it is counted, and listed for graph embeddings and indexes.

All of it is written in the same transaction as the change itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, func, insert, select, update

from locigraph.kg.store.tables import changed_spaces, outbox, spaces
from locigraph.kg.types import SpaceId

# Above this number of changed nodes a space is embedded as a whole.
_NODES_LISTED = 5_000


def mark_changed(connection: Connection, space: SpaceId, nodes: Iterable[int] | None = None) -> None:
    """List a space for new graph embeddings; its new number protects it from acknowledgements of earlier states.

    Args:
        connection: A connection within a transaction.
        space: The space.
        nodes: Keys of the nodes that are new or have changed, and of the turns that have other edges now; None if
            anything may have changed.
    """
    list_changed(connection, space, nodes)
    count(connection, space)


def list_changed(connection: Connection, space: SpaceId, nodes: Iterable[int] | None = None) -> None:
    """List a space for new graph embeddings, without counting a change; see ``mark_changed``."""
    c = changed_spaces.c
    keys: list[int | None] = [None] if nodes is None else [*sorted({*nodes})]
    if not keys:
        return
    listed, named = connection.execute(select(func.count(), func.count(c.node_key)).where(c.space == space)).one()
    if listed > named or listed + len(keys) > _NODES_LISTED:
        keys = [None]
    if keys == [None]:
        connection.execute(delete(changed_spaces).where(c.space == space))
    connection.execute(insert(changed_spaces), [{"space": space, "node_key": key} for key in keys])


def count(connection: Connection, space: SpaceId) -> None:
    """Count a change; called alone for changes that do not affect graph embeddings, such as a new order of turns."""
    connection.execute(update(spaces).where(spaces.c.space == space).values(revision=spaces.c.revision + 1))


def post(connection: Connection, space: SpaceId, keys: Sequence[int], action: str) -> None:
    """Add a row for each node to the outbox, so that indexes are updated; ``action`` is ``upsert`` or ``delete``."""
    if keys:
        connection.execute(insert(outbox), [{"space": space, "node_key": key, "action": action} for key in keys])
