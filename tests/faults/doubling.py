"""Time: doubling a text may at most double the time of everything that reads text from outside.

These are all patterns of the packages, which ``patterns`` finds; the functions that use them; and the readers of
corpora, with a text as one turn, as many turns, and as the file itself.
"""

from __future__ import annotations

import gc
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from locigraph.consolidation.extractors.language_model import PlanForm
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.linking import causes_of, mentions_of
from locigraph.consolidation.llm import _refused_parameter
from locigraph.consolidation.pipeline import Consolidator
from locigraph.consolidation.protocols import Context
from locigraph.consolidation.replies import filled, read_reply
from locigraph.kg.corpora import load_corpus
from locigraph.kg.errors import CorpusFileError, CorpusFormatError
from locigraph.kg.language.calendar_parts import calendar_parts
from locigraph.kg.language.dates import resolve_times
from locigraph.kg.language.english import is_english
from locigraph.kg.language.foreign_times import TIME_WORDS, names_a_time
from locigraph.kg.language.languages import LANGUAGES, language_of
from locigraph.kg.language.mentions import named_dates, named_people
from locigraph.kg.language.redaction import redacted
from locigraph.kg.language.seen_texts import wording
from locigraph.kg.language.terms import terms
from locigraph.kg.store import Store
from locigraph.kg.text_caches import forget_texts
from locigraph.kg.types import NodeId
from locigraph.research.published.magma import intent_of
from locigraph.retrieval.budgets import count_tokens
from locigraph.retrieval.hit_filters import folded
from locigraph.retrieval.looked_up import LookedUp
from locigraph.retrieval.protocols import Hit, VectorMatch
from locigraph.retrieval.query_generator import generate_queries
from locigraph.training.pseudo_questions import questions_about
from tests.fakes import MONDAY, SPACE, FakeContext, FakeEncoder, make_turn, make_turns
from tests.fakes_graph import Extra, hit, make_snapshot
from tests.faults.corpora import SOUND
from tests.faults.patterns import patterns

#: Pieces with which a match may begin or continue before it fails.
PIECES = (
    " ", "\n", "a", "A", "'", "’", ".", ". ", "? ", ",", "(", ") ", "1", "12", "2023", "may ", "may, ", "7 may ",
    "in may ", "march 3 ", "last ", "a few ", "a couple of ", "a ", "an ", "in ", "on ", "the first week of ", " and ",
    " or what ", ", and who ", "Aa ", "Aa of ", "Aa'", "I ", "my ", "I'm ", "ed", "loved ", "favourite ", "0", "é",
    "favourite a is ", "live in ", "work as a ", "is ", "said ", "2023-05-07 ", "_", "-", "\t", "went to A", "loving ",
    '"A', "“", "\u0301", "\u0316", "ﬃ", "que ", "eyJaaaaaaaa-", ".aaaaaaaa", "sk-", "pin: ", "-----BEGIN ",
    "PRIVATE KEY-----", "```", "```json", "<think>", "</think>", "{", "[", '{"a":', "(2023)",
    "<@U1|", "<#C1|", "<!here|", "<a: 00000012-", "<http:", "|", ">", "<", "D1:", "because ", "made it ", "what ",
    "12/03/2024, 18:40 - Ana: ", "Ana: ", "\r", '{"role":"user","content":"a"}\n', "-a", "\\u0041", "travel",
    "session_", "before ", "until ", "the week before ", "summer ", "last summer ", "since may ", "of ",
)  # fmt: skip
#: Cases that were quadratic once and are tried first: a reader, the beginning of its text, and what is then repeated.
NAMED = (
    ("queries", "", " "), ("dates", "", "may "), ("redaction", "", "eyJaaaaaaaa-"), ("replies", "```", "\n"),
    ("replies", "", "<think>"), ("replies", "", '{"a":{"'), ("questions", "A is", " "), ("people", "A", "\u0301\u0316"),
    ("whatsapp, a file", "12/03/2024, 18:40 - Ana: a", "\n"),
)  # fmt: skip


def _replied(text: str) -> object:
    try:
        return read_reply(text, lambda reply: filled(PlanForm, reply))
    except ValueError:
        return None


def _said(name: str, text: str) -> Hit:
    return replace(hit(name, "episode"), text=text)


def _links(text: str) -> object:
    named = make_snapshot(make_turns(["That.", text]), [Extra("entity", text)])
    return causes_of(named), mentions_of(named, {NodeId("n2"): "person"})


def _consolidated(text: str) -> None:
    with Store(":memory:") as store:
        store.append_turns([make_turn(0, text, speaker="Ann")])
        Consolidator(store, RuleExtractor(), FakeEncoder(), FakeContext()).run(SPACE)


