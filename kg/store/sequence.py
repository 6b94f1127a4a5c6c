"""The order of a conversation, whatever the order in which its turns arrive: by session, and sessions by time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, case, func, select, update

from locigraph.kg.schema import EPISODE
from locigraph.kg.store import changes, tables
from locigraph.kg.types import SpaceId, TurnId, TurnState

_Name = tuple[str | int, ...]
_NUMBER = re.compile(r"([0-9]{1,15})")

#: Position of a turn that was just written and has no place yet.
NEW = -1


class Placed(NamedTuple):
    """What decides a turn's place; ``position`` is the one that it holds, ``key`` counts arrivals."""

    key: int
    turn_id: TurnId
    session_id: str
    spoken_at: int | None
    position: int
    state: str


def read(connection: Connection, space: SpaceId) -> list[Placed]:
    """The turns of a space by the positions they hold."""
    table = tables.turns
    columns = (table.c[name] for name in Placed._fields)
    rows = connection.execute(select(*columns).where(table.c.space == space).order_by(table.c.position, table.c.key))
    return [Placed(*row) for row in rows]


def merged(held: Sequence[TurnId], given: Sequence[TurnId]) -> list[TurnId]:
    """One session's turns in order: new ones stand before the held one that they were given before, or at the end."""
    before: dict[TurnId, list[TurnId]] = {}
    new: list[TurnId] = []
    known = {*held}
    for turn_id in given:
        if turn_id in known:
            before.setdefault(turn_id, []).extend(new)
            new = []
        else:
            new.append(turn_id)
    return [*(each for turn_id in held for each in (*before.get(turn_id, ()), turn_id)), *new]


def in_order(sessions: Sequence[Sequence[Placed]]) -> list[Placed]:
    """The turns of a space in the order of the conversation.

    A session's own order stays. Turns of different sessions are in the order of their times, where a turn has at least
    the time of those before it in its session, and sessions of one time in the order of their names. A session without
    any time comes after all that was there when it began; turns of such sessions alternate as they arrived.
    """
    ordered: list[tuple[tuple[int, bool, _Name, int, int], Placed]] = []
    first = [min(turn.key for turn in session) for session in sessions]
    there = _latest_before(sessions, first)
    for session, arrival, began in zip(sessions, first, there, strict=True):
        dated = next((turn.spoken_at for turn in session if turn.spoken_at is not None), None)
        time, name = began if dated is None else dated, _counted(session[0].session_id)
        latest = arrival
        for place, turn in enumerate(session):
            time, latest = max(time, turn.spoken_at or 0), max(latest, turn.key)
            key = (time, True, (), latest, place) if dated is None else (time, False, name, 0, place)
            ordered.append((key, turn))
    return [turn for _, turn in sorted(ordered, key=itemgetter(0))]


def _counted(name: str) -> _Name:
    """A session's name as words and numbers in turn, so that session 2 comes before session 10."""
    return tuple(int(part) if place % 2 else part for place, part in enumerate(_NUMBER.split(name)))


def _latest_before(sessions: Sequence[Sequence[Placed]], first: Sequence[int]) -> list[int]:
    """The latest time of the turns that had arrived before each session."""
    times = dict.fromkeys(first, 0)
    latest = 0
    for turn in sorted((turn for session in sessions for turn in session), key=attrgetter("key")):
        if turn.key in times:
            times[turn.key] = latest
        latest = max(latest, turn.spoken_at or 0)
    return [times[key] for key in first]


def by_session(turns: Iterable[Placed]) -> dict[str, list[Placed]]:
    """Turns by session, in the order in which they are given."""
    found: dict[str, list[Placed]] = {}
    for turn in turns:
        found.setdefault(turn.session_id, []).append(turn)
    return found


