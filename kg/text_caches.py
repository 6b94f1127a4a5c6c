"""Caches of what is computed from the texts of memories, which are emptied when something is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
# Longer texts are computed anew: a cache is bounded by its number of entries, and a text may have a million bytes.
_MOST_LETTERS = 5_000
_CACHES: list[Any] = []


def cached(most: int) -> Callable[[Callable[_Given, _Made]], Callable[_Given, _Made]]:
    """Keep the last results of a function whose first argument is a text, a turn, or something that has a ``text``.

    Args:
        most: Largest number of results that are kept; none of long texts is.
    """

    def decorate(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
        kept: Any = lru_cache(most)(function)
        _CACHES.append(kept)

        @wraps(function)
        def found(*given: _Given.args, **named: _Given.kwargs) -> _Made:
            key = given[0]
            text = key if isinstance(key, str) else getattr(key, "utterance", "") or getattr(key, "text", "")
            made: _Made = (kept if len(text) <= _MOST_LETTERS else function)(*given, **named)
            return made

        return found

    return decorate


def forget_texts() -> None:
    """Keep nothing of any text, since one of them is forgotten."""
    for cache in _CACHES:
        cache.cache_clear()
