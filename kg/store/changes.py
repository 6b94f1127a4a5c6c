"""Counts the changes of each space, and lists the spaces whose graph embeddings must be recomputed.

Both are written in the same transaction as the change itself.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, update

from locigraph.kg.store.tables import changed_spaces, spaces
from locigraph.kg.types import SpaceId


def mark_changed(connection: Connection, space: SpaceId) -> None:
    """List a space for new graph embeddings; its new number protects it from acknowledgements of earlier states."""
    connection.execute(delete(changed_spaces).where(changed_spaces.c.space == space))
    connection.execute(insert(changed_spaces).values(space=space))
    count(connection, space)


def count(connection: Connection, space: SpaceId) -> None:
    """Count a change; called alone for changes that do not affect graph embeddings, such as a new order of turns."""
    connection.execute(update(spaces).where(spaces.c.space == space).values(revision=spaces.c.revision + 1))
