"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Write a text file that takes the place of ``path`` when all of it is on the disk; an error changes nothing."""
    part = path.with_name(path.name + ".part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of ``folder`` when the block ends; an error changes nothing.

    Args:
        folder: To be made, or replaced with all that it holds.
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
    """Where to read a folder: beside its place, if its replacing is, or was cut, between the two renames."""
    return _old(folder) if not folder.exists() and _old(folder).is_dir() else folder


def _old(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")
