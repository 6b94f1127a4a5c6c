"""What is due in the vector index: nodes to write, and spaces whose graph embeddings have changed."""

from __future__ import annotations

from locigraph.kg.store import changes, outbox
from locigraph.kg.store.database import Database
from locigraph.kg.store.outbox import OutboxRow
from locigraph.kg.types import SpaceId


class Queues(Database):
    """The part of a store that tells indexers what to write, until they acknowledge it."""

    def read_outbox(self, *, limit: int) -> list[OutboxRow]:
        """The oldest rows that no indexer has acknowledged."""
        with self._read() as connection:
            return outbox.read(connection, limit=limit)

    def outbox_size(self, space: SpaceId | None = None) -> int:
        """Number of rows that no indexer has acknowledged, of one space or of all."""
        with self._read() as connection:
            return outbox.count(connection, space)

    def has_forgotten(self) -> bool:
        """Whether something was erased of which an index may not know yet."""
        with self._read() as connection:
            return outbox.has_deletions(connection)

    def relist_outbox(self) -> int:
        """List every node that the outbox does not list, as if it had just been written: for an index made anew.

        Returns:
            Number of nodes that were not listed.
        """
        with self._write() as connection:
            return outbox.relist(connection)

    def acknowledge_outbox(self, up_to: int) -> None:
        """Drop the rows up to a sequence number: the index holds them durably."""
        with self._write() as connection:
            outbox.acknowledge(connection, up_to)

    def changed_spaces(self) -> dict[SpaceId, int]:
        """Spaces whose graph embeddings are due, each with the number of its last change."""
        with self._read() as connection:
            return changes.read(connection)

    def acknowledge_change(self, space: SpaceId, up_to: int) -> None:
        """Take a space off that list: its embeddings are in the index as of the change of this number."""
        with self._write() as connection:
            changes.acknowledge(connection, space, up_to)
