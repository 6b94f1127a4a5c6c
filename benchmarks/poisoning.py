"""Harm that the turns of an attacker do to a memory, and protection by folding and by limiting the speakers.

    python -m benchmarks.poisoning [--corpus sample] [--turns 22] [--copies 1 11] [--singles 5] [--strategies all]

A stranger adds turns to every conversation: copies of its questions, either many of them once or a few of them many
times; or a single turn, which is a copy of one question or holds the content words of many. All questions of the
conversation are asked before and after the attack: without folding, with near-duplicates folded, and limited to the
words of its own speakers. Recall is reported for the attacked questions and for the rest.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import records
from locigraph.assembly import opening
from locigraph.assembly.settings import CorpusSettings, EncoderSettings
from locigraph.kg.corpora import Conversation
from locigraph.kg.language.tokens import STOP_WORDS, words
from locigraph.kg.types import Question, Turn, TurnId
from locigraph.memory import Memory
from locigraph.research.contenders import CONTENDERS
from locigraph.retrieval.hits import turns_of_hits
from locigraph.retrieval.metrics import evidence_recall

_STRANGER = "Mallory"
_DEPTHS = (1, 10)
_HEAD = (
    "attack", "strategy", "list", "questions", "number",
    *(f"recall@{depth} {when}" for when in ("before", "after") for depth in _DEPTHS),
)  # fmt: skip
Row = tuple[str, ...]  # attack, strategy, list, whether the questions are attacked


@dataclass(frozen=True)
class Attack:
    """Turns of a stranger, and the questions that they attack."""

    name: str
    texts: tuple[str, ...]
    questions: tuple[Question, ...]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="sample", help="corpus to attack: a bundled name or a file")
    parser.add_argument("--format", default="jsonl", help="format of the corpus")
    parser.add_argument("--conversations", nargs="*", default=None, help="conversations of the corpus; all by default")
    parser.add_argument(
        "--turns", type=int, default=22, help="number of turns that the stranger adds to each conversation"
    )
    parser.add_argument(
        "--copies", type=int, nargs="*", default=[1, 11], help="numbers of copies of each attacked question to try"
    )
    parser.add_argument(
        "--singles",
        type=int,
        default=5,
        help="number of questions per conversation that are each attacked by a single copy",
    )
    parser.add_argument(
        "--strategies",
        nargs="+",
        default=["v2", "v1"],
        help="names of strategies; all: every one that locigraph recall offers",
    )
    parser.add_argument("--cache", help="file of the text encoder's cache of vectors; by default the user's")
    options = records.options_of(parser)
    strategies = options.strategies
    if strategies == ["all"]:
        strategies = [row.name for row in CONTENDERS.values() if row.make is not None]
    corpus = opening.read_corpus(
        CorpusSettings(path=options.corpus, format=options.format, conversations=options.conversations)
    )
    encoder = EncoderSettings(adapter="default", cache=options.cache)
    scores: defaultdict[Row, list[list[float]]] = defaultdict(list)
    for conversation in corpus.conversations:
        asked = [each for each in corpus.questions if each.space == conversation.space and each.evidence]
        with tempfile.TemporaryDirectory() as folder:
            whole, place = Path(folder) / "whole", Path(folder) / "attacked"
            with Memory.open(whole / "graph.sqlite", encoder=encoder) as memory:
                memory.add_many(records.turns_to_add(conversation.turns))
                before = _measured(memory, conversation, asked, strategies)
            for attack in attacks(asked, turns=options.turns, copies=options.copies, singles=options.singles):
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(whole, place)
                with Memory.open(place / "graph.sqlite", encoder=encoder) as memory:
                    memory.add_many(records.turns_to_add(_hostile(conversation, attack.texts)))
                    after = _measured(memory, conversation, asked, strategies)
                for key, found in after.items():
                    for question, recall in found.items():
                        about = "attacked" if question in attack.questions else "the rest"
                        scores[(attack.name, *key, about)].append(before[key][question] + recall)
    rows = [
        dict(zip(_HEAD, [*row, len(each), *np.mean(each, axis=0).tolist()], strict=True))
        for row, each in scores.items()
    ]
    print(table(rows))
    records.write(options, {"rows": rows}, corpora=[corpus])


def attacks(asked: Sequence[Question], *, turns: int, copies: Sequence[int], singles: int) -> Iterator[Attack]:
    """The attacks on a conversation, one after the other.

    Args:
        asked: The conversation's questions.
        turns: Number of turns of an attack by copies, and of questions whose words the keyword attack holds.
        copies: Numbers of copies of each attacked question; each number is an attack of its own.
        singles: Number of questions that are each attacked by a single copy.
    """
    for each in copies:
        attacked = tuple(asked[: turns // each])
        yield Attack(f"{each} of each", tuple(q.text for q in attacked for _ in range(each)), attacked)
    for question in asked[:singles]:
        yield Attack("one copy", (question.text,), (question,))
    stuffed = tuple(asked[:turns])
    keywords = dict.fromkeys(word for q in stuffed for word in words(q.text) if word not in STOP_WORDS)
    yield Attack("keywords", (f"{' '.join(keywords).capitalize()}.",), stuffed)


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Means before and after each attack, as Markdown."""
    lines = [f"| {' | '.join(_HEAD)} |", f"|{'---|' * len(_HEAD)}"]
    for row in found:
        cells = (f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row.values())
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _hostile(conversation: Conversation, texts: Sequence[str]) -> list[Turn]:
    last = conversation.turns[-1]
    return [
        Turn(
            last.space, TurnId(f"attack:{number}"), last.space, "attack", number, _STRANGER, text, last.spoken_at
        )
        for number, text in enumerate(texts)
    ]  # fmt: skip


def _measured(
    memory: Memory, conversation: Conversation, asked: Sequence[Question], strategies: Sequence[str]
) -> dict[tuple[str, str], dict[Question, list[float]]]:
    """Recall of each question's evidence at each depth, by strategy and kind of list (the keys of ``views``)."""
    own = sorted({turn.speaker for turn in conversation.turns})
    views: Mapping[str, Mapping[str, Any]] = {
        "as it is": {"fold": None}, "folded": {}, "own speakers": {"speaker": own, "fold": None}
    }  # fmt: skip
    found: dict[tuple[str, str], dict[Question, list[float]]] = {}
    for strategy in strategies:
        for view, how in views.items():
            for question in asked:
                hits = memory.recall(
                    question.text, space=conversation.space, top_k=max(_DEPTHS), strategy=strategy, **how
                )
                ranking = turns_of_hits(hits, top_k=max(_DEPTHS))
                gold = frozenset(question.evidence)
                recall = [evidence_recall(ranking, gold, depth) for depth in _DEPTHS]
                found.setdefault((strategy, view), {})[question] = recall
    return found


if __name__ == "__main__":
    main()
