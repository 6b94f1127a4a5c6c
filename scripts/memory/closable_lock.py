"""A lock for something that can be closed, such as a memory, and that nobody may use afterwards."""

from __future__ import annotations

from threading import RLock

from locigraph.kg.errors import LocigraphError


class ClosableLock:
    """A lock that raises LocigraphError instead of being acquired once it is closed.

    Args:
        name: Name of what it guards, for the error message.

    Attributes:
        lock: The underlying lock, which can be acquired even when closed; used for closing.
        is_closed: Whether it is closed.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.lock = RLock()
        self.is_closed = False

    def __enter__(self) -> None:
        self.lock.acquire()
        if self.is_closed:
            self.lock.release()
            raise LocigraphError(f"{self._name} is closed; open it again with Memory.open")

    def __exit__(self, *_: object) -> None:
        self.lock.release()
