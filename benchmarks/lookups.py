"""How often an exact look-up finds the one turn that holds what is asked for: ``python -m benchmarks.lookups``.

A space of ``--turns`` turns of the bundled corpora holds, in between, turns of 5 to 2,000 words, each with one thing
that no other turn has: a rare word, a full name (of which others have either half), a code, a number or a date. A
question, or the thing alone, asks for each. Printed is, by kind and by length, at how many each strategy has the
turn first; those that BM25 does not have first are counted apart, since the question does not tell them.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks import records
from locigraph import Memory
from locigraph.kg.corpora import Corpus, load_corpus

_SPACE = "lookups"
_SESSION = 20  # turns
_BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
_LENGTHS = (5, 25, 100, 500, 2_000)  # words
_OF_EACH = 8  # look-ups of each kind and length
_REFERENCE = "bm25"
_RARE = (  # more than are needed, since some are in the corpora
    "kestrel sextant obsidian marzipan gargoyle theremin abacus quokka zeppelin gondola narwhal okapi samovar "
    "sarcophagus didgeridoo axolotl catamaran monocle harpsichord tourmaline pangolin astrolabe cuttlefish bandoneon "
    "peregrine tamarind wolverine malachite clavichord meteorite porcupine sundial mandolin rhubarb gazebo ocelot ibex "
    "trilobite minaret chandelier hovercraft platypus bathysphere calliope dirigible echidna falconer glockenspiel "
    "vermilion jackdaw kumquat lapwing mongoose nightjar oboe pheasant quince armadillo basilisk chinchilla dulcimer "
    "flugelhorn gyrfalcon halberd isotope jacaranda kaleidoscope lemur manatee obelisk periscope quetzal salamander"
)
_FIRST = ("Anna", "Bruno", "Clara", "Dario", "Elena", "Felix")
_LAST = ("Costa", "Berg", "Novak", "Silva", "Keller", "Moreau", "Lindqvist", "Okafor")
_MONTHS = ("January", "March", "April", "June", "August", "October", "December")


@dataclass(frozen=True)
class LookUp:
    """One thing that a turn alone holds, and a question that asks for it.

    Attributes:
        kind: What it is.
        said: The sentence that holds it.
        question: The question.
    """

    kind: str
    said: str
    question: str


def look_ups(texts: Sequence[str]) -> list[list[LookUp]]:
    """By kind, as many as there are lengths and turns of each; no text holds what they hold."""
    held = {word for text in texts for word in re.findall(r"\w+", text.lower())}
    count, rng = len(_LENGTHS) * _OF_EACH, random.Random(0)
    words = [word for word in _RARE.split() if word not in held]
    names = [f"{first} {last}" for first, last in product(_FIRST, _LAST)]
    codes = [f"{rng.choice('BDKQXZ')}{rng.choice('CJTVW')}-{1_000 + 97 * i}" for i in range(2 * count)]
    numbers = [str(20_000 + 1_301 * i) for i in range(2 * count)]
    dates = [f"{1 + 3 * i % 28} {_MONTHS[i % 7]} {1_900 + i}" for i in range(2 * count)]
    rng.shuffle(names)
    made = (
        ("word", "We saw the {} there.", ("Where was the {}?", "Who mentioned a {}?", "What of the {}?", "{}"), words),
        ("name", "It was {} who called.", ("What about {}?", "Who called, {}?", "Did {} come?", "{}"), names),
        ("code", "It says {} on it.", ("What has {} on it?", "What is {}?", "Who said {}?", "{}"), codes),
        ("number", "It came to {} then.", ("What came to {}?", "What is {}?", "Was it {} then?", "{}"), numbers),
        ("date", "It began on {}.", ("What began on {}?", "What was on {}?", "What happened on {}?", "{}"), dates),
    )
    joined = "\n".join(texts)
    found = [
        [
            LookUp(kind, said.format(it), asked[i // len(_LENGTHS) % len(asked)].format(it))
            for i, it in enumerate(it for it in its if it not in joined)
        ]
        for kind, said, asked, its in made
    ]
    assert min(map(len, found)) >= count, "too few of a kind are in no text of the corpora"
    return [each[:count] for each in found]


def talk(turns: int, loaded: Sequence[Corpus]) -> tuple[list[dict[str, Any]], dict[str, tuple[LookUp, int]]]:
    """Turns of one space, and by turn ID the look-up that a turn holds and about how many words it has."""
    rng = random.Random(1)
    texts = [turn.text for corpus in loaded for each in corpus.conversations for turn in each.turns if turn.text]
    rng.shuffle(texts)
    hidden = [
        (look_up, length) for each in look_ups(texts) for look_up, length in zip(each, _LENGTHS * _OF_EACH, strict=True)
    ]
    rng.shuffle(hidden)
    said = iter(texts)
    plain = [next(said) for _ in range(turns - len(hidden))]
    told: list[tuple[str, tuple[LookUp, int] | None]] = [(text, None) for text in plain]
    told += [(_around(look_up.said, length, said), (look_up, length)) for look_up, length in hidden]
    rng.shuffle(told)
    made, held = [], {}
    for number, (text, holds) in enumerate(told):
        day, minute = divmod(number, _SESSION)
        made.append(
            {
                "space": _SPACE, "session": f"s{day}", "speaker": ("Ines", "Oluf")[number % 2], "text": text,
                "spoken_at": _BEGIN + timedelta(days=day, minutes=minute), "turn_id": f"t{number}",
            }
        )  # fmt: skip
        if holds is not None:
            held[f"t{number}"] = holds
    return made, held


def _around(sentence: str, words: int, said: Iterator[str]) -> str:
    """The sentence in the middle of other texts, about so many words in all."""
    before: list[str] = []
    after: list[str] = []
    while sum(len(text.split()) for text in (*before, *after, sentence)) < words:
        (before if len(before) <= len(after) else after).append(next(said))
    return " ".join((*before, sentence, *after))


def main() -> None:
    """Print a table of shares, and write them down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=1_000, help="number of turns in the space")
    parser.add_argument("--strategies", nargs="+", default=["bm25", "dense", "v1", "v2"], help="strategies to compare")
    options = records.options_of(parser)
    loaded = [load_corpus("jsonl", name) for name in ("threads", "voices", "duets", "projects")]
    turns, held = talk(options.turns, loaded)
    first: dict[str, set[str]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="locigraph-lookups-") as folder,
        Memory.open(Path(folder) / "memory.sqlite") as memory,
    ):
        for start in tqdm(range(0, len(turns), 100), desc="turns", unit="00"):
            memory.add_many(turns[start : start + 100])
        for strategy in dict.fromkeys((_REFERENCE, *options.strategies)):
            first[strategy] = {
                turn
                for turn, (look_up, _) in tqdm(held.items(), desc=strategy)
                if turn in _first(memory, look_up.question, strategy)
            }
    rows = _rows(held, first)
    for row in rows:
        print(f"{row['of']:<8}{row['asked']:>5}", *(f"{name} {share:.3f}" for name, share in row["first"].items()))
    records.write(options, {"rows": rows}, corpora=loaded)


def _first(memory: Memory, question: str, strategy: str) -> Sequence[str]:
    hits = memory.recall(question, space=_SPACE, top_k=1, strategy=strategy).hits
    return hits[0].turn_ids if hits else ()


def _rows(held: dict[str, tuple[LookUp, int]], first: dict[str, set[str]]) -> list[dict[str, Any]]:
    """By kind, length and in all: how many BM25 has first, and the share of these that each strategy has first."""
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for turn, (look_up, length) in held.items():
        for group in (look_up.kind, f"{length:,}", "all"):
            groups[group].add(turn)
    return [
        {
            "of": name,
            "look-ups": len(group),
            "asked": len(told := group & first[_REFERENCE]),
            "first": {strategy: len(told & found) / max(1, len(told)) for strategy, found in first.items()},
        }
        for name, group in groups.items()
    ]


if __name__ == "__main__":
    main()
