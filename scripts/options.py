"""What options that are words mean: names from a table, times."""

from __future__ import annotations

from datetime import datetime

from locigraph.kg.errors import LocigraphError
from locigraph.kg.registry import RowT, Table
from locigraph.kg.times import TIME_RANGE, is_in_range


def names(listed: str, table: Table[RowT]) -> list[str]:
    """Names separated by commas, each once.

    Raises:
        UnknownNameError: If the table lacks one; lists those that it holds.
    """
    found = [name.strip() for name in listed.split(",") if name.strip()]
    return list(dict.fromkeys(table[name].name for name in found))


def parse_time(text: str | None) -> datetime | None:
    """An ISO 8601 time of the command line.

    Raises:
        LocigraphError: If it is none.
    """
    try:
        time = None if text is None else datetime.fromisoformat(text)
    except ValueError as error:
        raise LocigraphError(f"time {text!r} is not ISO 8601, such as 2024-06-30T00:00:00") from error
    if time is not None and not is_in_range(time):
        raise LocigraphError(f"time is {text!r}; expected {TIME_RANGE}")
    return time
