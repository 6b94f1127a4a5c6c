"""Opens a database with this project's settings, and writes the rows of the schema."""

from __future__ import annotations

import logging
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, insert, select

from locigraph.kg.errors import StoreError, how_to_install, shortened
from locigraph.kg.files import STORE_ID, is_foreign, readable_errors
from locigraph.kg.schema import NODE_TYPES, RELATION_LABELS
from locigraph.kg.store import postgresql, tables

Access = Literal["create", "write", "read"]
_MODES: dict[Access, str] = {"create": "rwc", "write": "rw", "read": "ro"}
_BACKENDS = ("sqlite", "postgresql")
_UNMARKED = "0001"  # schema revision without an application id; revision 0002 sets it


def shown_url(url: str) -> str:
    """A store's URL with the password hidden, for use in error messages."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True) if "://" in url else url
    except (sa.exc.ArgumentError, ValueError):
        return url.partition("://")[0] + "://..."  # it may hold a password


def make_engine(url: str, access: Access) -> Engine:
    """An engine with this project's connection settings; raises StoreError if the URL cannot be used.

    Connecting to an SQLite file of another application raises StoreError before anything is changed.
    """
    if access not in _MODES:
        raise StoreError(f"access is {shortened(access)}; expected one of {', '.join(_MODES)}")
    if not url.strip():
        raise StoreError("the path of the store is empty; name a file, such as data/kg.sqlite")
    try:
        parsed = _parsed(url)
        file = _file_of(parsed)
        # An open store stays the same one when the process changes its folder.
        options: dict[str, Any] = {} if file is None else {"creator": partial(_connected, file.absolute(), access)}
        backend = parsed.get_backend_name()
        if backend not in _BACKENDS:
            raise StoreError(
                f"store URL {shown_url(url)!r} names {shortened(backend)}; a store is an SQLite file, or a PostgreSQL "
                "database: postgresql+psycopg://USER@HOST:PORT/DATABASE"
            )
        if backend == "postgresql":
            options = postgresql.engine_options(is_reader=access == "read")
        engine = sa.create_engine(parsed, **options)
        logging.getLogger(f"{type(engine.pool).__module__}.{type(engine.pool).__name__}").addFilter(_is_no_interrupt)
    except ModuleNotFoundError as error:
        raise StoreError(
            f"store URL {shown_url(url)!r} cannot be used: {error}; for PostgreSQL, write postgresql+psycopg:// and to "
            f"have its driver {how_to_install('postgres')}"
        ) from error
    except sa.exc.ArgumentError as error:
        raise StoreError(f"store URL {shown_url(url)!r} cannot be used: {error}") from error
    except ValueError as error:
        raise StoreError(
            f"store URL {shown_url(url)!r} cannot be used: its port is no number; expected "
            "postgresql+psycopg://USER@HOST:PORT/DATABASE with a port such as 5432"
        ) from error
    if engine.dialect.name != "sqlite":
        return engine

    # pysqlite opens transactions late and only for some statements. With isolation_level None we begin them ourselves,
    # so that a writer takes the lock at once and its reads and writes are one transaction.
    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout=30000")
        if is_foreign(connection, application_id=STORE_ID, is_earlier=_is_unmarked_store):
            raise StoreError(
                f"store {shown_url(url)!r} belongs to another application and was left unchanged; name another file"
            )
        # secure_delete overwrites what forget() erases.
        changing = () if access == "read" else ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON")
        for pragma in ("foreign_keys=ON", *changing):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Keeps SQLAlchemy from logging an interrupt of its clean-up with a traceback; it raises the interrupt anyway."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or issubclass(kind, Exception)


def _is_unmarked_store(connection: sqlite3.Connection) -> bool:
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not names >= {"alembic_version", "spaces", "turns", "nodes"}:
        return False
    return connection.execute("SELECT * FROM alembic_version").fetchall() == [(_UNMARKED,)]


def file_of(url: str) -> Path | None:
    """The SQLite file that the path or URL of a store names; None for a database on a server or in memory."""
    try:
        return _file_of(_parsed(url))
    except (sa.exc.ArgumentError, ValueError):  # opening the database will report the error
        return None


def _parsed(url: str) -> sa.URL:
    return sa.make_url(url) if "://" in url else sa.URL.create("sqlite", database=url)


def _file_of(url: sa.URL) -> Path | None:
    database = url.database or ":memory:"
    is_file = url.get_backend_name() == "sqlite" and database != ":memory:" and not database.startswith("file:")
    return Path(database) if is_file else None


def _connected(file: Path, access: Access) -> sqlite3.Connection:
    def connect(parameter: str) -> sqlite3.Connection:
        return sqlite3.connect(f"{file.as_uri()}?{parameter}", uri=True, check_same_thread=False)

    connection = connect(f"mode={_MODES[access]}")
    if access != "read":
        return connection
    try:
        with readable_errors():
            connection.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.OperationalError as error:
        connection.close()
        # On a read-only disk the index of the write-ahead log cannot be created. If the log is absent or empty, it is
        # safe to do without and open the file as immutable.
        log = file.with_name(file.name + "-wal")
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) or (
            log.exists() and log.stat().st_size
        ):
            raise
        return connect("immutable=1")
    return connection


def is_seeded(connection: Connection) -> bool:
    """Whether the database holds all node types and relation labels of the schema."""
    types = set(connection.scalars(select(tables.node_types.c.name)))
    labels = set(connection.scalars(select(tables.relation_labels.c.name)))
    return types.issuperset(NODE_TYPES) and labels.issuperset(RELATION_LABELS)


def seed_schema(connection: Connection) -> None:
    """Write the node types and relation labels of the schema that the database lacks."""
    for table, rows in ((tables.node_types, NODE_TYPES), (tables.relation_labels, RELATION_LABELS)):
        present = set(connection.scalars(select(table.c.name)))
        lacking = [row for row in rows.values() if row.name not in present]
        if lacking:
            names = table.columns.keys()
            connection.execute(insert(table), [{name: getattr(row, name) for name in names} for row in lacking])
