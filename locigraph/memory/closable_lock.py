"""A lock for something that can be closed, such as a memory, and that nobody may use afterwards."""

from __future__ import annotations

import os
from threading import RLock

from locigraph.kg.errors import LocigraphError


class ClosableLock:
    """A lock that raises LocigraphError instead of being acquired once it is closed, or in a process that was forked.

    A forked process has no threads but the one that forked it, so a lock that another thread held would never be
    released there; and what the lock guards, such as a database connection, must not be used by two processes.

    Args:
        name: Name of what it guards, for the error message.

    Attributes:
        lock: The underlying lock, which can be acquired even when closed; used for closing.
        is_closed: Whether it is closed.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process = os.getpid()
        self.lock = RLock()
        self.is_closed = False

    @property
    def is_of_another_process(self) -> bool:
        """Whether the process that made the lock is not this one, which was forked from it."""
        return os.getpid() != self._process

    def require_own_process(self) -> None:
        """Raise LocigraphError in a process that was forked after the lock was made."""
        if self.is_of_another_process:
            raise LocigraphError(
                f"{self._name} was opened by process {self._process}, from which this process was forked; open it "
                "after forking, in the one process that uses it"
            )

    def __enter__(self) -> None:
        self.require_own_process()
        self.lock.acquire()
        if self.is_closed:
            self.lock.release()
            raise LocigraphError(f"{self._name} is closed; open it again with Memory.open")

    def __exit__(self, *_: object) -> None:
        self.lock.release()
