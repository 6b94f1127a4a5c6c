"""Time: doubling a text may at most double the time, for everything that reads text with patterns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from locigraph.consolidation.extractors.language_model import PlanForm
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.insights import insights_of
from locigraph.consolidation.protocols import Context
from locigraph.consolidation.replies import filled, read_reply
from locigraph.kg.language.dates import calendar_parts, resolve_times
from locigraph.kg.language.english import is_english
from locigraph.kg.language.mentions import named_dates, named_people
from locigraph.kg.language.redaction import redacted
from locigraph.kg.language.tokens import terms
from locigraph.kg.language.wordings import wording
from locigraph.retrieval.packing import count_tokens
from locigraph.retrieval.protocols import Hit
from locigraph.retrieval.query_generator import generate_queries
from locigraph.retrieval.view import folded
from locigraph.training.pseudo_questions import questions_about
from tests.fakes import MONDAY, make_turn, make_turns
from tests.fakes_graph import Extra, hit, make_snapshot

#: Pieces that a pattern begins with, or goes on with, and may then fail.
PIECES = (
    " ", "\n", "a", "A", "'", "’", ".", ". ", "? ", ",", "(", ") ", "1", "12", "2023", "may ", "may, ", "7 may ",
    "in may ", "march 3 ", "last ", "a few ", "a couple of ", "a ", "an ", "in ", "on ", "the first week of ", " and ",
    " or what ", ", and who ", "Aa ", "Aa of ", "Aa'", "I ", "my ", "I'm ", "ed", "loved ", "favourite ", "0", "é",
    "favourite a is ", "live in ", "work as a ", "is ", "said ", "2023-05-07 ", "_", "-", "\t", "went to A", "loving ",
    '"A', "“", "\u0301", "\u0316", "ﬃ", "que ", "eyJaaaaaaaa-", ".aaaaaaaa", "sk-", "pin: ", "-----BEGIN ",
    "PRIVATE KEY-----", "```", "```json", "<think>", "</think>", "{", "[", '{"a":', "(2023)",
)  # fmt: skip
#: What was quadratic once, tried before anything else: a reader, how its text begins, and what follows over and over.
NAMED = (
    ("queries", "", " "), ("dates", "", "may "), ("redaction", "", "eyJaaaaaaaa-"), ("replies", "```", "\n"),
    ("replies", "", "<think>"), ("replies", "", '{"a":{"'), ("questions", "A is", " "), ("people", "A", "\u0301\u0316"),
)  # fmt: skip


def _replied(text: str) -> object:
    try:
        return read_reply(text, lambda reply: filled(PlanForm, reply))
    except ValueError:
        return None


def _said(name: str, text: str) -> Hit:
    return replace(hit(name, "episode"), description=text)


def _insights(text: str) -> object:
    turns = make_turns(["That."])
    return insights_of(make_snapshot(turns, [Extra("knowledge_node", text, (0,))]), np.array([1]))


READERS: dict[str, Callable[[str], object]] = {
    "queries": generate_queries,
    "dates": lambda text: resolve_times(text, MONDAY.date()),
    "calendar": lambda text: calendar_parts(text, MONDAY.date()),
    "terms": terms,
    "rules": lambda text: RuleExtractor().plan(make_turn(0, text, speaker="Ann"), Context((), ())),
    "questions": questions_about,
    "redaction": redacted,
    "replies": _replied,
    "insights": _insights,
    "people": named_people,
    "named dates": lambda text: named_dates(text, MONDAY),
    "english": is_english,
    "wordings": wording,
    "tokens": count_tokens,
    "folding": lambda text: folded([_said("a", text), _said("b", f"{text}!")], [None, None]),
    "folding of many": lambda text: folded([_said(part, part) for part in text.split()], [None] * len(text.split())),
}
_START, _LARGEST, _LIMIT_S, _ATTEMPTS = 4_000, 64_000, 0.02, 2


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Tries without end: a reader, and a text of one or two pieces over and over, which may begin with another one."""
    randomness = random.Random(seed)
    whole: list[tuple[str, str, str]] = [(reader, "", piece) for reader in READERS for piece in PIECES]
    randomness.shuffle(whole)
    whole = [*NAMED, *whole]
    while True:
        for each in whole:
            yield partial(check, *each)
        whole = [
            (reader, randomness.choice(("", *PIECES)), "".join(randomness.sample(PIECES, randomness.randint(1, 2))))
            for reader in READERS
            for _ in PIECES
        ]


def check(reader: str, beginning: str, unit: str, *, seconds: Callable[..., float] | None = None) -> None:
    """Double the text until reading it takes a while; from there on each doubling may at most double the time.

    Two doublings are measured at once: linear readers take four times as long then, and quadratic ones sixteen times.
    A machine that others use may make one measurement slow or quick, so what looks too slow is measured again.
    """
    seconds = seconds or _seconds
    read, text = READERS[reader], (beginning, unit)
    size = _START
    while (spent := seconds(read, text, size)) < _LIMIT_S and size < _LARGEST:
        size *= 2
    if spent < _LIMIT_S:
        return
    for _ in range(_ATTEMPTS):
        spent = min(seconds(read, text, size) for _ in range(3))
        longer = min(seconds(read, text, 4 * size) for _ in range(2))
        if longer < 8 * spent:
            return
    what = f"{beginning!r} and then {unit!r}" if beginning else repr(unit)
    raise AssertionError(f"{reader} on {what}: {size} characters {spent:.3f} s, four times as many {longer:.3f} s")


def _seconds(read: Callable[[str], object], text: tuple[str, str], size: int) -> float:
    beginning, unit = text
    whole = (beginning + unit * (size // len(unit) + 1))[:size]
    started = time.process_time()
    read(whole)
    return time.process_time() - started
