"""Writes files and folders completely or not at all, and opens small databases."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Replace ``path`` by a text file once all of it is on the disk; an error changes nothing."""
    part = path.with_name(path.name + ".part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


@contextmanager
def opened_sqlite(path: Path, failed: Callable[[sqlite3.Error], Exception]) -> Iterator[sqlite3.Connection]:
    """A connection to a small SQLite database, such as a cache; waits a minute for the lock of another process.

    Args:
        path: File of the database; it is made when absent.
        failed: Makes the error that is raised in the place of one of SQLite's.
    """
    try:
        with closing(sqlite3.connect(path, timeout=60)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise failed(error) from error


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
        held = os.open(path, os.O_RDONLY)
        os.fsync(held)
        os.close(held)
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
