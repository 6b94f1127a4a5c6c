"""The database of a store: how it is opened, read, written, checked and closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import sqlalchemy as sa
from sqlalchemy import Connection

from locigraph.kg.errors import StoreError, StoreVersionError
from locigraph.kg.files import MAKE_ROOM, is_of_disk
from locigraph.kg.store import faults, migrations
from locigraph.kg.store.engine import Access, is_seeded, make_engine, seed_schema, shown_url


class Database:
    """The database of a store: opened, brought up to date, read and written in transactions.

    Args:
        url: SQLAlchemy URL, or the path of an SQLite file.
        access: ``create`` makes the database when it is absent; ``write`` and ``read`` take what is there. A reader
            changes no byte of it, and needs no right to.

    Raises:
        StoreError: If the database cannot be opened, or is another application's.
        StoreVersionError: If a newer version wrote it, or an older one and it may only be read.
    """

    def __init__(self, url: str | Path, *, access: Access = "create") -> None:
        text_url = str(url)
        self.url = shown_url(text_url)
        if "://" not in text_url and access == "create":
            try:
                Path(text_url).parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(f"cannot make a folder for store {text_url!r}: {error.strerror}") from error
        self._engine = make_engine(text_url, access)
        self._writing = threading.Lock()
        # Most often there is nothing to write, and then a writer beside us is not waited for.
        with self._read() as connection:
            is_ready = migrations.is_current(connection, url=self.url) and is_seeded(connection)
        if not is_ready and access == "read":
            self.close()
            raise StoreVersionError(
                f"store {self.url!r} was written by an older version; run locigraph verify once, which brings it up "
                "to date"
            )
        if not is_ready:
            with self._write() as connection:
                migrations.upgrade(connection, url=self.url)
                seed_schema(connection)

    def close(self) -> None:
        """Release the database's connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with self._mapped_errors(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        # Threads take turns here: SQLite would have them poll for its lock.
        with self._writing, self._mapped_errors(), self._engine.execution_options(write=True).begin() as connection:
            yield connection

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            if "locked" in str(error.orig):
                cure = "another process has been writing to it for half a minute; run the command again when it is done"
            elif "not a database" in str(error.orig):
                cure = "name the graph that locigraph build made; conversations are named with --corpus.path"
            elif "readonly" in str(error.orig):
                cure = "it was opened to be read only, or its file may not be written"
            elif is_of_disk(error.orig):
                cure = f"nothing was changed; {MAKE_ROOM}"
            else:
                cure = "if this is no database file of locigraph, name one or a new path"
            raise StoreError(f"store {self.url!r}: {error.orig}; {cure}") from error

    def faults(self) -> list[str]:
        """What is wrong with the database: broken pages, rows that point at nothing, changed or unreadable rows."""
        if self._engine.dialect.name != "sqlite":
            return []  # a server checks itself
        with self._read() as connection:
            return faults.find(connection)

    def empty_log(self) -> None:
        """Write SQLite's log, which may hold pages of what was erased, into the database, and empty it.

        Raises:
            StoreError: If a reader beside us, which is waited for, still needs the log.
        """
        if self._engine.dialect.name != "sqlite":
            return
        with self._mapped_errors(), self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as bare:
            is_busy = bare.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
        if is_busy:
            raise StoreError(
                f"store {self.url!r}: erased, but old pages remain in the file's log until other readers of it end; "
                "forget again completes it"
            )
