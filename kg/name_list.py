"""Lists of names as users write them: on the command line, in a configuration, or in Python."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

from locigraph.kg.errors import LocigraphError, shortened

#: Type of an option that takes names: a list, or a text with the names separated by commas.
Names = list[str] | str


def names_in(given: Iterable[str] | str) -> list[str]:
    """The names in a list, or in a text that separates them by commas or is a JSON list.

    Blanks around the commas of a text do not belong to the names, and empty names are dropped; so a name that contains
    a comma must be written in a list. A number in a JSON list is the name that it is written as: ``[7e974930]``.

    Raises:
        LocigraphError: If a text in brackets is no JSON list of names.
    """
    if not isinstance(given, str):
        return [*given]
    text = given.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return [name.strip() for name in text.split(",") if name.strip()]
    names: object = None
    with suppress(ValueError, RecursionError):
        names = json.loads(text, parse_int=str, parse_float=str)
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return names
    raise LocigraphError(
        f"{shortened(given)} is not a list of names; separate them by commas, such as a,b, or put each in double "
        """quotes, such as '["a", "b"]'"""
    )
