"""Orders the turns of a conversation by session and time, independently of the order in which they arrive."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, func, literal, select, update

from locigraph.kg.schema import EPISODE
from locigraph.kg.store import changes, tables
from locigraph.kg.types import SpaceId, TurnId, TurnState

# Times before 1970 are negative, so 0 would not do.
_BEFORE_ALL = -math.inf

_Name = tuple[str | int, ...]
_NUMBER = re.compile(r"([0-9]{1,15})")

#: Position of a turn that was just written and not yet placed.
NEW = -1


class Placed(NamedTuple):
    """The fields that decide a turn's place; ``position`` is the stored one, ``key`` ascends in order of arrival."""

    key: int
    turn_id: TurnId
    session_id: str
    spoken_at: int | None
    position: int
    state: str


def read(connection: Connection, space: SpaceId) -> list[Placed]:
    """The turns of a space, sorted by their stored positions."""
    table = tables.turns
    columns = (table.c[name] for name in Placed._fields)
    rows = connection.execute(select(*columns).where(table.c.space == space).order_by(table.c.position, table.c.key))
    return [Placed(*row) for row in rows]


def merged(stored: Sequence[TurnId], given: Sequence[TurnId]) -> list[TurnId]:
    """Merge stored and given turns of a session: a new turn goes before the next stored one in ``given``, or last."""
    before: dict[TurnId, list[TurnId]] = {}
    new: list[TurnId] = []
    known = {*stored}
    for turn_id in given:
        if turn_id in known:
            before.setdefault(turn_id, []).extend(new)
            new = []
        else:
            new.append(turn_id)
    return [*(placed for turn_id in stored for placed in (*before.get(turn_id, ()), turn_id)), *new]


def in_order(sessions: Sequence[Sequence[Placed]]) -> list[Placed]:
    """The turns of a space in the order of the conversation.

    The order within a session is kept. Turns of different sessions are ordered by time, where a turn counts as no
    earlier than the turns before it in its session; at equal times, sessions are ordered by name. A session without any
    time comes after all turns that had arrived when it began, and the turns of several such sessions are interleaved in
    the order of arrival.
    """
    ordered: list[tuple[tuple[float, bool, _Name, str, int, int], Placed]] = []
    first = [min(turn.key for turn in session) for session in sessions]
    there = _latest_before(sessions, first)
    for session, arrival, began in zip(sessions, first, there, strict=True):
        dated = next((turn.spoken_at for turn in session if turn.spoken_at is not None), None)
        time, name = began if dated is None else dated, session[0].session_id
        latest = arrival
        for place, turn in enumerate(session):
            time = time if turn.spoken_at is None else max(time, turn.spoken_at)
            latest = max(latest, turn.key)
            order = (True, (), "", latest, place) if dated is None else (False, _counted(name), name, 0, place)
            ordered.append(((time, *order), turn))
    return [turn for _, turn in sorted(ordered, key=itemgetter(0))]


def _counted(name: str) -> _Name:
    """A sort key that alternates text and numbers (natural sort), so that session 2 comes before session 10."""
    return tuple(int(part) if place % 2 else part for place, part in enumerate(_NUMBER.split(name)))


def _latest_before(sessions: Sequence[Sequence[Placed]], first: Sequence[int]) -> list[float]:
    """For each session, the latest time of the turns that had arrived before its first turn."""
    times = dict.fromkeys(first, _BEFORE_ALL)
    latest = _BEFORE_ALL
    for turn in sorted((turn for session in sessions for turn in session), key=attrgetter("key")):
        if turn.key in times:
            times[turn.key] = latest
        latest = latest if turn.spoken_at is None else max(latest, turn.spoken_at)
    return [times[key] for key in first]


def by_session(turns: Iterable[Placed]) -> dict[str, list[Placed]]:
    """Groups turns by session, keeping their order."""
    sessions: dict[str, list[Placed]] = {}
    for turn in turns:
        sessions.setdefault(turn.session_id, []).append(turn)
    return sessions


