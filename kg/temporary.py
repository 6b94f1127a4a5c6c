"""Folders for what a process needs while it runs; those of killed processes are removed by the next that makes one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

#: How the names of these folders begin; eight letters or digits follow. Folders that begin otherwise are not ours.
PREFIX = "locigraph_"


def held_folder(place: str | None = None) -> tuple[str, Callable[[], None]]:
    """Make a folder that only this user may enter; returns its path and what removes it.

    The folder is locked while its process lives, however that ends. Folders beside it whose lock nobody holds are
    removed.

    Args:
        place: Folder to make it in; None for the directory of temporary files.

    Raises:
        OSError: If it cannot be made.
    """
    place = place or tempfile.gettempdir()
    _remove_abandoned(place)
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX, dir=place)
        try:
            held = _locked(folder)
        except OSError:  # no folder can be locked here, as on some network drives, so nobody removes this one
            return folder, partial(shutil.rmtree, folder, ignore_errors=True)
        # Before it was locked another process may have taken it for abandoned.
        if held is not None and Path(folder).exists():
            return folder, partial(_remove, folder, held)


def _remove_abandoned(place: str) -> None:
    for entry in os.scandir(place):
        if not entry.name.startswith(PREFIX):
            continue
        with suppress(OSError):  # it went meanwhile, or cannot be locked
            if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                held = _locked(entry.path)
                if held is not None:
                    _remove(entry.path, held)


def _locked(folder: str) -> int | None:
    """A descriptor that holds a folder's lock; None where another holds it, or the folder is gone."""
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(held)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return held


def _remove(folder: str, held: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(held)
