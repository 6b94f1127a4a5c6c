"""Writes files and folders completely or not at all, and opens small SQLite databases."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

#: Application ids that we write to the header of an SQLite file: for a store, and for a cache.
STORE_ID, CACHE_ID = int.from_bytes(b"Loci"), int.from_bytes(b"LocC")
#: Advice to the user after an error for which ``is_of_disk`` is true.
MAKE_ROOM = "repair the disk or make room on it, and run the command again"
_PRIVATE_FILE, _PRIVATE_FOLDER = 0o600, 0o700
_REPLACING = threading.Lock()
_SEAL = "sha256"


def is_of_disk(error: object) -> bool:
    """Whether an error of a system call or a database reports that the disk is full or broken."""
    return any(words in str(error) for words in ("disk is full", "disk I/O error", "No space left on device"))


def parsed_json(text: str) -> Any:
    """Parse JSON; raises ``ValueError`` if the text is invalid or nested too deeply for Python's parser."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def sealed(manifest: Mapping[str, Any]) -> str:
    """A manifest as JSON text, with the SHA-256 of its content added under the key ``sha256``."""
    content = json.loads(json.dumps(manifest))  # in the form in which it will be read back
    return json.dumps({**content, _SEAL: _seal(content)}, indent=1, sort_keys=True) + "\n"


def check_seal(manifest: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if a manifest was changed after ``sealed`` wrote it; one without a seal is accepted."""
    if _SEAL in manifest and manifest[_SEAL] != _seal(manifest):
        raise ValueError(f"the manifest was changed after it was written: its {_SEAL} does not match its content")


def _seal(manifest: Mapping[str, Any]) -> str:
    content = {name: value for name, value in manifest.items() if name != _SEAL}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file atomically: ``path`` is replaced only once all content is on the disk; an error changes nothing."""
    part = path.with_name(path.name + ".part")
    with _REPLACING:  # two threads that write the same path would share one ".part" file
        part.unlink(missing_ok=True)
        make_private(part)
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        sync(part)
        os.replace(part, path)


def make_private(path: Path) -> None:
    """Create an empty file that only its owner may read, unless there is something; errors are left to what opens it.

    SQLite gives the files that it keeps beside a database the permissions of the database.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _PRIVATE_FILE))


def is_open_to_others(path: Path) -> bool:
    """Whether others than its owner may read or change a file; False where that cannot be told.

    Raises:
        OSError: If there is no such file.
    """
    return os.name == "posix" and path.stat().st_mode & 0o077 != 0


def make_private_folder(path: Path) -> None:
    """Create a folder, and those above it, that only their owner may enter; existing ones stay as they are.

    Raises:
        OSError: If it cannot be created, or is something else.
    """
    for each in reversed([path, *(above for above in path.parents if not above.exists())]):
        each.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def is_foreign(
    connection: sqlite3.Connection, *, application_id: int, is_earlier: Callable[[sqlite3.Connection], bool]
) -> bool:
    """Whether a database belongs to another application, and so must not be changed.

    A database is ours if it has our application id, is empty, or was made by an earlier version, which set no id.

    Args:
        connection: The database.
        application_id: The application id that the header of our databases holds.
        is_earlier: Whether a database without an application id was made by an earlier version of this software.

    Raises:
        sqlite3.Error: If the file is damaged or is no database.
    """
    with readable_errors():
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (objects,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()

    def stored_id() -> int:
        return int(connection.execute("PRAGMA application_id").fetchone()[0])

    if found := stored_id():
        return found != application_id
    is_unmarked_ours = not (version or objects) or is_earlier(connection)
    # Read again: a thread that creates the file at the same time sets the id before it adds further tables.
    found = stored_id()
    return found != application_id if found else not is_unmarked_ours


def working_folder() -> Path:
    """The folder in which the process works; an empty path if it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        return Path()


@contextmanager
def readable_errors() -> Iterator[None]:
    """Raise an error in reading a database's schema as an SQLite error, even if it quotes bytes that are not UTF-8."""
    try:
        yield
    except UnicodeDecodeError as error:  # Python cannot decode the message
        raise sqlite3.DatabaseError("malformed database schema, which holds bytes that are no text") from error


@contextmanager
def opened_sqlite(
    path: Path, failed: Callable[[sqlite3.Error], Exception], *, table: str, columns: str
) -> Iterator[sqlite3.Connection]:
    """A connection to a small SQLite database, such as a cache; waits a minute for the lock of another process.

    Args:
        path: File of the database; created if absent.
        failed: Converts an SQLite error to the error that is raised instead.
        table: Name of its only table, which is created if absent.
        columns: Column definitions: what follows the table name in ``CREATE TABLE``.
    """
    make_private(path)
    try:
        with closing(sqlite3.connect(path, timeout=60)) as connection:
            if is_foreign(connection, application_id=CACHE_ID, is_earlier=lambda file: _holds(file, table, columns)):
                raise sqlite3.DatabaseError("it belongs to another application and was left unchanged")
            ensure_table(connection, table, columns)
            connection.execute("PRAGMA secure_delete = ON")
            yield connection
    except sqlite3.Error as error:
        raise failed(error) from error


def ensure_table(connection: sqlite3.Connection, table: str, columns: str) -> None:
    """Create the table of one of our small databases if it is absent, and set our application id."""
    if has_table(connection, table):
        return
    with connection:  # one transaction: a table without our id would be taken for another application's
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table} {columns}")
        connection.execute(f"PRAGMA application_id = {CACHE_ID}")


def has_table(connection: sqlite3.Connection, table: str) -> bool:
    """Whether a database has a table of this name."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None


def _holds(connection: sqlite3.Connection, table: str, columns: str) -> bool:
    """Whether a database holds a table of these columns and nothing else."""
    with closing(sqlite3.connect(":memory:")) as new:
        new.execute(f"CREATE TABLE {table} {columns}")
        return _tables(connection) == _tables(new)


def _tables(connection: sqlite3.Connection) -> dict[str, list[Any]]:
    """The columns of every table, index or view in a database, by name."""
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%'")]
    return {name: connection.execute("SELECT * FROM pragma_table_info(?)", (name,)).fetchall() for name in names}


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder to write into, which replaces ``folder`` when the block ends; an error changes nothing.

    Args:
        folder: The folder to create, or to replace together with everything in it.
    """
    part, old = folder.with_name(folder.name + ".part"), _old(folder)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    yield part
    for path in [*part.rglob("*"), part]:  # the new content must be on the disk before the old is removed
        sync(path)
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.replace(folder, old)  # a folder with content cannot be replaced in one step
    os.replace(part, folder)
    shutil.rmtree(old, ignore_errors=True)


def whole_folder(folder: Path) -> Path:
    """The path from which to read a folder: its old copy if ``replaced_folder`` is, or was stopped, mid-rename."""
    return _old(folder) if not folder.exists() and _old(folder).is_dir() else folder


def _old(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")
