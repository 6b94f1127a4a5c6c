"""Registries: tables of strategies, extractors, corpus formats, losses, graph encoders, node types.

Each kind of choice has one table, from which commands, their help, checks and reports are derived. So adding a choice
takes one file and one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from locigraph.kg.errors import LocigraphError, nearest, shortened


class Row(Protocol):
    """A row of a table; its name is what users type."""

    @property
    def name(self) -> str:
        """The name by which the row is chosen."""


RowT = TypeVar("RowT", bound=Row)


class UnknownNameError(LocigraphError, KeyError):
    """A name is not in its table; the message lists the known names."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = list(known)
        hint = nearest(name, names)
        close = hint if hint.startswith("; nearest") else ""
        self.message = f"{kind} {shortened(name)} is not known{close}; known: {', '.join(names)}"
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message  # KeyError would show its repr


class Table(Mapping[str, RowT]):
    """All choices of one kind, by name, in the order in which they are listed to users.

    Args:
        kind: The kind, in the singular, such as ``strategy``; used in error messages.
        rows: The built-in rows.

    Raises:
        ValueError: If two rows have the same name.
    """

    def __init__(self, kind: str, rows: Iterable[RowT] = ()) -> None:
        self.kind = kind
        self._rows: dict[str, RowT] = {}
        for row in rows:
            self.add(row)

    def add(self, row: RowT) -> RowT:
        """Add a row, for example one of the user's own; returns it.

        Raises:
            ValueError: If the table already holds a row of that name.
        """
        if row.name in self._rows:
            raise ValueError(f"there are two rows named {row.name!r} in the table of kind {self.kind!r}; rename one")
        self._rows[row.name] = row
        return row

    def remove(self, name: str) -> None:
        """Remove a row; raises UnknownNameError if no row has that name."""
        del self._rows[self[name].name]

    def __getitem__(self, name: str) -> RowT:
        """The row of a name.

        Raises:
            UnknownNameError: If no row has that name; the message lists the known names.
        """
        try:
            return self._rows[name]
        except KeyError:
            raise UnknownNameError(self.kind, name, self._rows) from None

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def get(self, name: str, default: Any = None) -> Any:
        """The row of a name, or the default if no row has it; ``Mapping`` would make an error with the nearest name."""
        return self._rows.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
