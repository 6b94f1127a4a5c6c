"""What options that are words mean: names from a list, times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from locigraph.kg.errors import LocigraphError, nearest


def names(listed: str, known: Sequence[str], kind: str) -> list[str]:
    """Names separated by commas.

    Raises:
        LocigraphError: If one is not known; names the nearest.
    """
    found = [name.strip() for name in listed.split(",") if name.strip()]
    for name in found:
        if name not in known:
            raise LocigraphError(f"{kind} {name!r} is not known{nearest(name, known)}")
    return list(dict.fromkeys(found))


def parse_time(text: str | None) -> datetime | None:
    """An ISO 8601 time of the command line.

    Raises:
        LocigraphError: If it is none.
    """
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError as error:
        raise LocigraphError(f"time {text!r} is not ISO 8601, such as 2024-06-30T00:00:00") from error
