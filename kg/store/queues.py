"""Pending work for the vector index: nodes to write, and spaces whose graph embeddings must be recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import delete, func, insert, select

from locigraph.kg.store import changes, tables
from locigraph.kg.store.database import Database
from locigraph.kg.store.statements import chunks, rows_in
from locigraph.kg.types import SpaceId

_OUTBOX, _CHANGED = tables.outbox.c, tables.changed_spaces.c


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A node whose index row must be written or removed."""

    seq: int
    space: SpaceId
    node_key: int
    action: str


class Queues(Database):
    """The part of a store that lists what indexers must write, until they acknowledge it."""

    def read_outbox(self, *, limit: int) -> list[OutboxRow]:
        """The oldest rows that no indexer has acknowledged, oldest first."""
        with self._read() as connection:
            rows = connection.execute(select(tables.outbox).order_by(_OUTBOX.seq).limit(limit))
            return [OutboxRow(row.seq, SpaceId(row.space), row.node_key, row.action) for row in rows]

    def outbox_size(self, space: SpaceId | None = None) -> int:
        """Number of rows that no indexer has acknowledged, of one space or of all spaces (None)."""
        query = select(func.count()).select_from(tables.outbox)
        if space is not None:
            query = query.where(_OUTBOX.space == space)
        with self._read() as connection:
            return connection.execute(query).scalar_one()

    def has_forgotten(self) -> bool:
        """Whether nodes were erased that an index may still hold."""
        with self._read() as connection:
            return connection.execute(select(_OUTBOX.seq).where(_OUTBOX.action == "delete")).first() is not None

    def relist_outbox(self) -> int:
        """Add every node that the outbox lacks, as if it had just been written; used to rebuild an index.

        Returns:
            Number of nodes that were not listed.
        """
        nodes, listed = tables.nodes.c, select(_OUTBOX.node_key)
        lacking = (
            select(nodes.space, nodes.key, sa.literal("upsert")).where(nodes.key.not_in(listed)).order_by(nodes.key)
        )
        statement = insert(tables.outbox).from_select(["space", "node_key", "action"], lacking)
        with self._write() as connection:
            return connection.execute(statement).rowcount

    def acknowledge_outbox(self, rows: Sequence[OutboxRow]) -> None:
        """Drop rows that were read, once the index has stored their changes durably.

        Each is named, since on a server a row with a lower number may be committed after one with a higher number.
        """
        with self._write() as connection:
            for chunk in chunks([row.seq for row in rows]):
                connection.execute(delete(tables.outbox).where(_OUTBOX.seq.in_(chunk)))

    def changed_spaces(self) -> dict[SpaceId, int]:
        """Spaces whose graph embeddings must be recomputed, each with the number of its last change; oldest first."""
        seq = func.max(_CHANGED.seq)
        query = select(_CHANGED.space, seq).group_by(_CHANGED.space).order_by(seq)
        with self._read() as connection:
            return {SpaceId(space): int(number) for space, number in connection.execute(query)}

    def changed_nodes(self, space: SpaceId, *, after: int = 0) -> tuple[int, frozenset[int] | None]:
        """What has changed in a space since its graph embeddings were computed.

        Args:
            space: The space.
            after: Number of the last change that was seen to already; only later ones are looked at.

        Returns:
            (The number of the last change, 0 if there is none; keys of nodes that are new, changed or gone, or that are
            turns with other edges, or None if anything may have changed).
        """
        query = select(_CHANGED.seq, _CHANGED.node_key).where(_CHANGED.space == space, _CHANGED.seq > after)
        with self._read() as connection:
            rows = connection.execute(query).all()
        keys = [row.node_key for row in rows]
        nodes = None if None in keys else frozenset(int(key) for key in keys)
        return max((int(row.seq) for row in rows), default=0), nodes

    def word_statistics(self, space: SpaceId, collection: str | None = None) -> bytes | None:
        """The counts of words by which the graph embeddings of a space weigh words; None if there are none.

        Args:
            space: The space.
            collection: The collection that holds the embeddings; None for the only one, or for no counts where a
                refresh is just making another.
        """
        table = tables.word_statistics
        query = select(table.c.content).where(table.c.space == space)
        if collection is not None:
            query = query.where(table.c.collection == collection)
        with self._read() as connection:
            found = connection.scalars(query).all()
            return found[0] if len(found) == 1 else None

    def put_word_statistics(self, space: SpaceId, collection: str, content: bytes) -> None:
        """Keep these counts until they are renewed, or something of the space is forgotten.

        A space that was forgotten meanwhile has none.
        """
        table, spaces = tables.word_statistics, tables.spaces
        with self._write(space) as connection:
            connection.execute(delete(table).where(table.c.space == space, table.c.collection == collection))
            if connection.scalar(select(spaces.c.space).where(spaces.c.space == space)) is not None:
                connection.execute(insert(table).values(space=space, collection=collection, content=content))

    def keep_word_statistics(self, collections: Sequence[str]) -> None:
        """Drop the counts of words of all other collections."""
        table = tables.word_statistics
        with self._write() as connection:
            connection.execute(delete(table).where(table.c.collection.not_in(collections)))

    def acknowledge_changes(self, up_to: Mapping[SpaceId, int], *, by: str = "") -> None:
        """Take spaces off that list, unless they have changed since.

        Args:
            up_to: For each space the number of the last change that the index reflects.
            by: Name of the process that wrote their embeddings, for ``embedded_by``.
        """
        if not up_to:
            return
        spaces, values = tables.spaces, [{"named": space, "number": number} for space, number in up_to.items()]
        named, number = sa.bindparam("named", type_=sa.String), sa.bindparam("number", type_=sa.BigInteger)
        with self._write(*up_to) as connection:
            changed = delete(tables.changed_spaces).where(_CHANGED.space == named, _CHANGED.seq <= number)
            connection.execute(changed, values)
            connection.execute(
                sa.update(spaces).where(spaces.c.space == named).values(embedded_by=by),
                [{"named": space} for space in up_to],
            )

    def embedded_by(self, spaces: Sequence[SpaceId]) -> dict[SpaceId, str | None]:
        """Who wrote the graph embeddings of spaces last; None if nobody has. Unknown spaces are left out."""
        table = tables.spaces.c
        with self._read() as connection:
            rows = rows_in(connection, select(table.space, table.embedded_by), table.space, spaces)
            return {SpaceId(row.space): row.embedded_by for row in rows}

    def list_changed(self, spaces: Sequence[SpaceId]) -> None:
        """Put spaces on that list, although nothing was changed, since their embeddings may be lacking."""
        for space in spaces:
            with self._write(space) as connection:
                changes.list_changed(connection, space)
