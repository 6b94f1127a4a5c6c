"""The outbox, a queue of index updates: one row for each node that was written or removed, read in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, delete, func, insert, select

from locigraph.kg.store import tables
from locigraph.kg.types import SpaceId


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A node whose index row must be written or removed."""

    seq: int
    space: SpaceId
    node_key: int
    action: str


def post(connection: Connection, space: SpaceId, keys: Sequence[int], action: str) -> None:
    """Add a row for each node, so that the indexes are updated; ``action`` is ``upsert`` or ``delete``."""
    if keys:
        connection.execute(insert(tables.outbox), [{"space": space, "node_key": key, "action": action} for key in keys])


def read(connection: Connection, *, limit: int) -> list[OutboxRow]:
    """The oldest ``limit`` rows, oldest first."""
    rows = connection.execute(select(tables.outbox).order_by(tables.outbox.c.seq).limit(limit)).all()
    return [OutboxRow(row.seq, SpaceId(row.space), row.node_key, row.action) for row in rows]


def count(connection: Connection, space: SpaceId | None) -> int:
    """Number of rows of one space, or of all spaces (None)."""
    query = select(func.count()).select_from(tables.outbox)
    if space is not None:
        query = query.where(tables.outbox.c.space == space)
    return connection.execute(query).scalar_one()


def has_deletions(connection: Connection) -> bool:
    """Whether any row is for an erased node."""
    return connection.execute(select(tables.outbox.c.seq).where(tables.outbox.c.action == "delete")).first() is not None


def relist(connection: Connection) -> int:
    """Add a row for every node that has none; returns how many were added."""
    nodes, listed = tables.nodes.c, select(tables.outbox.c.node_key)
    unlisted = select(nodes.space, nodes.key, sa.literal("upsert")).where(nodes.key.not_in(listed)).order_by(nodes.key)
    return connection.execute(insert(tables.outbox).from_select(["space", "node_key", "action"], unlisted)).rowcount


def acknowledge(connection: Connection, up_to: int) -> None:
    """Delete the rows up to a sequence number, once an index has stored their changes durably."""
    connection.execute(delete(tables.outbox).where(tables.outbox.c.seq <= up_to))
