"""Spaces whose graphs are being built again, which nobody may see until all their turns are consolidated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from threading import Condition

from locigraph.kg.types import SpaceId


class RebuiltSpaces:
    """Lets questions about these spaces wait, while those about others are answered. Several threads may use it."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._rebuilding: Counter[SpaceId] = Counter()
        self._is_closed = False

    @property
    def spaces(self) -> list[SpaceId]:
        """The spaces that are being rebuilt."""
        return [*self._rebuilding]

    def close(self) -> None:
        """From now on nobody waits; the memory is closed, as its locks will tell."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def rebuilding(self, spaces: Sequence[SpaceId]) -> ExitStack:
        """From now on questions about some spaces wait, until the context that is returned has ended."""
        with self._changed:
            self._rebuilding.update(spaces)

        def end() -> None:
            with self._changed:
                self._rebuilding.subtract(spaces)
                self._rebuilding += Counter()  # drops those that are 0
                self._changed.notify_all()

        done = ExitStack()
        done.callback(end)
        return done

    def is_among(self, asked: str | Sequence[str] | None) -> bool:
        """Whether a space, or one of several, is being rebuilt; None stands for spaces that are not known yet."""
        if not self._rebuilding or self._is_closed:
            return False
        named = (asked,) if isinstance(asked, str) else asked
        return named is None or any(space in self._rebuilding for space in named)

    def wait(self, asked: str | Sequence[str] | None) -> None:
        """Wait until none of these spaces is being rebuilt."""
        with self._changed:
            self._changed.wait_for(lambda: not self.is_among(asked))
