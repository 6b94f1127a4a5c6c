"""Finds faults of a store: corrupt pages and dangling references (SQLite), and changed or unreadable rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import Connection, select, text

from locigraph.kg.files import parsed_json
from locigraph.kg.language.tokens import one_line
from locigraph.kg.store import embeddings, tables
from locigraph.kg.store.commit import text_digest
from locigraph.kg.store.rows import turn_of
from locigraph.kg.times import optional_moment
from locigraph.kg.types import NodeStatus, TurnState

# Faults reported for each kind.
_MOST = 5
# Raw SQL, so that no value is decoded before it is checked.
_TURNS = "SELECT * FROM turns"
_NODES = """
SELECT id, space, status, created_at, update_time, valid_from, valid_to, attributes FROM nodes
UNION ALL
SELECT n.id, n.space, v.status, n.created_at, v.update_time, v.valid_from, v.valid_to, v.attributes
FROM node_versions v JOIN nodes n ON n.key = v.key
"""
_EPISODES = """
SELECT t.*, n.description AS description
FROM turns t JOIN provenance p ON p.turn_key = t.key JOIN nodes n ON n.key = p.node_key
WHERE n.type = 'episode'
"""


def find(connection: Connection) -> list[str]:
    """One line for each fault, at most five of each kind."""
    checks: tuple[Callable[[Connection], Iterator[str]], ...]
    checks = (_unreadable_turns, _unreadable_nodes, _changed_texts, _changed_turns, embeddings.faults)
    if connection.dialect.name == "sqlite":  # a server checks pages and references itself
        broken = [one_line(str(row[0])) for row in connection.exec_driver_sql(f"PRAGMA integrity_check({_MOST})")]
        if broken != ["ok"]:
            return broken
        checks = (_lost, *checks)
    return [line for check in checks for line in islice(check(connection), _MOST)]


def _lost(connection: Connection) -> Iterator[str]:
    for row in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"a row of {row[0]} refers to a row that does not exist"


def _unreadable_turns(connection: Connection) -> Iterator[str]:
    for row in connection.execute(text(_TURNS)):
        if not _is_readable(_read_turn, row):
            yield f"turn {row.turn_id!r} of space {row.space!r} cannot be read"


def _unreadable_nodes(connection: Connection) -> Iterator[str]:
    for row in connection.execute(text(_NODES)):
        if not _is_readable(_read_node, row):
            yield f"node {row.id!r} of space {row.space!r} cannot be read"


def _is_readable(read: Callable[[Any], None], row: Any) -> bool:
    try:
        read(row)
    except (ValueError, TypeError, OverflowError, OSError):  # the last two for times outside the calendar's range
        return False
    return True


def _read_turn(row: Any) -> None:
    TurnState(row.state)
    turn = turn_of(row)
    texts = (turn.turn_id, turn.conversation_id, turn.session_id, turn.speaker, turn.text, turn.image_caption or "")
    if not all(isinstance(value, str) for value in texts) or not isinstance(turn.position, int):
        raise TypeError("a field is of another type")


def _read_node(row: Any) -> None:
    NodeStatus(row.status)
    for at in (row.created_at, row.update_time, row.valid_from, row.valid_to):
        optional_moment(at)
    held = row.attributes
    if not isinstance(parsed_json(held) if isinstance(held, str) else held, dict):  # PostgreSQL's driver parses it
        raise TypeError("the attributes are not an object")


def _changed_texts(connection: Connection) -> Iterator[str]:
    for row in connection.execute(select(tables.nodes.c.id, tables.nodes.c.description, tables.nodes.c.text_hash)):
        if not isinstance(row.description, str) or text_digest(row.description) != row.text_hash:
            yield f"the text of node {row.id} was changed after it was written"


def _changed_turns(connection: Connection) -> Iterator[str]:
    for row in connection.execute(text(_EPISODES)):
        if _is_readable(_read_turn, row) and turn_of(row).utterance != row.description:
            yield f"turn {row.turn_id!r} of space {row.space!r} was changed after it was written"
