"""Counts the changes of each space, and lists those whose graph embeddings are due.

Both are written by the transaction that changes the space.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, insert, select, update

from locigraph.kg.store.tables import changed_spaces, spaces
from locigraph.kg.types import SpaceId


def mark_changed(connection: Connection, space: SpaceId) -> None:
    """Mark a space as due for new graph embeddings; the new number prevents an acknowledgement of an earlier state."""
    connection.execute(delete(changed_spaces).where(changed_spaces.c.space == space))
    connection.execute(insert(changed_spaces).values(space=space))
    count(connection, space)


def count(connection: Connection, space: SpaceId) -> None:
    """Count a change that graph embeddings do not see, such as another order of turns."""
    connection.execute(update(spaces).where(spaces.c.space == space).values(revision=spaces.c.revision + 1))


def read(connection: Connection) -> dict[SpaceId, int]:
    """The listed spaces with the number of their last change, in the order of these."""
    seq = func.max(changed_spaces.c.seq)
    query = select(changed_spaces.c.space, seq).group_by(changed_spaces.c.space).order_by(seq)
    return {SpaceId(space): int(number) for space, number in connection.execute(query)}


def acknowledge(connection: Connection, space: SpaceId, up_to: int) -> None:
    """Take a space off the list unless it has changed since."""
    connection.execute(delete(changed_spaces).where(changed_spaces.c.space == space, changed_spaces.c.seq <= up_to))
