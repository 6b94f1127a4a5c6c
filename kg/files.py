"""Folders that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
