"""A cache that is bounded by the bytes that its values hold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class ByteCache(Generic[Key, Value]):
    """Keeps the values that were used last, as long as they hold no more than a number of bytes together.

    A value that is larger by itself is made each time it is asked for. Several threads may use a cache; two that ask
    for the same missing value at once both make it.

    Args:
        most: Number of bytes that the kept values may hold together.
        size: The bytes that a value holds.
    """

    def __init__(self, most: int, size: Callable[[Value], int]) -> None:
        self._most, self._size = most, size
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()  # the value used last is at the end
        self._held = 0
        self._lock = Lock()

    @property
    def held(self) -> int:
        """Bytes that the kept values hold."""
        return self._held

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key, made by ``make`` if it is not kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        value = make()
        self.put(key, value)
        return value

    def find(self, key: Key) -> Value | None:
        """The value of a key; None if it is not kept."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Key, value: Value) -> None:
        """Keep the value of a key, unless it is too large."""
        size = self._size(value)
        with self._lock:
            self._drop(key)
            if size <= self._most:
                self._kept[key] = value, size
                self._held += size
            while self._held > self._most:
                self._drop(next(iter(self._kept)))

    def drop(self, key: Key) -> None:
        """Forget the value of a key, if it is kept."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        _, size = self._kept.pop(key, (None, 0))
        self._held -= size
