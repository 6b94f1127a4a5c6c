"""Writes and reads the contexts of an evaluation, from which answers are generated later."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from locigraph.kg.counts import counted
from locigraph.kg.files import replace_file
from locigraph.research.errors import EvaluationError
from locigraph.research.evaluation.outcomes import StrategyRun, by_strategy


def write_contexts(path: Path, runs: Sequence[StrategyRun]) -> None:
    """Write the contexts of all questions; each distinct line is stored once.

    Args:
        path: File to write; its name should end in ``.jsonl.gz``.
        runs: One for each strategy and seed; of several seeds only the first is written.
    """
    place: dict[str, int] = {}
    entries = []
    for name, same in by_strategy(runs).items():
        for question_id, contexts in same[0].contexts.items():
            numbers = {
                str(tokens): [place.setdefault(line, len(place)) for line in context.lines]
                for tokens, context in contexts.items()
            }
            entries.append({"strategy": name, "question_id": question_id, "contexts": numbers})
    written = [json.dumps({"lines": list(place)}), *map(json.dumps, entries)]
    replace_file(path, gzip.compress("".join(f"{line}\n" for line in written).encode(), compresslevel=6, mtime=0))


def read_contexts(path: Path, tokens: int) -> dict[str, dict[str, str]]:
    """Read the contexts of one size in tokens: strategy -> question ID -> text.

    Raises:
        EvaluationError: If the file is not of this kind, or holds no contexts of that size.
    """
    texts: dict[str, dict[str, str]] = {}
    sizes: set[str] = set()
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines = json.loads(next(file))["lines"]
            for record in map(json.loads, file):
                sizes.update(record["contexts"])
                if str(tokens) in record["contexts"]:
                    text = "\n".join(lines[number] for number in record["contexts"][str(tokens)])
                    texts.setdefault(record["strategy"], {})[record["question_id"]] = text
    except (OSError, EOFError, StopIteration, ValueError, KeyError, TypeError, IndexError) as error:
        raise EvaluationError(f"{path}: not a contexts file of locigraph evaluate ({error!r})") from error
    if not texts:
        raise EvaluationError(
            f"{path}: holds no contexts of {counted(tokens, 'token')}; choose one of "
            f"{', '.join(sorted(sizes, key=int))}"
        )
    return texts
