"""Writes files and folders completely or not at all, and opens small databases."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

#: Marks of ours in the header of an SQLite file: of a store, and of a cache.
STORE_ID, CACHE_ID = int.from_bytes(b"Loci"), int.from_bytes(b"LocC")
#: What to do about an error that ``is_of_disk``.
MAKE_ROOM = "mend the disk, or make room on it, and run the command again"
_REPLACING = threading.Lock()
_SEAL = "sha256"


def is_of_disk(error: object) -> bool:
    """Whether an error, of a system call or a database, says that its disk is full or broken."""
    return any(words in str(error) for words in ("disk is full", "disk I/O error", "No space left on device"))


def parsed_json(text: str) -> Any:
    """What a JSON text says; ``ValueError`` if it is none, also where it is nested deeper than Python can follow."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def sealed(manifest: Mapping[str, Any]) -> str:
    """A manifest as JSON, with the SHA-256 of all else that it says."""
    said = json.loads(json.dumps(manifest))  # as it will be read
    return json.dumps({**said, _SEAL: _seal(said)}, indent=1, sort_keys=True) + "\n"


def check_seal(manifest: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if a sealed manifest was changed; one that was never sealed is taken as it is."""
    if _SEAL in manifest and manifest[_SEAL] != _seal(manifest):
        raise ValueError(f"the manifest was changed after it was written: {_SEAL} does not fit what it says")


def _seal(manifest: Mapping[str, Any]) -> str:
    said = {name: value for name, value in manifest.items() if name != _SEAL}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def replace_file(path: Path, content: str | bytes) -> None:
    """Replace ``path`` by a file once all of it is on the disk; an error changes nothing."""
    part = path.with_name(path.name + ".part")
    with _REPLACING:  # two threads that write the same file would share its part
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        sync(part)
        os.replace(part, path)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    held = os.open(path, os.O_RDONLY)
    os.fsync(held)
    os.close(held)


def is_foreign(
    connection: sqlite3.Connection, *, application_id: int, is_earlier: Callable[[sqlite3.Connection], bool]
) -> bool:
    """Whether a database belongs to another application: none may be changed that we have not made.

    Ours is one with our mark, one that is empty, and one that an earlier version made, which had no mark.

    Args:
        connection: The database.
        application_id: Our mark, which its header holds.
        is_earlier: Whether an earlier version made a database that has no mark.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    is_unmarked_ours = not (version or objects) or is_earlier(connection)
    # Read last: a thread that makes the file meanwhile marks it before it adds what an unmarked one may not hold.
    (held,) = connection.execute("PRAGMA application_id").fetchone()
    return bool(held != application_id) if held else not is_unmarked_ours


@contextmanager
def opened_sqlite(
    path: Path, failed: Callable[[sqlite3.Error], Exception], *, table: str, columns: str
) -> Iterator[sqlite3.Connection]:
    """A connection to a small SQLite database, such as a cache; waits a minute for the lock of another process.

    Args:
        path: File of the database; it is made when absent.
        failed: Makes the error that is raised in the place of one of SQLite's.
        table: Name of its one table, which is made when absent.
        columns: What stands behind the name in the statement that makes the table.
    """
    try:
        with closing(sqlite3.connect(path, timeout=60)) as connection:
            if is_foreign(connection, application_id=CACHE_ID, is_earlier=lambda held: _holds(held, table, columns)):
                raise sqlite3.DatabaseError("it is the database of another application and was left as it is")
            ensure_table(connection, table, columns)
            connection.execute("PRAGMA secure_delete = ON")
            yield connection
    except sqlite3.Error as error:
        raise failed(error) from error


def ensure_table(connection: sqlite3.Connection, table: str, columns: str) -> None:
    """Make a table of a small database of ours if it is absent, and our mark with it."""
    if has_table(connection, table):
        return
    with connection:  # both at once: whoever sees a table without the mark takes it for another application's
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
    """Everything in a database by name, each with its columns."""
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%'")]
    return {name: connection.execute("SELECT * FROM pragma_table_info(?)", (name,)).fetchall() for name in names}


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of ``folder`` when the block ends; an error changes nothing.

    Args:
        folder: The folder to make, or to replace with all that it holds.
    """
    part, old = folder.with_name(folder.name + ".part"), _old(folder)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    yield part
    for path in [*part.rglob("*"), part]:  # on the disk before anything that is there goes
        sync(path)
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.replace(folder, old)  # a folder with content cannot be replaced in one step
    os.replace(part, folder)
    shutil.rmtree(old, ignore_errors=True)


def whole_folder(folder: Path) -> Path:
    """Where a folder can be read: its old copy while ``replaced_folder`` is, or was stopped, between its renames."""
    return _old(folder) if not folder.exists() and _old(folder).is_dir() else folder


def _old(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")
