"""The outbox, a queue of index updates: one row for each node that was written or removed, read in order."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, insert

from locigraph.kg.store import tables
from locigraph.kg.types import SpaceId


def post(connection: Connection, space: SpaceId, keys: Sequence[int], action: str) -> None:
    """Add a row for each node, so that the indexes are updated; ``action`` is ``upsert`` or ``delete``."""
    if keys:
        connection.execute(insert(tables.outbox), [{"space": space, "node_key": key, "action": action} for key in keys])
