"""Temporary folders of a process; those left behind by killed processes are removed when the next one is made."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

#: Prefix of the names of these folders; a random suffix follows. Folders without this prefix are not ours.
PREFIX = "locigraph_"


def held_folder(place: str | None = None) -> tuple[str, Callable[[], None]]:
    """Create a folder that only this user may enter; returns its path and a function that removes it.

    In a process that was forked later the function does nothing, since the folder belongs to the process that made it.
    The folder is locked until its process ends, even if the process is killed. Such folders in the same place that
    no process holds a lock on are removed.

    Args:
        place: Parent folder; None for the system's directory of temporary files.

    Raises:
        OSError: If the folder cannot be created.
    """
    place = place or tempfile.gettempdir()
    _remove_abandoned(place)
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX, dir=place)
        try:
            descriptor = _locked(folder)
        except OSError:  # folders cannot be locked here (some network drives), so no other process removes this one
            return folder, partial(_remove_own, os.getpid(), folder, None)
        # Before it was locked, another process may have taken it for abandoned and removed it.
        if descriptor is not None and Path(folder).exists():
            return folder, partial(_remove_own, os.getpid(), folder, descriptor)


def _remove_abandoned(place: str) -> None:
    for entry in os.scandir(place):
        if not entry.name.startswith(PREFIX):
            continue
        with suppress(OSError):  # it was removed meanwhile, or cannot be locked
            if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                descriptor = _locked(entry.path)
                if descriptor is not None:
                    _remove(entry.path, descriptor)


def _locked(folder: str) -> int | None:
    """A file descriptor that holds a folder's lock; None if another process holds it or the folder is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor


def _remove_own(process: int, folder: str, descriptor: int | None) -> None:
    if os.getpid() == process:
        _remove(folder, descriptor)


def _remove(folder: str, descriptor: int | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if descriptor is not None:
        os.close(descriptor)
