"""Statements that databases write differently, or whose length they limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

_Item = TypeVar("_Item")
# SQLite allows 32,766 bound values in a statement; lists of ids are cut well below that.
_CHUNK = 500


def chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """The items in runs short enough for one statement."""
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


def dialect_insert(connection: Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An insert that can say what to do on a conflict: not in the SQL standard, but SQLite and PostgreSQL share it."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def insert_or_keep(connection: Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An insert that passes over rows whose key is there."""
    return dialect_insert(connection, table).on_conflict_do_nothing()