def arrange(connection: Connection, space: SpaceId, given: Sequence[tuple[str, TurnId]]) -> TurnId | None:
    """Write the positions of a space's turns.

    Args:
        connection: Within a transaction.
        space: The space.
        given: Session and id of the turns of the file, or call, that was just written, in its order.

    Returns:
        A turn that now comes before one that is consolidated already; None if new turns only came at the end.
    """
    if _is_at_the_end(connection, space, given):
        return None
    held = read(connection, space)
    old = [turn.position for turn in held if turn.position != NEW]
    is_broken = len({*old}) < len(old)  # an earlier version let every file count from 0
    if is_broken:
        held.sort(key=attrgetter("key"))
    sessions = by_session(held)
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
    if any(turn.position not in (NEW, i) for i, turn in enumerate(ordered)):
        changes.count(connection, space)
    done = [i for i, turn in enumerate(ordered) if turn.state != TurnState.PENDING]
    early = (turn.turn_id for turn in ordered[: max(done, default=0)] if is_broken or turn.position == NEW)
    return next(early, None)


def _is_at_the_end(connection: Connection, space: SpaceId, given: Sequence[tuple[str, TurnId]]) -> bool:
    """Write the positions of turns that come after all others, if that is plain without reading these one by one.

    It is where all are new and of one session: the one of the last turn, or a new one that is later than all turns.
    """
    turns = tables.turns.c
    of_space = turns.space == space
    query = select(turns.turn_id, turns.key, turns.spoken_at).where(
        of_space, turns.state == TurnState.PENDING, turns.position == NEW
    )
    new = {row.turn_id: row for row in connection.execute(query)}
    if not given or len({session for session, _ in given}) > 1 or new.keys() != {turn_id for _, turn_id in given}:
        return False
    of_session = turns.session_id == given[0][0]
    held = connection.execute(
        select(
            func.count().label("turns"),
            func.count(turns.position.distinct()).label("places"),
            func.max(turns.position).label("last"),
            func.max(turns.spoken_at).label("latest"),
            func.max(case((of_session, turns.position))).label("last_of_session"),
            func.max(case((of_session, turns.spoken_at))).label("latest_of_session"),
        ).where(of_space, turns.position != NEW)
    ).one()
    if held.turns == 0 or not held.turns == held.places == held.last + 1:
        return False  # the first turns, or positions that an earlier version wrote
    dated = next((new[turn_id].spoken_at for _, turn_id in given if new[turn_id].spoken_at is not None), None)
    if held.last_of_session is None:
        is_last = dated is None or dated > max(held.latest or 0, 0)
    else:  # a session without any time has another place once it has one
        is_last = held.last_of_session == held.last and (dated is None or held.latest_of_session is not None)
    if is_last:
        _move(connection, {new[turn_id].key: held.turns + i for i, (_, turn_id) in enumerate(given)})
    return is_last


def _move(connection: Connection, places: Mapping[int, int]) -> None:
    """Write the positions of turns, which their keys name."""
    table = tables.turns
    connection.execute(
        update(table).where(table.c.key == bindparam("held")).values(position=bindparam("place")),
        [{"held": key, "place": place} for key, place in places.items()],
    )


def fault(connection: Connection, space: SpaceId) -> str | None:
    """The first position or NEXT edge that is not as the order of the turns has it; None if all are."""
    held = read(connection, space)
    ordered = in_order(list(by_session(held).values()))
    for place, (turn, due) in enumerate(zip(held, ordered, strict=True)):
        if turn.turn_id != due.turn_id or (place and turn.position <= held[place - 1].position):
            return f"turn {turn.turn_id!r} has position {turn.position}, where {due.turn_id!r} is due"
    episodes = _episodes(connection, space)
    chains = [[t.turn_id for t in turns if t.turn_id in episodes] for turns in by_session(ordered).values()]
    due_edges = {(episodes[a], episodes[b]): (a, b) for chain in chains for a, b in pairwise(chain)}
    edges = tables.relations.c
    rows = connection.execute(select(edges.source, edges.target).where(edges.space == space, edges.label == "NEXT"))
    found = {(int(row.source), int(row.target)) for row in rows}
    for ends in sorted(due_edges.keys() ^ found):
        if ends in found:
            return f"a NEXT edge joins nodes {ends[0]} and {ends[1]}, which no session has one after the other"
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
