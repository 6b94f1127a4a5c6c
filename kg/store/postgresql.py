"""What is particular to a store on a PostgreSQL server: its connections, its locks, and what its errors mean.

Several processes may use one database. Each change of a space holds the lock of that space until its transaction ends,
so that the changes of a space come one after another, as on SQLite; readers wait for nobody. Work that spans several
transactions and the vector index holds a named lock of its session (``held``). Both are advisory locks, which the
server drops with the connection of a process that is killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

#: Longest wait for a lock that another process holds, in seconds; consolidating one turn, or erasing, takes less.
LOCK_WAIT_S = 300
# A server has room for some thousands of locks. A change of more spaces takes one lock that all others share.
_MOST_LOCKS = 1_000
_TAKE = sa.text(
    "WITH shared AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared(hashtextextended('all names', 2))) "
    "SELECT pg_advisory_xact_lock(hashtextextended(name, 0)) FROM shared, "
    "(SELECT name FROM unnest(CAST(:names AS text[])) AS name ORDER BY name) AS sorted"
)
_TAKE_ALL = sa.text("SELECT pg_advisory_xact_lock(hashtextextended('all names', 2))")
# Parts of messages, in lower case, and what to do about them.
_CURES = (
    (("password authentication", "no password supplied", "pg_hba", 'role "'), "check user and password in the URL"),
    (("does not exist",), "create the database with createdb, or name another with --store"),
    (("permission denied", "must be owner"), "grant the user the right to create tables and to write in this database"),
    (("out of shared memory",), "raise max_locks_per_transaction on the server"),
    (("too many clients", "remaining connection slots"), "raise max_connections on the server, or run fewer processes"),
    (("lock timeout",), "another process has been working on it for minutes; run the command again when it is done"),
    (("deadlock detected",), "two processes have changed the same spaces; nothing was changed, so run it again"),
    (
        ("connection refused", "could not connect", "connection failed", "server closed", "terminating connection",
         "timeout expired", "could not translate", "failed to resolve", "is starting up", "shutting down",
         "recovery mode", "connection is lost", "connection is closed", "connection timeout"),
        "check that the server is running and can be reached, and run the command again",
    ),
)  # fmt: skip


def engine_options(*, is_reader: bool) -> dict[str, Any]:
    """Arguments of ``create_engine``.

    Connections are tried before they are used, so that a restart of the server costs no request, and a server that
    cannot be reached is an error after ten seconds.
    """
    settings = [f"lock_timeout={LOCK_WAIT_S}s", "client_encoding=utf8"]
    settings += ["default_transaction_read_only=on"] if is_reader else []
    return {
        "pool_pre_ping": True,
        "max_overflow": 20,
        "connect_args": {
            "application_name": "locigraph",
            "connect_timeout": 10,
            "keepalives_idle": 30,
            "options": " ".join(f"-c {each}" for each in settings),
        },
    }


def engine_of_locks(engine: Engine) -> Engine:
    """An engine for locks that are held over several transactions; who finds too many held waits for an hour."""
    options = engine_options(is_reader=False) | {"max_overflow": 45, "pool_timeout": 3_600}
    return sa.create_engine(engine.url, **options)


def take(connection: Connection, names: Iterable[str]) -> None:
    """Take the locks of some names, in an order that all processes share, until the transaction ends."""
    wanted = sorted({*names})
    if not wanted or connection.dialect.name != "postgresql":
        return
    if len(wanted) > _MOST_LOCKS:
        connection.execute(_TAKE_ALL)
    else:
        connection.execute(_TAKE, {"names": wanted})


@contextmanager
def held(engine: Engine, name: str, *, is_shared: bool = False) -> Iterator[None]:
    """Hold a lock of this name over several transactions; shared holders wait for exclusive ones only."""
    if engine.dialect.name != "postgresql":
        yield
        return
    kind = "_shared" if is_shared else ""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text(f"SELECT pg_advisory_lock{kind}(hashtextextended(:name, 1))"), {"name": name})
        try:
            yield
        finally:
            with suppress(sa.exc.DBAPIError):  # a server that is gone holds no lock either
                connection.execute(
                    sa.text(f"SELECT pg_advisory_unlock{kind}(hashtextextended(:name, 1))"), {"name": name}
                )


def is_held(engine: Engine, name: str) -> bool:
    """Whether a process holds a lock of this name."""
    if engine.dialect.name != "postgresql":
        return False
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        got = connection.scalar(sa.text("SELECT pg_try_advisory_lock(hashtextextended(:name, 1))"), {"name": name})
        if got:
            connection.execute(sa.text("SELECT pg_advisory_unlock(hashtextextended(:name, 1))"), {"name": name})
        return not got


def cure_of(message: str) -> str | None:
    """What to do about an error of the server; None if it is not a known one."""
    said = message.lower()
    return next((cure for signs, cure in _CURES if any(sign in said for sign in signs)), None)
