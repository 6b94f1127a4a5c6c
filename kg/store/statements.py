"""Helpers for SQL that differs between databases, and for statements with a limited number of values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

_Item = TypeVar("_Item")
# SQLite allows 32,766 bound values in a statement; lists of ids are split well below that.
_CHUNK = 500


def chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Split the items into chunks that are small enough for one statement."""
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


def rows_in(
    connection: Connection, query: sa.Select[Any], column: sa.ColumnElement[Any], values: Iterable[Any]
) -> Iterator[sa.Row[Any]]:
    """The rows of a query in which a column has one of the values, of which there may be any number.

    The order of the query holds within each chunk of values only.
    """
    for chunk in chunks(list(values)):
        yield from connection.execute(query.where(column.in_(chunk)))


def rows_among(
    connection: Connection, statement: sa.Select[Any], values: Iterable[Any], **parameters: Any
) -> Iterator[sa.Row[Any]]:
    """The rows of a statement that has an expanding parameter ``values``, of which there may be any number.

    A statement that is made once and called again costs a small part of one that is made anew. The order of the
    statement holds within each chunk of values only.
    """
    for chunk in chunks(list(values)):
        yield from connection.execute(statement, {"values": list(chunk), **parameters})


def dialect_insert(connection: Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An insert that supports ON CONFLICT, which is not standard SQL but works in both SQLite and PostgreSQL."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def insert_or_keep(connection: Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An insert that skips rows whose key exists already."""
    return dialect_insert(connection, table).on_conflict_do_nothing()
