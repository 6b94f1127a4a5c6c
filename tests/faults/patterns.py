"""Finds all regular expressions in the modules of the packages, so that none can be forgotten."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from tests.packages import PACKAGES

_CALLS = re.compile(r"re\.(compile|search|match|fullmatch|split|findall|finditer|subn?)")
_DEEPEST = 3  # a tuple of rows, each with a tuple of patterns


@cache
def patterns() -> dict[str, re.Pattern[str]]:
    """All patterns that modules hold, also inside tables, and all that functions use as literals, by location."""
    found: dict[str, re.Pattern[str]] = {}
    for package, folder in PACKAGES.items():
        for each in pkgutil.walk_packages([str(folder)], f"locigraph.{package}."):
            if each.name.endswith((".__main__", ".migrations.env")):  # these run when they are imported
                continue
            for name, value in vars(importlib.import_module(each.name)).items():
                for number, pattern in enumerate(_within(value, _DEEPEST)):
                    if pattern not in found.values():  # imported from another module
                        found[f"{each.name}.{name}[{number}]"] = pattern
    return found | {place: re.compile(written) for place, written in _in_functions() if written is not None}


def made() -> set[str]:
    """The functions that compile patterns from their arguments, which can only be tested by calling them."""
    return {place for place, written in _in_functions() if written is None}


def _within(value: Any, depth: int) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, dict | list | tuple | set | frozenset):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _within(each, depth - 1)
    elif depth and is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _within(getattr(value, field.name, None), depth - 1)


def _in_functions() -> Iterator[tuple[str, str | None]]:
    """Locations of calls of ``re`` in functions, each with its pattern; None if the pattern is not a literal."""
    for package, folder in PACKAGES.items():
        for file in sorted(folder.rglob("*.py")):
            module = ".".join((package, *file.relative_to(folder).with_suffix("").parts))
            for function in ast.walk(ast.parse(file.read_text())):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    for call in ast.walk(function):
                        if isinstance(call, ast.Call) and _CALLS.fullmatch(ast.unparse(call.func)):
                            first = call.args[0]
                            is_written = isinstance(first, ast.Constant) and isinstance(first.value, str)
                            yield f"{module}.{function.name}", ast.literal_eval(first) if is_written else None
