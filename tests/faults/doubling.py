"""Time: doubling a text may at most double the time, for everything that reads text with patterns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.protocols import Context
from locigraph.kg.language.dates import calendar_parts, resolve_times
from locigraph.kg.language.tokens import terms
from locigraph.retrieval.query_generator import generate_queries
from locigraph.training.pseudo_questions import questions_about
from tests.fakes import MONDAY, make_turn

#: Pieces that a pattern begins with, or goes on with, and may then fail.
PIECES = (
    " ", "\n", "a", "A", "'", "’", ".", ". ", "? ", ",", "(", ") ", "1", "12", "2023", "may ", "may, ", "7 may ",
    "in may ", "march 3 ", "last ", "a few ", "a couple of ", "a ", "an ", "in ", "on ", "the first week of ", " and ",
    " or what ", ", and who ", "Aa ", "Aa of ", "Aa'", "I ", "my ", "I'm ", "ed", "loved ", "favourite ", "0", "é",
    "favourite a is ", "live in ", "work as a ", "is ", "said ", "2023-05-07 ", "_", "-", "\t",
)  # fmt: skip

READERS: dict[str, Callable[[str], object]] = {
    "queries": generate_queries,
    "dates": lambda text: resolve_times(text, MONDAY.date()),
    "calendar": lambda text: calendar_parts(text, MONDAY.date()),
    "terms": terms,
    "rules": lambda text: RuleExtractor().plan(make_turn(0, text, speaker="Ann"), Context((), ())),
    "questions": lambda text: questions_about(text[:2_000]),  # of descriptions, whose length is limited
}
_START, _LIMIT_S, _ATTEMPTS = 4_000, 0.02, 3


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Tries without end: a reader, and a text of one or two pieces over and over."""
    randomness = random.Random(seed)
    whole: list[tuple[str, tuple[str, ...]]] = [(reader, (piece,)) for reader in READERS for piece in PIECES]
    randomness.shuffle(whole)
    while True:
        for reader, pieces in whole:
            yield lambda reader=reader, pieces=pieces: check(reader, pieces)  # type: ignore[misc]
        whole = [(reader, tuple(randomness.sample(PIECES, 2))) for reader in READERS for _ in PIECES]


def check(reader: str, pieces: tuple[str, ...], *, seconds: Callable[..., float] | None = None) -> None:
    """Double the text until reading it takes a while; from there on each doubling may at most double the time.

    A machine that others use may make one measurement slow or quick, so what looks too slow is measured again.
    """
    seconds = seconds or _seconds
    read, unit = READERS[reader], "".join(pieces)
    size = _START
    while (spent := seconds(read, unit, size)) < _LIMIT_S and size < 16_000:
        size *= 2
    if spent < _LIMIT_S:
        return
    for _ in range(_ATTEMPTS):
        spent = min(seconds(read, unit, size) for _ in range(3))
        twice = min(seconds(read, unit, 2 * size) for _ in range(3))
        if twice < 3 * spent:  # what is quadratic takes four times as long
            return
    raise AssertionError(f"{reader} on {unit!r}: {size} characters {spent:.3f} s, twice as many {twice:.3f} s")


def _seconds(read: Callable[[str], object], unit: str, size: int) -> float:
    text = (unit * (size // len(unit) + 1))[:size]
    started = time.process_time()
    read(text)
    return time.process_time() - started
