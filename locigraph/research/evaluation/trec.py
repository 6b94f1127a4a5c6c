"""Rankings in the formats of TREC, which other evaluation tools read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from locigraph.kg.files import parsed_json, replace_file
from locigraph.research.errors import EvaluationError


def export_trec(rankings: Path, folder: Path) -> list[Path]:
    """Write ``qrels.txt`` and a run file for each strategy and seed.

    IDs are escaped as in URLs, since columns are separated by blanks. Scores are 1 / rank, since the rankings record
    only the order of the turns.

    A question for which a strategy found nothing has no line in its run file. ``trec_eval`` leaves it out of its means
    unless it is called with ``-c``, which counts it as 0.

    Args:
        rankings: rankings.jsonl of ``locigraph evaluate``.
        folder: Folder to write to.

    Returns:
        The files written, the relevance judgements first.

    Raises:
        EvaluationError: If the file is not of this kind.
    """
    qrels: dict[str, list[str]] = {}
    runs: dict[str, list[str]] = {}
    try:
        with rankings.open(encoding="utf-8") as lines:
            for line in lines:
                _add(parsed_json(line), qrels, runs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EvaluationError(f"{rankings}: not a rankings file of locigraph evaluate ({error!r})") from error
    if not runs:
        raise EvaluationError(f"{rankings}: holds no ranking")
    folder.mkdir(parents=True, exist_ok=True)
    judged = [line for lines_of in qrels.values() for line in lines_of]
    written = {folder / "qrels.txt": judged} | {folder / f"{name}.run": ranked for name, ranked in runs.items()}
    for path, content in written.items():
        replace_file(path, "".join(f"{line}\n" for line in content))
    return list(written)


def _add(line: Mapping[str, Any], qrels: dict[str, list[str]], runs: dict[str, list[str]]) -> None:
    question, seed = quote(line["question_id"], safe=":@"), line["seed"]
    qrels[question] = [f"{question} 0 {quote(turn, safe=':@')} 1" for turn in line["gold"]]
    tag = re.sub(r"[^A-Za-z0-9_.-]", "_", line["strategy"]) + ("" if seed is None else f"-seed{seed}")
    runs.setdefault(tag, []).extend(
        f"{question} Q0 {quote(turn, safe=':@')} {rank} {1 / rank:.6f} {tag}"
        for rank, turn in enumerate(line["ranking"], start=1)
    )
