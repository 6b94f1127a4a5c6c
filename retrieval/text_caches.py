"""Caches of what is computed from the texts of memories, which are emptied when something is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

_Key = TypeVar("_Key")
_Made = TypeVar("_Made")
# Longer texts are computed anew: a cache is bounded by its number of entries, and a text may have a million bytes.
_MOST_LETTERS = 5_000
_EMPTY: list[Callable[[], None]] = []


def cached(most: int) -> Callable[[Callable[[_Key], _Made]], Callable[[_Key], _Made]]:
    """Keep the last results of a function of a text, or of something that has a ``text``.

    Args:
        most: Largest number of results that are kept; none of long texts is.
    """

    def decorate(function: Callable[[_Key], _Made]) -> Callable[[_Key], _Made]:
        kept: Any = lru_cache(most)(function)
        _EMPTY.append(kept.cache_clear)

        @wraps(function)
        def found(key: _Key) -> _Made:
            text = key if isinstance(key, str) else getattr(key, "text", "")
            made: _Made = kept(key) if len(text) <= _MOST_LETTERS else function(key)
            return made

        return found

    return decorate


def forget_texts() -> None:
    """Keep nothing of any text, since one of them is forgotten."""
    for empty in _EMPTY:
        empty()
