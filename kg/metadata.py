"""Metadata of turns: flat JSON objects by which answers can be filtered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime

from locigraph.kg.errors import LocigraphError, shortened
from locigraph.kg.times import TIME_RANGE, in_utc, is_in_range
from locigraph.kg.types import NAME_RULE, UNSTORABLE, Scalar, is_name

#: Largest number of keys, and of bytes of the whole object as JSON.
MAX_KEYS, MAX_BYTES = 64, 8_192
_TOO_LARGE = 2**63


def metadata_of(given: object) -> dict[str, Scalar]:
    """Metadata as they are stored: a date becomes text in ISO 8601, a time that of UTC.

    Args:
        given: A mapping of names to texts, numbers, booleans, dates or times; None for no metadata.

    Raises:
        LocigraphError: If it is no such mapping, or too large.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise LocigraphError(f"metadata is {shortened(given)}; expected an object of names and values")
    found = {}
    for name, value in given.items():
        if not isinstance(name, str) or not is_name(name) or name.startswith("$"):
            raise LocigraphError(
                f"metadata has the key {shortened(name)}; expected {NAME_RULE}, not beginning with '$'"
            )
        found[name] = scalar_of(value, f"metadata[{name!r}]")
    size = len(json.dumps(found).encode())
    if len(found) > MAX_KEYS or size > MAX_BYTES:
        most = f"{MAX_KEYS} keys and {MAX_BYTES:,} bytes"
        raise LocigraphError(f"metadata have {len(found)} keys and {size:,} bytes; expected at most {most}")
    return found


def scalar_of(value: object, name: str) -> Scalar:
    """A value of metadata as it is stored; raises LocigraphError, with the given name, if it is none."""
    if isinstance(value, datetime):
        if not is_in_range(value):
            raise LocigraphError(f"{name} is {shortened(value)}; expected {TIME_RANGE}")
        return in_utc(value).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool) or (isinstance(value, int | float) and abs(value) < _TOO_LARGE):  # NaN is not below it
        return value
    if isinstance(value, str) and not UNSTORABLE.search(value):
        return value
    shown = "too large a number" if isinstance(value, int) else shortened(value)  # which Python may refuse to show
    raise LocigraphError(f"{name} is {shown}; expected text, a number, true or false, a date or a time")
