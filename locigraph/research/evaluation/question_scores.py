"""Scores of every question under every strategy, stored with a result so that its statistics can be recomputed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.errors import shortened
from locigraph.kg.files import parsed_json, replace_file
from locigraph.research.errors import EvaluationError
from locigraph.research.evaluation.outcomes import QuestionOutcome, StrategyRun, by_strategy
from locigraph.research.evaluation.results import Comparison
from locigraph.research.evaluation.summary import (
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
        EvaluationError: If a file is not of this kind, or about other questions, or no question is left, or a pair, a
            metric or a question to leave out is unknown.
    """
    records = [_read(each) for each in (path, *also)]
    first = records[0]
    for file, record in zip(also, records[1:], strict=True):
        if record.questions.keys() != first.questions.keys():
            raise EvaluationError(
                f"{file}: its questions are not those of {path} ({len(record.questions):,} and "
                f"{len(first.questions):,}); compare records of the same questions"
            )
    unknown = [name for name in without if name not in first.questions]
    if unknown:
        raise EvaluationError(f"{path}: question {shortened(unknown[0])} is not in it, so it cannot be left out")
    left_out = {*without}.union(*(record.left_out for record in records))
    kept = {name: question for name, question in first.questions.items() if name not in left_out}
    if not kept:
        raise EvaluationError(f"{path}: no question is left; there is nothing to compare")
    columns = [metric for metric in first.metrics if all(metric in record.metrics for record in records)]
    scores = {
        name if number == 1 else f"{name}@{number}": table
        for number, record in enumerate(records, start=1)
        for name, table in record.tables(kept, columns).items()
    }
    check_comparisons(pairs, metrics, list(scores), columns)
    questions = list(kept.values())
    return compare(
        scores,
        columns,
        list(pairs),
        metrics,
        clusters=[question.space for question in questions],
        categories=rows_by_category(questions),
        seed=seed,
    )


@dataclass(frozen=True, eq=False)
class _Record:
    """A file of question scores.

    Attributes:
        questions: The questions by ID, in the order of the file.
        left_out: IDs of those that the record left out of comparisons.
        metrics: Names of the metrics.
        scores: The scores of each strategy, [questions, metrics].
    """

    questions: dict[str, QuestionOutcome]
    left_out: frozenset[str]
    metrics: list[str]
    scores: dict[str, NDArray[np.float64]]

    def tables(self, questions: Iterable[str], metrics: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """The scores of each strategy for some questions and metrics, in their order."""
        place = {name: row for row, name in enumerate(self.questions)}
        chosen = np.ix_([place[name] for name in questions], [self.metrics.index(metric) for metric in metrics])
        return {name: table[chosen] for name, table in self.scores.items()}


def _read(path: Path) -> _Record:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines = {line["question_id"]: line for line in map(parsed_json, file)}
        first: dict[str, dict[str, float]] = next((line["scores"] for line in lines.values()), {})
        metrics = list(next(iter(first.values()), ()))
        return _Record(
            {name: QuestionOutcome(name, line["space"], line["category"], ()) for name, line in lines.items()},
            frozenset(name for name, line in lines.items() if line.get("left_out")),
            metrics,
            {
                name: np.array([[line["scores"][name][metric] for metric in metrics] for line in lines.values()])
                for name in first
            },
        )
    except FileNotFoundError as error:
        raise EvaluationError(f"{path}: no such file; name one that locigraph evaluate has written") from error
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvaluationError(f"{path}: not a question scores file of locigraph evaluate ({error!r})") from error
