"""What one speaker with many turns does to a memory, and what folding and a view of speakers do about it.

    python -m benchmarks.poisoning [--corpus sample] [--turns 22] [--copies 1 11]

A stranger adds turns to every conversation that are copies of its questions: each question once, or a few questions
many times. The attacked questions are asked before and after: with each hit in a place of its own, with near-duplicates
folded, and with the words of the conversation's own speakers alone.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from locigraph.kg.corpora import Conversation
from locigraph.kg.types import Question, Turn
from locigraph.retrieval.evaluation.metrics import evidence_recall
from locigraph.retrieval.hits import turns_of_hits
from locigraph.scripts import opening
from locigraph.scripts.memory import Memory
from locigraph.scripts.settings import CorpusSettings, EncoderSettings

_STRANGER = "Mallory"
_DEPTHS = (1, 10)
Row = tuple[str, str, str]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="sample")
    parser.add_argument("--format", default="jsonl")
    parser.add_argument("--conversations", nargs="*", default=None)
    parser.add_argument("--turns", type=int, default=22, help="of the stranger in each conversation")
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 11], help="of each attacked question")
    parser.add_argument("--strategies", nargs="+", default=["v2", "v1"])
    parser.add_argument("--cache", default="runs/text_cache.sqlite", help="of the text encoder")
    options = parser.parse_args()
    corpus = opening.read_corpus(
        CorpusSettings(path=options.corpus, format=options.format, conversations=options.conversations)
    )
    encoder = EncoderSettings(adapter="default", cache=options.cache)
    scores: defaultdict[Row, list[list[float]]] = defaultdict(list)
    for conversation in corpus.conversations:
        asked = [each for each in corpus.questions if each.space == conversation.space and each.evidence]
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder) / "whole"
            with Memory.open(whole / "graph.sqlite", encoder=encoder) as memory:
                memory.add_many(_given(conversation.turns))
            for copies in options.copies:
                attacked = asked[: options.turns // copies]
                for name, turns in (("none", []), (f"{copies} of each", _attack(conversation, attacked, copies))):
                    place = Path(folder) / "attacked"
                    shutil.rmtree(place, ignore_errors=True)
                    shutil.copytree(whole, place)
                    with Memory.open(place / "graph.sqlite", encoder=encoder) as memory:
                        memory.add_many(_given(turns))
                        for row, found in _measured(memory, conversation, attacked, options.strategies):
                            scores[f"{name} ({len(attacked)} questions)", *row].append(found)
    print(f"{'copies':<26}{'strategy':<10}{'list':<20}" + "".join(f"{f'recall@{depth}':>10}" for depth in _DEPTHS))
    for (name, strategy, view), rows in scores.items():
        means = np.mean(rows, axis=0)
        print(f"{name:<26}{strategy:<10}{view:<20}" + "".join(f"{mean:>10.3f}" for mean in means))


def _given(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Turns as ``Memory.add_many`` takes them."""
    names = ("space", "speaker", "text", "spoken_at", "turn_id", "image_caption")
    return [{name: asdict(turn)[name] for name in names} | {"session": turn.session_id} for turn in turns]


def _attack(conversation: Conversation, attacked: Sequence[Question], copies: int) -> list[Turn]:
    last = conversation.turns[-1]
    return [
        Turn(
            last.space, f"attack:{number}:{copy}", last.space, "attack", number * copies + copy, _STRANGER,  # type: ignore[arg-type]
            question.text, last.spoken_at,
        )
        for number, question in enumerate(attacked)
        for copy in range(copies)
    ]  # fmt: skip


def _measured(
    memory: Memory, conversation: Conversation, attacked: Sequence[Question], strategies: Sequence[str]
) -> Iterator[tuple[tuple[str, str], list[float]]]:
    """Recall of the questions' evidence at each depth, by strategy and list."""
    own = sorted({turn.speaker for turn in conversation.turns})
    views: Mapping[str, Mapping[str, Any]] = {
        "as it is": {"fold": None}, "folded": {}, "own speakers": {"speaker": own, "fold": None}
    }  # fmt: skip
    for strategy in strategies:
        for view, how in views.items():
            for question in attacked:
                hits = memory.recall(
                    question.text, space=conversation.space, top_k=max(_DEPTHS), strategy=strategy, **how
                )
                ranking = turns_of_hits(hits, top_k=max(_DEPTHS))
                gold = frozenset(question.evidence)
                yield (strategy, view), [evidence_recall(ranking, gold, depth) for depth in _DEPTHS]


if __name__ == "__main__":
    main()
