"""Pending work for the vector index: nodes to write, and spaces whose graph embeddings must be recomputed."""

from __future__ import annotations

from locigraph.kg.store import changes, outbox
from locigraph.kg.store.database import Database
from locigraph.kg.store.outbox import OutboxRow
from locigraph.kg.types import SpaceId


class Queues(Database):
    """The part of a store that lists what indexers must write, until they acknowledge it."""

    def read_outbox(self, *, limit: int) -> list[OutboxRow]:
        """The oldest rows that no indexer has acknowledged."""
        with self._read() as connection:
            return outbox.read(connection, limit=limit)

    def outbox_size(self, space: SpaceId | None = None) -> int:
        """Number of rows that no indexer has acknowledged, of one space or of all spaces (None)."""
        with self._read() as connection:
            return outbox.count(connection, space)

    def has_forgotten(self) -> bool:
        """Whether nodes were erased that an index may still hold."""
        with self._read() as connection:
            return outbox.has_deletions(connection)

    def relist_outbox(self) -> int:
        """Add every node that the outbox lacks, as if it had just been written; used to rebuild an index.

        Returns:
            Number of nodes that were not listed.
        """
        with self._write() as connection:
            return outbox.relist(connection)

    def acknowledge_outbox(self, up_to: int) -> None:
        """Drop the rows up to a sequence number, once the index has stored their changes durably."""
        with self._write() as connection:
            outbox.acknowledge(connection, up_to)

    def changed_spaces(self) -> dict[SpaceId, int]:
        """Spaces whose graph embeddings must be recomputed, each with the number of its last change."""
        with self._read() as connection:
            return changes.read(connection)

    def acknowledge_change(self, space: SpaceId, up_to: int) -> None:
        """Take a space off that list unless it changed after ``up_to``, the change that the index reflects."""
        with self._write() as connection:
            changes.acknowledge(connection, space, up_to)
