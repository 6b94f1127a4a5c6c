"""The database of a store: how it is opened, read, written, checked and closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Self

import sqlalchemy as sa
from sqlalchemy import Connection

from locigraph.kg.errors import (
    MissingStoreError,
    StoreError,
    StoreUnavailableError,
    StoreVersionError,
    abridged,
    shortened,
)
from locigraph.kg.files import MAKE_ROOM, is_of_disk, make_private, make_private_folder, working_folder
from locigraph.kg.store import faults, migrations, postgresql
from locigraph.kg.store.engine import Access, file_of, is_seeded, make_engine, seed_schema, shown_url


class _SharedConnection(threading.local):
    """The connection with which a thread makes all its reads; None if each has its own."""

    connection: Connection | None = None


class Database:
    """The database of a store: opens it, migrates it to the newest schema, and gives read and write transactions.

    Args:
        url: SQLAlchemy URL, or the path of an SQLite file.
        access: ``create`` makes the database if it is absent; ``write`` and ``read`` require that it exists. With
            ``read`` no byte of it is changed, and no write permission is needed.

    Raises:
        StoreError: If the database cannot be opened, or belongs to another application.
        StoreVersionError: If a newer version wrote it, or an older version wrote it and ``access`` is ``read``.
    """

    def __init__(self, url: str | Path, *, access: Access = "create") -> None:
        text_url = str(url)
        self.url = shown_url(text_url)
        self.opened_in = working_folder()  # relative paths mean files in it
        self._engine = make_engine(text_url, access)  # connects to nothing yet
        file = file_of(text_url)
        if file is not None and access == "create":
            try:
                make_private_folder(file.parent)
                make_private(file)
            except OSError as error:
                raise StoreError(f"cannot create the folder of store {text_url!r}: {error.strerror}") from error
        self.is_on_server = self._engine.dialect.name != "sqlite"
        # Who holds a lock needs a connection of the other pool for what it does meanwhile.
        self._locks = postgresql.engine_of_locks(self._engine) if self.is_on_server else self._engine
        # On a server single statements need no transaction of their own, which would take two more round trips.
        on_server = {"isolation_level": "AUTOCOMMIT"} if self.is_on_server else {}
        self._reading = self._engine.execution_options(**on_server)
        self._writing = threading.Lock()
        self._shared = _SharedConnection()
        try:
            self._prepare(access)
        except BaseException:
            self.close()
            raise

    def _prepare(self, access: Access) -> None:
        """Make the tables, or those that a newer version has."""
        # Usually nothing needs to be written; checking first avoids waiting for another writer.
        with self._read() as connection:
            is_ready = migrations.is_current(connection, url=self.url) and is_seeded(connection)
            is_empty = self.is_on_server and not is_ready and migrations.is_empty(connection)
        if is_empty and access != "create":
            raise MissingStoreError(f"store {self.url!r} is an empty database; run locigraph build, or name another")
        if not is_ready and access == "read":
            raise StoreVersionError(
                f"store {self.url!r} was written by an older version; run locigraph verify once, where store and index "
                "can be written, to upgrade it"
            )
        if not is_ready:
            with self._write("schema") as connection:
                migrations.upgrade(connection, url=self.url)
                seed_schema(connection)

    def close(self) -> None:
        """Release the database's connections."""
        self._engine.dispose()
        self._locks.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let reads of this thread within the block share a connection, which costs less than one for each.

        In a file they share a transaction, too, so they see one state of the store while others write; those that need
        one state on a server as well have their own. This thread must not write meanwhile.
        """
        if self._shared.connection is not None:
            yield
            return
        with ExitStack() as opened:
            with self._mapped_errors():
                self._shared.connection = opened.enter_context(self._reading.connect())
            try:
                yield
            finally:
                self._shared.connection = None

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with self._mapped_errors():
            if self._shared.connection is not None:
                yield self._shared.connection
                return
            with self._reading.connect() as connection:
                yield connection

    @contextmanager
    def _write(self, *changed: str) -> Iterator[Connection]:
        """A transaction that changes some spaces, or other things that have a name; all others on a server go on."""
        assert self._shared.connection is None, "nothing is written within Database.reading"
        # Our own lock makes threads wait in turn; SQLite's would make them poll.
        turn = nullcontext() if self.is_on_server else self._writing
        with turn, self._mapped_errors(), self._engine.execution_options(write=True).begin() as connection:
            postgresql.take(connection, changed)
            yield connection

    @contextmanager
    def held(self, name: str, *, is_shared: bool = False) -> Iterator[None]:
        """Hold a named lock against other processes, where there may be any: on a server.

        Args:
            name: Name of what is worked on.
            is_shared: Whether others may hold it at the same time, if they share it, too.

        Raises:
            StoreError: If another process holds it for minutes.
        """
        with ExitStack() as holding:
            with self._mapped_errors():
                holding.enter_context(postgresql.held(self._locks, name, is_shared=is_shared))
            yield

    def is_held(self, name: str) -> bool:
        """Whether another process, or another thread, holds a lock of this name; never on a store without a server."""
        with self._mapped_errors():
            return postgresql.is_held(self._engine, name)

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeEncodeError as error:  # in a name that a caller gave, as every stored text was checked
            raise StoreError(
                f"store {self.url!r}: {shortened(error.object)} has a lone surrogate, so it names nothing here"
            ) from error
        except sa.exc.TimeoutError as error:
            raise StoreUnavailableError(
                f"store {self.url!r}: all connections are in use; run fewer requests at once, and run the command again"
            ) from error
        except sa.exc.DBAPIError as error:
            on_server = postgresql.cure_of(str(error.orig)) if self._engine.dialect.name == "postgresql" else None
            if on_server is not None:
                cure = on_server
            elif "locked" in str(error.orig):
                cure = "another process has been writing to it for half a minute; run the command again when it is done"
            elif "not a database" in str(error.orig):
                cure = (
                    "give the path of a store that locigraph build created; conversations are given with --corpus.path"
                )
            elif "readonly" in str(error.orig):
                cure = "it was opened read-only, or its file is not writable"
            elif "unable to open" in str(error.orig):
                cure = "check that it may be written there, or give another path"
            elif is_of_disk(error.orig):
                cure = f"nothing was changed; {MAKE_ROOM}"
            else:
                cure = "if this is not a database of locigraph, give the path of one or a new path"
            said = abridged(error.orig or error, 300)
            if on_server is not None:
                raise StoreUnavailableError(f"store {self.url!r}: {said}; {cure}") from error
            raise StoreError(f"store {self.url!r}: {said}; {cure}") from error

    def faults(self) -> list[str]:
        """Faults of the database: corrupt pages, dangling references, and changed or unreadable rows."""
        with self._read() as connection:
            return faults.find(connection)

    def empty_log(self) -> None:
        """Copy SQLite's write-ahead log, which may hold erased text, into the database file, and truncate it.

        Raises:
            StoreError: If another reader still needs the log after we have waited for it.
        """
        if self._engine.dialect.name != "sqlite":
            return
        with self._mapped_errors(), self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as bare:
            is_busy = bare.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
        if is_busy:
            raise StoreError(
                f"store {self.url!r}: erased, but old pages remain in the file's log until its other readers "
                "have finished; then run forget again to complete it"
            )