class Early(NamedTuple):
    """A turn that now precedes an already consolidated (or failed) turn and did not precede it before.

    Attributes:
        turn_id: The first such turn.
        is_inserted: Whether only new turns do so: all others follow each other as before.
        consolidated: Number of consolidated turns of the space.
    """

    turn_id: TurnId
    is_inserted: bool
    consolidated: int


def arrange(connection: Connection, space: SpaceId, given: Sequence[tuple[str, TurnId]]) -> Early | None:
    """Write the positions of a space's turns.

    Args:
        connection: A connection within a transaction.
        space: The space.
        given: Session and id of each turn of the file or call that was just written, in its order.

    Returns:
        The first turn that precedes a consolidated turn since it is new or the order has changed, or the first turn of
        all if the stored positions were ambiguous; None if there is none.
    """
    new = _new_of_one_session(connection, space, given)
    if new and (known := _known(connection, space, new[0].session_id)):
        if _is_at_the_end(connection, known, new):
            return None
        if (place := _place_between(connection, space, known, new)) is not None:
            return _inserted(connection, space, new, place)
    stored = read(connection, space)
    old = [turn.position for turn in stored if turn.position != NEW]
    is_broken = len({*old}) < len(old)  # an earlier version counted the positions of every file from 0
    if is_broken:
        stored.sort(key=attrgetter("key"))
    sessions = by_session(stored)
    named: dict[str, list[TurnId]] = {}
    for session_id, turn_id in given:
        named.setdefault(session_id, []).append(turn_id)
    for session_id in named.keys() & sessions.keys():
        turns = {turn.turn_id: turn for turn in sessions[session_id]}
        before = [turn.turn_id for turn in turns.values() if turn.position != NEW]
        sessions[session_id] = [turns[turn_id] for turn_id in merged(before, named[session_id]) if turn_id in turns]
    ordered = in_order(list(sessions.values()))
    moved = {turn.key: i for i, turn in enumerate(ordered) if turn.position != i}
    if moved:
        _move(connection, moved)
    placed = [turn.position for turn in ordered if turn.position != NEW]
    is_inserted = not is_broken and placed == sorted(placed)  # no two turns have changed places
    if any(turn.position not in (NEW, i) for i, turn in enumerate(ordered)):
        changes.count(connection, space, () if is_inserted else None)
    early, consolidated = _first_early(ordered, _episodes(connection, space), is_broken=is_broken)
    return None if early is None else Early(early, is_inserted, consolidated)


def _first_early(
    ordered: Sequence[Placed], episodes: Container[TurnId], *, is_broken: bool
) -> tuple[TurnId | None, int]:
    """The first turn that now precedes a turn with an episode but did not before, and the number of episodes.

    A failed turn has an episode, also while it is pending again to be retried.
    """
    early, consolidated = None, 0
    earliest = math.inf  # lowest stored position of the turns with an episode that follow
    for turn in reversed(ordered):
        if earliest < (math.inf if is_broken or turn.position == NEW else turn.position):
            early = turn.turn_id
        if turn.state != TurnState.PENDING or turn.turn_id in episodes:
            earliest, consolidated = min(earliest, turn.position), consolidated + 1
    return early, consolidated


def _placed() -> Select[Any]:
    """What is known of the turns of a ``space`` that have positions, and of those of a ``session``, through indexes."""
    turns = tables.turns.c
    has_place = turns.space == bindparam("space"), turns.position != NEW
    of_session = turns.session_id == bindparam("session")
    last = select(turns.position).where(*has_place).order_by(turns.position.desc()).limit(1)
    latest = select(turns.spoken_at).where(*has_place, turns.spoken_at.is_not(None))
    return select(
        select(func.count()).where(turns.space == bindparam("space"), turns.position == 0).scalar_subquery()
        .label("first_places"),
        last.scalar_subquery().label("last"),
        last.where(of_session).scalar_subquery().label("last_of_session"),
        latest.order_by(turns.spoken_at.desc()).limit(1).scalar_subquery().label("latest"),
        select(literal(True)).where(*has_place, of_session, turns.spoken_at.is_not(None)).limit(1).scalar_subquery()
        .label("is_session_dated"),
    )  # fmt: skip


