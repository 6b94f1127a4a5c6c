"""Spaces and their turns in the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from math import ceil
from typing import Any

from sqlalchemy import Connection, Select, bindparam, exists, func, or_, select, update

from locigraph.kg.errors import StoreError, UnknownSpaceError
from locigraph.kg.schema import EPISODE, SUPERSEDED_BY
from locigraph.kg.store import retention, sequence, tables, tombstones
from locigraph.kg.store import standing as standing_
from locigraph.kg.store import turns as turns_
from locigraph.kg.store.database import Database
from locigraph.kg.store.rows import said_of, turn_of
from locigraph.kg.store.statements import rows_among, rows_in
from locigraph.kg.times import epoch, moment, optional_moment
from locigraph.kg.types import ANYBODY, UNSTORABLE, NodeId, Replacement, Said, Scope, SpaceId, Turn, TurnId, TurnState

_KNOWN = select(tables.spaces.c.space).where(tables.spaces.c.space == bindparam("space"))


_TURNS = tables.turns.c
#: What ``said_of`` reads of a turn, which leaves out its words.
_SAID = (
    _TURNS.turn_id, _TURNS.session_id, _TURNS.speaker, _TURNS.spoken_at, _TURNS.metadata, _TURNS.expires_at,
)  # fmt: skip


def _said_by_node() -> Select[Any]:
    return select(tables.nodes.c.id, *_SAID)


@cache
def _origins() -> Select[Any]:
    """The turns whose words the nodes ``values`` of a ``space`` contain."""
    nodes, sources, turns = tables.nodes, tables.provenance, tables.turns
    return (
        _said_by_node()
        .join(sources, sources.c.node_key == nodes.c.key)
        .join(turns, turns.c.key == sources.c.turn_key)
        .where(
            nodes.c.space == bindparam("space"),
            nodes.c.id.in_(bindparam("values", expanding=True)),
            sources.c.worded,
        )
    )


@cache
def _replacements() -> Select[Any]:
    """What has replaced the nodes ``values`` of a ``space``; see ``Conversations.replacements_of``."""
    nodes, relations, turns = tables.nodes, tables.relations, tables.turns
    fact, target, episode = nodes.alias("fact"), nodes.alias("target"), nodes.alias("episode")
    own, other, new, its = (tables.provenance.alias(name) for name in ("own", "other", "new", "its"))
    return (
        _said_by_node()
        .add_columns(relations.c.created_at, target.c.id.label("fact"), episode.c.id.label("episode"))
        .join(own, (own.c.node_key == nodes.c.key) & own.c.worded)
        .join(other, (other.c.turn_key == own.c.turn_key) & other.c.worded)
        .join(fact, fact.c.key == other.c.node_key)
        .join(relations, (relations.c.source == fact.c.key) & (relations.c.label == SUPERSEDED_BY))
        .join(target, target.c.key == relations.c.target)
        .join(new, (new.c.node_key == target.c.key) & new.c.worded & (new.c.turn_key != own.c.turn_key))
        .join(turns, turns.c.key == new.c.turn_key)
        .join(its, its.c.turn_key == turns.c.key)
        .join(episode, (episode.c.key == its.c.node_key) & (episode.c.type == EPISODE))
        .where(
            nodes.c.space == bindparam("space"),
            nodes.c.id.in_(bindparam("values", expanding=True)),
            (fact.c.key == nodes.c.key)
            | ((nodes.c.type == EPISODE) & (2 * func.length(fact.c.description) >= func.length(nodes.c.description))),
        )
        .order_by(relations.c.created_at, turns.c.key, target.c.key)
    )


@dataclass(frozen=True, slots=True)
class TurnFailure:
    """A turn whose consolidation failed, and why."""

    turn_id: TurnId
    error: str


class Conversations(Database):
    """The part of a store that holds conversations: spaces, their owners, turns, and the state of each turn."""

    def spaces(self) -> list[SpaceId]:
        """All spaces, sorted."""
        return list(self.scopes())

    def scopes(self) -> dict[SpaceId, Scope]:
        """All spaces, sorted, with the user and agent to whom they belong."""
        table = tables.spaces.c
        query = select(table.space, table.user, table.agent).order_by(table.space)
        with self._read() as connection:
            return {SpaceId(row.space): Scope(row.user, row.agent) for row in connection.execute(query)}

    def titles(self) -> dict[SpaceId, str]:
        """The titles of all spaces that have one."""
        table = tables.spaces.c
        query = select(table.space, table.title).where(table.title.is_not(None)).order_by(table.space)
        with self._read() as connection:
            return {SpaceId(row.space): row.title for row in connection.execute(query)}

    def put_titles(self, titles: Mapping[SpaceId, str]) -> None:
        """Give spaces titles, in place of those that they have.

        Spaces that are not stored are ignored, and those of which turns were forgotten, since a title may tell of them.
        """
        table = tables.spaces
        known = self.titles()
        due = {space: title for space, title in titles.items() if known.get(space) != title}
        if due:
            with self._write(*due) as connection:
                for space, title in due.items():
                    if tombstones.any_of(connection, space):
                        continue
                    connection.execute(update(table).where(table.c.space == space).values(title=title))

    def retentions(self) -> dict[SpaceId, timedelta]:
        """How long spaces keep their turns; those that keep them for ever are left out."""
        with self._read() as connection:
            kept = retention.of(connection, self.spaces())
        return {space: timedelta(seconds=seconds) for space, seconds in kept.items()}

    def set_retention(self, space: SpaceId, keep: timedelta | None) -> int:
        """Let the turns of a space expire so long after they were spoken; None keeps new ones for ever.

        Turns without a time count from now, or from when they are added. An expiry is never put off.

        Returns:
            Number of stored turns that now expire earlier.

        Raises:
            UnknownSpaceError: If there is no such space.
        """
        with self._write(space) as connection:
            self._require(connection, space)
            seconds = None if keep is None else ceil(keep.total_seconds())
            return retention.put(connection, space, seconds, now=epoch(datetime.now(UTC)))

    def standings(
        self, spaces: Sequence[SpaceId] | None = None, scope: Scope = ANYBODY
    ) -> dict[SpaceId, standing_.Standing]:
        """How some spaces stand, or all (None) of a scope, sorted by name; those that do not exist are left out."""
        named = None if spaces is None else [space for space in spaces if not UNSTORABLE.search(space)]
        with self._read() as connection:
            return standing_.standings(connection, named, scope)

    def require_space(self, space: SpaceId) -> None:
        """Raise UnknownSpaceError unless the space exists."""
        with self._read() as connection:
            self._require(connection, space)

    def _require(self, connection: Connection, space: SpaceId) -> None:
        """See ``require_space``."""
        if UNSTORABLE.search(space) or connection.execute(_KNOWN, {"space": space}).first() is None:
            raise UnknownSpaceError(space, self.spaces())

    def revision(self, space: SpaceId) -> int:
        """Revision number of a space, which increases with each change of its graph or of the order of its turns.

        Appending pending turns at the end does not change it, nor does writing embeddings.
        """
        with self._read() as connection:
            revision = connection.scalar(select(tables.spaces.c.revision).where(tables.spaces.c.space == space))
        if revision is None:
            raise UnknownSpaceError(space, self.spaces())
        return int(revision)

    def versions(self, spaces: Sequence[SpaceId]) -> dict[SpaceId, tuple[int, int]]:
        """Revision and number of turns of each space; a snapshot is up to date as long as both are unchanged.

        Spaces that do not exist are left out.
        """
        table, turns = tables.spaces.c, tables.turns.c
        turn_count = select(func.count()).where(turns.space == table.space).scalar_subquery()
        query = select(table.space, table.revision, turn_count.label("turns"))
        with self._read() as connection:
            rows = rows_in(connection, query, table.space, spaces)
            return {SpaceId(row.space): (int(row.revision), int(row.turns)) for row in rows}

    def append_turns(
        self,
        turns: Sequence[Turn],
        *,
        scoped: Sequence[tuple[SpaceId, Scope]] = (),
        may_rewind: bool = True,
        most_redone: int | None = None,
    ) -> int:
        """Write turns durably, all or none; turns that are already stored, or were forgotten, are skipped.

        The store assigns positions by session and time, so turns may arrive in any portions: one by one, as new
        sessions, or as the whole conversation again. The positions of ``turns`` only give their relative order.

        Args:
            turns: The turns.
            scoped: The owners of their spaces, where known; a user or agent that a space has already is kept. A space
                gets no owner if all turns given for it were forgotten.
            may_rewind: Whether all nodes of the space may be removed and all its turns made pending again if a new
                turn comes before one that is already consolidated.
            most_redone: If more turns than this would have to be consolidated again, nothing is removed, and the new
                turn is to be consolidated between the others; None for no such limit. It does not hold where others
                change places, as those of a session may that gets its first time.

        Returns:
            Number of turns that were new.

        Raises:
            TurnConflictError: If a stored or forgotten turn has the same id and different content.
            StoreError: If a field is invalid, or a space belongs to another user or agent; nothing is written then.
            LateTurnError: If a rewind is needed but not allowed; nothing is written then.
        """
        with self._write(*(turn.space for turn in turns), *(space for space, _ in scoped)) as connection:
            now = epoch(datetime.now(UTC))
            return turns_.append(connection, turns, scoped, may_rewind=may_rewind, most_redone=most_redone, now=now)

    def require_appendable(self, turns: Sequence[Turn], *, scoped: Sequence[tuple[SpaceId, Scope]] = ()) -> None:
        """Raise what ``append_turns`` would raise for turns whatever their order, without writing anything."""
        with self._read() as connection:
            turns_.appendable(connection, turns, scoped)

    def forgotten(self, space: SpaceId, turn_ids: Iterable[TurnId]) -> frozenset[TurnId]:
        """Which of the given turns were forgotten, and so are skipped if they are appended again."""
        with self._read() as connection:
            return frozenset(tombstones.contents_of(connection, space, turn_ids))

    def forgotten_alike(self, space: SpaceId, turns: Sequence[Turn]) -> frozenset[TurnId]:
        """Which exported turns are forgotten ones under another id, since ids made of content change with it.

        A turn is recognised if its time was read otherwise or added, its speaker renamed, or its words edited.
        """
        with self._read() as connection:
            stored = turns_.keys_of(connection, space, [turn.turn_id for turn in turns])
            return tombstones.alike(connection, space, turns, stored.keys())

    def forgotten_count(self) -> int:
        """Number of turns that were forgotten, in all spaces; it grows whenever any is."""
        with self._read() as connection:
            return connection.execute(select(func.count()).select_from(tables.tombstones)).scalar_one()

    def has_forgotten_of(self, space: SpaceId) -> bool:
        """Whether any turn of a space was forgotten; the space itself need not exist any more."""
        with self._read() as connection:
            return tombstones.any_of(connection, space)

    def restore(self, space: SpaceId, turn_ids: Sequence[TurnId] | None = None) -> int:
        """Allow forgotten turns to be appended again, with None all of a space; returns their number."""
        with self._write(space) as connection:
            return tombstones.remove(connection, space, turn_ids)

    def misplaced(self) -> dict[SpaceId, str]:
        """Spaces whose positions or NEXT edges contradict the order of their turns, each with its first fault."""
        with self._read() as connection:
            faults = {space: sequence.fault(connection, space) for space in self.spaces()}
        return {space: fault for space, fault in faults.items() if fault is not None}

    def turns(self, space: SpaceId, *, state: TurnState | None = None) -> list[Turn]:
        """Turns of a space in conversation order, all or those in one state."""
        table = tables.turns.c
        query = select(tables.turns).where(table.space == space).order_by(table.position, table.key)
        if state is not None:
            query = query.where(table.state == state)
        with self._read() as connection:
            self._require(connection, space)
            return [turn_of(row) for row in connection.execute(query)]

    def states_of(self, space: SpaceId, turns: Sequence[TurnId]) -> dict[TurnId, TurnState]:
        """The states of those of these turns that the space has."""
        table = tables.turns.c
        query = select(table.turn_id, table.state).where(table.space == space)
        with self._read() as connection:
            rows = rows_in(connection, query, table.turn_id, turns)
            return {TurnId(row.turn_id): TurnState(row.state) for row in rows}

    def places_of(self, space: SpaceId, turns: Sequence[TurnId]) -> dict[TurnId, tuple[int, datetime | None]]:
        """Position in the conversation and time of those of these turns that the space has."""
        table = tables.turns.c
        query = select(table.turn_id, table.position, table.spoken_at).where(table.space == space)
        with self._read() as connection:
            rows = rows_in(connection, query, table.turn_id, turns)
            return {TurnId(row.turn_id): (row.position, optional_moment(row.spoken_at)) for row in rows}

    def turn_counts(self, space: SpaceId) -> Counter[TurnState]:
        """Number of turns in each state; answers about a space are incomplete until all its turns are done."""
        state = tables.turns.c.state
        query = select(state, func.count()).where(tables.turns.c.space == space).group_by(state)
        with self._read() as connection:
            self._require(connection, space)
            return Counter({TurnState(name): int(number) for name, number in connection.execute(query)})

    def speakers(self, space: SpaceId, *, now: datetime | None = None) -> list[str]:
        """Names of all who speak in a space, sorted; without those of whom all has expired ``now``, if it is given."""
        table = tables.turns.c
        query = select(table.speaker).where(table.space == space).distinct().order_by(table.speaker)
        if now is not None:
            query = query.where(or_(table.expires_at.is_(None), table.expires_at > epoch(now)))
        with self._read() as connection:
            self._require(connection, space)
            return list(connection.scalars(query))

    def last_spoken(self, spaces: Sequence[SpaceId] | None = None) -> dict[SpaceId, datetime | None]:
        """Latest time of any turn of each space, whatever its position; None if no turn has a time.

        Args:
            spaces: Leaves out all others; None for all spaces that have turns.
        """
        return self._spoken(func.max, spaces)

    def first_spoken(self, spaces: Sequence[SpaceId]) -> dict[SpaceId, datetime | None]:
        """Earliest time of any turn of each of some spaces; None if no turn has a time."""
        return self._spoken(func.min, spaces)

    def _spoken(
        self, extreme: Callable[[Any], Any], spaces: Sequence[SpaceId] | None
    ) -> dict[SpaceId, datetime | None]:
        table, turns = tables.spaces.c, tables.turns.c
        of_space = turns.space == table.space
        time = select(extreme(turns.spoken_at)).where(of_space).scalar_subquery()  # one step in an index
        query = select(table.space, time.label("time")).where(exists().where(of_space))
        with self._read() as connection:
            rows = connection.execute(query) if spaces is None else rows_in(connection, query, table.space, spaces)
            return {SpaceId(row.space): optional_moment(row.time) for row in rows}

    def origins_of(self, space: SpaceId, ids: Sequence[NodeId]) -> dict[NodeId, tuple[Said, ...]]:
        """The turns whose words nodes contain; those that only repeated the statement are left out.

        Nodes that are not stored are left out.
        """
        found: dict[NodeId, list[Said]] = {}
        with self._read() as connection:
            for row in rows_among(connection, _origins(), ids, space=space):
                found.setdefault(NodeId(row.id), []).append(said_of(row))
        return {node: tuple(said) for node, said in found.items()}

    def replacements_of(self, space: SpaceId, ids: Sequence[NodeId]) -> dict[NodeId, tuple[Replacement, ...]]:
        """What has replaced nodes, in the order in which that was learnt.

        A turn is replaced if a fact is that was taken from it and that is at least half as long: otherwise the turn
        says more, which still holds. Nodes that nothing has replaced are left out.
        """
        found: dict[NodeId, dict[Replacement, None]] = {}
        with self._read() as connection:
            for row in rows_among(connection, _replacements(), ids, space=space):
                made = Replacement(said_of(row), moment(row.created_at), (NodeId(row.fact), NodeId(row.episode)))
                found.setdefault(NodeId(row.id), {})[made] = None
        return {node: tuple(replacements) for node, replacements in found.items()}

    def said_in(
        self, space: SpaceId, node_type: str | None = None, *, keys: Collection[int] | None = None
    ) -> dict[NodeId, tuple[str, tuple[Said, ...]]]:
        """All nodes of a space, or those of a type: the type of each, and the turns whose words it contains.

        With ``keys`` only those that have one of these keys.
        """
        nodes, sources, turns = tables.nodes, tables.provenance, tables.turns.c
        # Turns are read once, not once for each node.
        query = (
            select(nodes.c.id, nodes.c.type, sources.c.turn_key)
            .join(sources, sources.c.node_key == nodes.c.key)
            # concat("") keeps SQLite from using the index on space where keys are given.
            .where((nodes.c.space if keys is None else nodes.c.space.concat("")) == space, sources.c.worded)
        )
        query = query if node_type is None else query.where(nodes.c.type == node_type)
        of_turns = select(turns.key, *_SAID).where(turns.space == space)
        with self._read() as connection:
            if keys is None:
                pairs: list[Any] = [*connection.execute(query)]
                told: Iterable[Any] = connection.execute(of_turns)
            else:
                pairs = [*rows_in(connection, query, nodes.c.key, sorted(keys))]
                told = rows_in(connection, of_turns, turns.key, sorted({row.turn_key for row in pairs}))
            said = {row.key: said_of(row) for row in told}
        found: dict[NodeId, tuple[str, list[Said]]] = {}
        for node, kind, turn in pairs:
            found.setdefault(node, (kind, []))[1].append(said[turn])
        return {node: (kind, tuple(said)) for node, (kind, said) in found.items()}

    def expired(self, now: datetime, spaces: Sequence[SpaceId] | None = None) -> dict[SpaceId, list[TurnId]]:
        """The turns of some spaces, or of all, whose time has come to be forgotten."""
        table = tables.turns.c
        query = (
            select(table.space, table.turn_id).where(table.expires_at <= epoch(now)).order_by(table.space, table.key)
        )
        found: dict[SpaceId, list[TurnId]] = {}
        with self._read() as connection:
            rows = connection.execute(query) if spaces is None else rows_in(connection, query, table.space, spaces)
            for row in rows:
                found.setdefault(SpaceId(row.space), []).append(TurnId(row.turn_id))
        return found

    def retry_turn(self, space: SpaceId, turn_id: TurnId) -> None:
        """Make a failed turn pending again.

        Raises:
            StoreError: If the turn did not fail; consolidating a turn twice would duplicate its nodes.
        """
        self.require_space(space)
        table = tables.turns.c
        failed = table.space == space, table.turn_id == turn_id, table.state == TurnState.FAILED
        with self._write(space) as connection:
            statement = update(tables.turns).where(*failed).values(state=TurnState.PENDING, error=None)
            if connection.execute(statement).rowcount != 1:
                raise StoreError(f"space {space!r} has no failed turn {turn_id!r}; only failed turns can be retried")

    def failures(self, space: SpaceId) -> list[TurnFailure]:
        """Turns whose consolidation failed."""
        table = tables.turns.c
        query = (
            select(table.turn_id, table.error)
            .where(table.space == space, table.state == TurnState.FAILED)
            .order_by(table.position)
        )
        with self._read() as connection:
            self._require(connection, space)
            return [TurnFailure(TurnId(row.turn_id), row.error or "") for row in connection.execute(query)]
