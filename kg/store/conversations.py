"""Spaces and their turns in the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import func, select

from locigraph.kg.errors import UnknownSpaceError
from locigraph.kg.store import scopes, sequence, tables, tombstones
from locigraph.kg.store import turns as turns_
from locigraph.kg.store.database import Database
from locigraph.kg.store.statements import chunks
from locigraph.kg.store.turns import TurnFailure
from locigraph.kg.types import UNSTORABLE, NodeId, Scope, SpaceId, Turn, TurnId, TurnState


class Conversations(Database):
    """The part of a store that holds what was said: spaces, whose they are, turns and how far these have come."""

    def spaces(self) -> list[SpaceId]:
        """All spaces, sorted."""
        with self._read() as connection:
            return [SpaceId(s) for s in connection.scalars(select(tables.spaces.c.space).order_by("space"))]

    def scopes(self) -> dict[SpaceId, Scope]:
        """All spaces, sorted, with the user and the agent that they belong to."""
        with self._read() as connection:
            return scopes.read(connection)

    def require_space(self, space: SpaceId) -> None:
        """Raise UnknownSpaceError unless the space exists."""
        if UNSTORABLE.search(space):
            raise UnknownSpaceError(space, self.spaces())
        with self._read() as connection:
            found = connection.execute(select(tables.spaces.c.space).where(tables.spaces.c.space == space)).first()
        if found is None:
            raise UnknownSpaceError(space, self.spaces())

    def revision(self, space: SpaceId) -> int:
        """Number of the space's last change: whatever changes its graph, or the order of its turns, raises it.

        Pending turns that are appended after all others leave it as it is, and so do embeddings.
        """
        with self._read() as connection:
            found = connection.scalar(select(tables.spaces.c.revision).where(tables.spaces.c.space == space))
        if found is None:
            raise UnknownSpaceError(space, self.spaces())
        return int(found)

    def versions(self, spaces: Sequence[SpaceId]) -> dict[SpaceId, tuple[int, int]]:
        """Revision and number of turns of spaces: a snapshot is as the space is now until one of them is another.

        A space that does not exist is left out.
        """
        table, turns = tables.spaces.c, tables.turns.c
        held = select(func.count()).where(turns.space == table.space).scalar_subquery()
        found: dict[SpaceId, tuple[int, int]] = {}
        with self._read() as connection:
            for chunk in chunks(list(spaces)):
                rows = connection.execute(select(table.space, table.revision, held).where(table.space.in_(chunk)))
                found.update((SpaceId(space), (int(revision), int(count))) for space, revision, count in rows)
        return found

    def append_turns(
        self, turns: Sequence[Turn], *, scoped: Sequence[tuple[SpaceId, Scope]] = (), may_rewind: bool = True
    ) -> int:
        """Write turns durably, all or none; one that is there already, or was forgotten, is passed over.

        The store gives the positions, by session and time, so that turns may come in any portions: one by one, as new
        sessions, as a whole conversation again. Positions of the turns given only say their order among each other.

        Args:
            turns: The turns.
            scoped: To whom their spaces belong, as far as that is said; a space keeps the user and agent it has.
            may_rewind: Whether the whole space may be made pending again, its nodes removed, where a turn comes before
                one that is consolidated.

        Returns:
            How many were new.

        Raises:
            TurnConflictError: If an id holds other content, or held some that was forgotten.
            StoreError: If a field is not one that a store takes, a space is another user's or agent's, or a rewind is
                needed and not allowed; nothing is written then.
        """
        with self._write() as connection:
            return turns_.append(connection, turns, scoped, may_rewind=may_rewind)

    def forgotten(self, space: SpaceId, turn_ids: Iterable[TurnId]) -> frozenset[TurnId]:
        """Those of some turns that were forgotten, and are passed over when they come again."""
        with self._read() as connection:
            return tombstones.forgotten_among(connection, space, turn_ids)

    def has_forgotten_of(self, space: SpaceId) -> bool:
        """Whether a turn of a space was forgotten; the space itself may be gone."""
        with self._read() as connection:
            return tombstones.any_of(connection, space)

    def restore(self, space: SpaceId, turn_ids: Sequence[TurnId] | None = None) -> int:
        """Let forgotten turns be appended again, all of a space where none are named; returns how many."""
        with self._write() as connection:
            return tombstones.remove(connection, space, turn_ids)

    def misplaced(self) -> dict[SpaceId, str]:
        """Spaces whose positions or NEXT edges are not those of their conversation, each with the first such."""
        with self._read() as connection:
            found = {space: sequence.fault(connection, space) for space in self.spaces()}
        return {space: fault for space, fault in found.items() if fault is not None}

    def turns(self, space: SpaceId, *, state: TurnState | None = None) -> list[Turn]:
        """Turns of a space in conversation order, all or those in one state."""
        self.require_space(space)
        with self._read() as connection:
            return turns_.read(connection, space, state)

    def turn_counts(self, space: SpaceId) -> Counter[TurnState]:
        """Number of turns in each state; a space whose turns are not all done answers from a part of its memory."""
        self.require_space(space)
        with self._read() as connection:
            return turns_.count(connection, space)

    def speakers(self, space: SpaceId) -> list[str]:
        """Names of all who speak in a space, sorted."""
        self.require_space(space)
        with self._read() as connection:
            return turns_.speakers(connection, space)

    def last_spoken(self) -> dict[SpaceId, datetime | None]:
        """When the last turn of each space was spoken, wherever it stands; None where no turn of it has a time."""
        with self._read() as connection:
            return turns_.last_spoken(connection)

    def speakers_of(self, space: SpaceId, ids: Sequence[NodeId]) -> dict[NodeId, frozenset[str]]:
        """Whose words nodes hold: the speakers of their turns, but not of those that only said the same again."""
        with self._read() as connection:
            return turns_.speakers_of(connection, space, ids)

    def retry_turn(self, space: SpaceId, turn_id: TurnId) -> None:
        """Put a failed turn back among the pending.

        Raises:
            StoreError: If the turn did not fail; consolidating a turn twice would double its nodes.
        """
        self.require_space(space)
        with self._write() as connection:
            turns_.retry(connection, space, turn_id)

    def failures(self, space: SpaceId) -> list[TurnFailure]:
        """Turns whose consolidation failed."""
        self.require_space(space)
        with self._read() as connection:
            return turns_.failures(connection, space)