_PLACED = _placed()


def _new_of_one_session(connection: Connection, space: SpaceId, given: Sequence[tuple[str, TurnId]]) -> list[Placed]:
    """The given turns in their order, if they are of one session and all turns without a place; otherwise none."""
    turns = tables.turns.c
    query = select(*(turns[name] for name in Placed._fields)).where(
        turns.space == space, turns.state == TurnState.PENDING, turns.position == NEW
    )
    new = {row.turn_id: Placed(*row) for row in connection.execute(query)}
    if len({session for session, _ in given}) != 1 or new.keys() != {turn_id for _, turn_id in given}:
        return []
    return [new[turn_id] for _, turn_id in given]


def _known(connection: Connection, space: SpaceId, session: str) -> Row[Any] | None:
    """What ``_PLACED`` says; None for a space without turns, or with positions that are ambiguous."""
    known = connection.execute(_PLACED, {"space": space, "session": session}).one()
    # An earlier version counted the positions of every file from 0.
    return known if known.first_places == 1 else None


def _is_at_the_end(connection: Connection, placed: Row[Any], new: Sequence[Placed]) -> bool:
    """Fast path of ``arrange``: write positions of turns that clearly come last, without reading all other turns.

    This applies if the new turns are of a session that is new, or has times, or has the last turn, and if they are
    later than all others. Returns whether it applied.
    """
    times = [turn.spoken_at for turn in new]
    dated = next((time for time in times if time is not None), None)
    if placed.last_of_session is None:
        is_last = dated is None or placed.latest is None or dated > placed.latest
    elif placed.last_of_session == placed.last:  # a session without any time moves once one of its turns has a time
        is_last = dated is None or bool(placed.is_session_dated)
    else:  # sessions that go on side by side
        is_last = bool(placed.is_session_dated) and times[0] is not None and times[0] > placed.latest
    if is_last:
        _move(connection, {turn.key: placed.last + 1 + i for i, turn in enumerate(new)})
    return is_last


def _place_between(connection: Connection, space: SpaceId, known: Row[Any], new: Sequence[Placed]) -> int | None:
    """Fast path of ``arrange`` for turns that come before others: the one position where all of them belong.

    None if there is no such position, or if turns without times may be elsewhere than their times say.
    """
    turns = tables.turns.c
    placed = turns.space == space, turns.position != NEW
    undated = select(turns.key).where(*placed, turns.spoken_at.is_(None)).limit(1)
    times = [turn.spoken_at for turn in new if turn.spoken_at is not None]
    if len(times) < len(new) or connection.execute(undated).first():
        return None
    if connection.scalar(select(func.count()).where(*placed)) != known.last + 1:
        return None  # a look at all turns closes the gaps
    # A turn counts as no earlier than those before it in its session.
    of_session = select(func.max(turns.spoken_at)).where(*placed, turns.session_id == new[0].session_id)
    before = connection.scalar(of_session)
    earliest = times[0] if before is None else max(times[0], before)
    latest = max(earliest, *times)
    first_later = connection.scalar(select(func.min(turns.position)).where(*placed, turns.spoken_at > latest))
    end = int(known.last) + 1 if first_later is None else int(first_later)
    first_beside = connection.scalar(select(func.min(turns.position)).where(*placed, turns.spoken_at >= earliest))
    begin = end if first_beside is None else int(first_beside)
    if begin < end and earliest < latest:
        return None  # the new turns may stand among these
    beside = select(turns.position, turns.session_id).where(
        turns.space == space, turns.position >= begin, turns.position < end
    )
    # Of one time, sessions are ordered by name.
    name = (_counted(new[0].session_id), new[0].session_id)
    ordered = connection.execute(beside.order_by(turns.position))
    return next((int(row.position) for row in ordered if (_counted(row.session_id), row.session_id) > name), end)


