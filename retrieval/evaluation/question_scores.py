"""Scores of every question under every strategy, stored with a result so that its statistics can be recomputed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.files import parsed_json, replace_file
from locigraph.retrieval.evaluation.errors import EvaluationError
from locigraph.retrieval.evaluation.outcomes import QuestionOutcome, StrategyRun, by_strategy
from locigraph.retrieval.evaluation.results import Comparison
from locigraph.retrieval.evaluation.summary import (
    check_comparisons,
    columns_of,
    compare,
    rows_by_category,
    score_table,
)


def write_question_scores(
    path: Path, questions: Sequence[QuestionOutcome], runs: Sequence[StrategyRun], *, left_out: Collection[str] = ()
) -> None:
    """Write one line of compressed JSON per question: id, conversation, category, fold, and every strategy's scores.

    Args:
        path: File; should end in ``.jsonl.gz``.
        questions: Questions with their gold evidence.
        runs: One for each strategy and seed; scores are means over seeds.
        left_out: IDs of the questions that are excluded from all comparisons; their lines are marked.
    """
    columns = columns_of(runs)
    means = {
        name: np.mean([score_table(questions, run, columns)[:, : len(columns)] for run in same], axis=0)
        for name, same in by_strategy(runs).items()
    }
    lines = [
        {
            "question_id": question.question_id,
            "space": question.space,
            "category": question.category,
            "fold": question.fold,
            **({"left_out": True} if question.question_id in left_out else {}),
            "scores": {name: dict(zip(columns, table[row].tolist(), strict=True)) for name, table in means.items()},
        }
        for row, question in enumerate(questions)
    ]
    # No time stamp in the gzip header, so that the same scores give the same bytes.
    replace_file(path, gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode(), mtime=0))


def compare_again(
    path: Path,
    pairs: Sequence[tuple[str, str]],
    *,
    also: Sequence[Path] = (),
    metrics: Sequence[str] = ("recall@10", "ndcg@10"),
    without: Iterable[str] = (),
    seed: int = 0,
) -> list[Comparison]:
    """Recompute the comparisons of recorded results from the scores of their questions.

    Args:
        path: File written by ``write_question_scores``.
        pairs: Strategies (a, b), reported as a minus b. A strategy of the second file is named ``v2@2``, and so on.
        also: Further files, about the same questions.
        metrics: Names of metrics that all of the files hold.
        without: IDs of questions to leave out, in addition to those that a record left out.
        seed: Random seed of the bootstrap and of the sign patterns; that of the record reproduces its numbers.

    Raises:
        EvaluationError: If a file is not of this kind, or about other questions, or no question is left, or a pair or
            metric is unknown.
    """
    left_out = set(without)
    files = [_read(each) for each in (path, *also)]
    for file, records in zip(also, files[1:], strict=True):
        if records.keys() != files[0].keys():
            raise EvaluationError(
                f"{file}: its questions are not those of {path} ({len(records):,} and {len(files[0]):,}); compare "
                "records of the same questions"
            )
    left_out |= {name for records in files for name, line in records.items() if line.get("left_out")}
    kept = [name for name in files[0] if name not in left_out]
    if not kept:
        raise EvaluationError(f"{path}: no question is left; there is nothing to compare")
    held = [_metrics_of(file, records[kept[0]]) for file, records in zip((path, *also), files, strict=True)]
    columns = [metric for metric in held[0] if all(metric in each for each in held)]
    scores: dict[str, NDArray[np.float64]] = {}
    for number, (file, records) in enumerate(zip((path, *also), files, strict=True), start=1):
        lines = [records[name] for name in kept]
        try:
            if number == 1:
                questions = [
                    QuestionOutcome(line["question_id"], line["space"], line["category"], ()) for line in lines
                ]
            for name in lines[0]["scores"]:
                table = [[line["scores"][name][metric] for metric in columns] for line in lines]
                scores[name if number == 1 else f"{name}@{number}"] = np.array(table)
        except (KeyError, TypeError, AttributeError) as error:
            raise _not_scores(file, error) from error
    check_comparisons(pairs, metrics, list(scores), columns)
    return compare(
        scores,
        columns,
        list(pairs),
        metrics,
        clusters=[question.space for question in questions],
        categories=rows_by_category(questions),
        seed=seed,
    )


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The lines of a file of question scores, by the question's ID."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return {line["question_id"]: line for line in map(parsed_json, lines)}
    except FileNotFoundError as error:
        raise EvaluationError(f"{path}: no such file; name one that locigraph evaluate has written") from error
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise _not_scores(path, error) from error


def _metrics_of(path: Path, line: Mapping[str, Any]) -> list[str]:
    """Names of the metrics of a line."""
    try:
        return list(next(iter(line["scores"].values()), ()))
    except (KeyError, TypeError, AttributeError) as error:
        raise _not_scores(path, error) from error


def _not_scores(path: Path, error: Exception) -> EvaluationError:
    return EvaluationError(f"{path}: not a question scores file of locigraph evaluate ({error!r})")
