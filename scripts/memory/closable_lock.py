"""A lock of something that is open, such as a memory: nobody gets it afterwards."""

from __future__ import annotations

from threading import RLock

from locigraph.kg.errors import LocigraphError


class ClosableLock:
    """A lock that nobody gets once it is closed.

    Args:
        name: What it guards, in the words of the error.

    Attributes:
        lock: The lock itself, which whoever closes takes.
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
