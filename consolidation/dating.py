"""Resolves the dates of facts and events from their wording, and adds them to the description."""

from __future__ import annotations

from locigraph.kg.language.dated_texts import Days, dated
from locigraph.kg.language.dates import resolve_times
from locigraph.kg.types import Turn


def days_of(text: str, turn: Turn, given: Days | None) -> Days | None:
    """The days given by the extractor, else those of the first time expression in the text; None if there is none."""
    if given is not None:
        return given
    expressions = resolve_times(text, turn.spoken_at.date() if turn.spoken_at else None)
    return (expressions[0].first, expressions[0].last) if expressions else None


def with_days(text: str, turn: Turn, given: Days | None = None) -> str:
    """The text followed by its days in brackets, given or named in it; see ``days_of``."""
    return dated(text, days_of(text, turn, given))