def _as_file(kind: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        SOUND[kind].write(Path(folder), SOUND[kind].make(["That."]))
        path = next(each for each in sorted(Path(folder).rglob("*")) if each.is_file())
        _load(kind, str(path), path.write_text(text))


def _as_turns(kind: str, texts: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _load(kind, str(SOUND[kind].write(Path(folder), SOUND[kind].make(texts))))


def _load(kind: str, path: str, _: object = None) -> None:
    with suppress(CorpusFileError, CorpusFormatError):
        load_corpus(kind, path)


def _cut(text: str) -> list[str]:
    return [text[place : place + _TURN] for place in range(0, len(text), _TURN)]


def matched(pattern: re.Pattern[str], text: str) -> None:
    """Find all matches of a pattern in a text."""
    for _ in pattern.finditer(text):
        pass


_TURN = 40  # characters of a turn when a text is cut into many
READERS: dict[str, Callable[[str], object]] = {
    "queries": lambda text: generate_queries(text, MONDAY.date()),
    "dates": lambda text: resolve_times(text, MONDAY.date()),
    "calendar": lambda text: calendar_parts(text, MONDAY.date()),
    "terms": terms,
    "rules": lambda text: RuleExtractor().plan(make_turn(0, text, speaker="Ann"), Context((), ())),
    "questions": questions_about,
    "redaction": redacted,
    "languages": language_of,
    "foreign times": lambda text: [row.translated(text) for row in TIME_WORDS.values()],
    "foreign names": lambda text: [names_a_time(text, language) for language in LANGUAGES.values()],
    "replies": _replied,
    "people": named_people,
    "named dates": lambda text: named_dates(text, MONDAY),
    "english": is_english,
    "wordings": wording,
    "tokens": count_tokens,
    "folding": lambda text: folded([_said("a", text), _said("b", f"{text}!")], [None, None]),
    "folding of many": lambda text: folded([_said(part, part) for part in text.split()], [None] * len(text.split())),
    "intent": intent_of,
    "look-ups": lambda text: LookedUp.by(text).first(
        [VectorMatch(NodeId(name), "episode", (), 1.0) for name in "ab"],
        {NodeId("a"): text, NodeId("b"): "Ana: no"},
        signal="graph",
        top_k=2,
    ),
    "links": _links,
    "consolidation": _consolidated,
    "refusal": lambda text: _refused_parameter(text, {"max_tokens": 1, "temperature": 0}),
    **{f"{kind}, a turn": partial(lambda kind, text: _as_turns(kind, [text]), kind) for kind in SOUND},
    **{f"{kind}, turns": partial(lambda kind, text: _as_turns(kind, _cut(text)), kind) for kind in SOUND},
    **{f"{kind}, a file": partial(_as_file, kind) for kind in SOUND},
}
#: Functions that compile patterns from their arguments, and the reader that calls each.
CALLED_BY = {
    "kg.language.dates.time_rules": "dates",
    "kg.language.question_times._rules": "queries",
    "consolidation.change._mention": "consolidation",
    "consolidation.linking.mentions_of": "links",
    "consolidation.llm._refused_parameter": "refusal",
    "kg.language.foreign_times.names_a_time": "foreign names",
    **{f"kg.language.foreign_times.{name}": "foreign times" for name in ("rules", "tenses", "_value", "_english")},
    "kg.language.languages._scripts": "languages",
    "retrieval.looked_up._starts": "look-ups",
    "retrieval.index.milvus.owned": None,  # compiled from names that the system itself chooses
}
_START, _LARGEST, _LIMIT_S, _ATTEMPTS = 4_000, 64_000, 0.02, 2


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries, each with a reader and a text that repeats one or two pieces and may begin with another one."""
    randomness = random.Random(seed)
    readers = [*READERS, *patterns()]
    whole: list[tuple[str, str, str]] = [(reader, "", piece) for reader in readers for piece in PIECES]
    randomness.shuffle(whole)
    whole = [*NAMED, *whole]
    while True:
        for each in whole:
            yield partial(check, *each)
        whole = [
            (reader, randomness.choice(("", *PIECES)), "".join(randomness.sample(PIECES, randomness.randint(1, 2))))
            for reader in readers
            for _ in PIECES
        ]


def check(reader: str, beginning: str, unit: str, *, seconds: Callable[..., float] | None = None) -> None:
    """Double the text until reading it takes a while; from then on each doubling may at most double the time.

    Two doublings are measured at once: linear readers then take four times as long, and quadratic ones sixteen times.
    On a shared machine a single measurement may be wrong, so what looks too slow is measured again.
    """
    seconds = seconds or seconds_for
    read, text = READERS.get(reader) or partial(matched, patterns()[reader]), (beginning, unit)
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


def seconds_for(read: Callable[[str], object], text: tuple[str, str], size: int) -> float:
    """Processor time in seconds for reading a text of a size: a beginning, and then a repeated piece."""
    beginning, unit = text
    whole = (beginning + unit * (size // len(unit) + 1))[:size]
    forget_texts()  # a text that was read before is not read again, unless it is long
    # Otherwise garbage collection would be measured too, and this process holds far more objects than the reader makes.
    gc.disable()
    try:
        started = time.process_time()
        read(whole)
        return time.process_time() - started
    finally:
        gc.enable()