def _inserted(connection: Connection, space: SpaceId, new: Sequence[Placed], place: int) -> Early | None:
    """Put new turns before the turn at a position; returns what ``arrange`` returns."""
    table = tables.turns
    following = table.c.space == space, table.c.position >= place
    shifted = connection.execute(update(table).where(*following).values(position=table.c.position + len(new))).rowcount
    _move(connection, {turn.key: place + i for i, turn in enumerate(new)})
    if shifted:
        changes.count(connection, space, ())
    # Turns that are done, and those that are tried again, which are few.
    numbers = select(func.count(), func.max(table.c.position)).where(table.c.space == space)
    done = connection.execute(numbers.where(table.c.state.in_([TurnState.DONE, TurnState.FAILED]))).one()
    again = connection.execute(numbers.where(table.c.state == TurnState.PENDING, _has_episode())).one()
    last = max((position for _, position in (done, again) if position is not None), default=NEW)
    return Early(new[0].turn_id, is_inserted=True, consolidated=done[0] + again[0]) if place < last else None


def _has_episode() -> ColumnElement[bool]:
    """Whether a turn has an episode, as a condition on the table of turns."""
    nodes, sources = tables.nodes.c, tables.provenance.c
    return (
        select(literal(True))
        .join_from(tables.provenance, tables.nodes, nodes.key == sources.node_key)
        .where(sources.turn_key == tables.turns.c.key, nodes.type == EPISODE)
        .exists()
    )


def _move(connection: Connection, places: Mapping[int, int]) -> None:
    """Write positions, given by turn key."""
    table = tables.turns
    connection.execute(
        update(table).where(table.c.key == bindparam("turn_key")).values(position=bindparam("place")),
        [{"turn_key": key, "place": place} for key, place in places.items()],
    )


def fault(connection: Connection, space: SpaceId) -> str | None:
    """The first position or NEXT edge that contradicts the order of the turns; None if there is none."""
    stored = read(connection, space)
    ordered = in_order(list(by_session(stored).values()))
    for place, (turn, due) in enumerate(zip(stored, ordered, strict=True)):
        if turn.turn_id != due.turn_id or (place and turn.position <= stored[place - 1].position):
            return f"turn {turn.turn_id!r} has position {turn.position}, where turn {due.turn_id!r} is expected"
    episodes = _episodes(connection, space)
    chains = [[t.turn_id for t in turns if t.turn_id in episodes] for turns in by_session(ordered).values()]
    due_edges = {(episodes[a], episodes[b]): (a, b) for chain in chains for a, b in pairwise(chain)}
    edges = tables.relations.c
    rows = connection.execute(select(edges.source, edges.target).where(edges.space == space, edges.label == "NEXT"))
    stored_edges = {(int(row.source), int(row.target)) for row in rows}
    for ends in sorted(due_edges.keys() ^ stored_edges):
        if ends in stored_edges:
            return f"a NEXT edge joins nodes {ends[0]} and {ends[1]}, which do not follow each other in any session"
        before, after = due_edges[ends]
        return f"turns {before!r} and {after!r} follow each other, but no NEXT edge joins them"
    return None


def _episodes(connection: Connection, space: SpaceId) -> dict[TurnId, int]:
    nodes, sources, turns = tables.nodes.c, tables.provenance.c, tables.turns.c
    query = (
        select(turns.turn_id, nodes.key)
        .join(tables.provenance, sources.turn_key == turns.key)
        .join(tables.nodes, nodes.key == sources.node_key)
        .where(turns.space == space, nodes.type == EPISODE)
    )
    return {TurnId(row.turn_id): int(row.key) for row in connection.execute(query)}
