"""What a change of a space leaves to be done: it is counted, and listed for graph embeddings and indexes.

All of it is written in the same transaction as the change itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, update

from locigraph.kg.store.tables import changed_spaces, outbox, spaces
from locigraph.kg.types import SpaceId


def mark_changed(connection: Connection, space: SpaceId) -> None:
    """List a space for new graph embeddings; its new number protects it from acknowledgements of earlier states."""
    connection.execute(delete(changed_spaces).where(changed_spaces.c.space == space))
    connection.execute(insert(changed_spaces).values(space=space))
    count(connection, space)


def count(connection: Connection, space: SpaceId) -> None:
    """Count a change; called alone for changes that do not affect graph embeddings, such as a new order of turns."""
    connection.execute(update(spaces).where(spaces.c.space == space).values(revision=spaces.c.revision + 1))


def post(connection: Connection, space: SpaceId, keys: Sequence[int], action: str) -> None:
    """Add a row for each node to the outbox, so that indexes are updated; ``action`` is ``upsert`` or ``delete``."""
    if keys:
        connection.execute(insert(outbox), [{"space": space, "node_key": key, "action": action} for key in keys])
