"""Opens a database with this project's settings, and writes the rows of the schema."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, insert, select

from locigraph.kg.errors import StoreError
from locigraph.kg.schema import NODE_TYPES, RELATION_LABELS
from locigraph.kg.store import tables


def make_engine(url: str) -> Engine:
    """An engine with this project's connection settings; StoreError if the URL cannot be used."""
    try:
        engine = sa.create_engine(url)
    except (sa.exc.ArgumentError, ModuleNotFoundError) as error:
        raise StoreError(f"store URL {url!r} cannot be used: {error}") from error
    if engine.dialect.name != "sqlite":
        return engine

    # pysqlite opens transactions late and only for some statements; this hands control to us, so that a writer
    # takes the lock at once and its reads and writes are one transaction.
    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, record: object) -> None:
        connection.isolation_level = None
        # secure_delete overwrites what forget() erases.
        pragmas = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON", "busy_timeout=30000")
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def is_seeded(connection: Connection) -> bool:
    """Whether all node types and relation labels of the schema are there."""
    types = set(connection.scalars(select(tables.node_types.c.name)))
    labels = set(connection.scalars(select(tables.relation_labels.c.name)))
    return types.issuperset(NODE_TYPES) and labels.issuperset(RELATION_LABELS)


def seed_schema(connection: Connection) -> None:
    """Write the node types and relation labels of the schema that are not there yet."""
    for table, rows in ((tables.node_types, NODE_TYPES), (tables.relation_labels, RELATION_LABELS)):
        held = set(connection.scalars(select(table.c.name)))
        for row in rows.values():
            if row.name not in held:
                values = {column.name: getattr(row, column.name) for column in table.columns}
                connection.execute(insert(table).values(values))
