"""Scores of every question under every strategy, stored with a result so that its statistics can be recomputed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

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
    metrics: Sequence[str] = ("recall@10", "ndcg@10"),
    without: Iterable[str] = (),
    seed: int = 0,
) -> list[Comparison]:
    """Recompute the comparisons of a recorded result from the scores of its questions.

    Args:
        path: File written by ``write_question_scores``.
        pairs: Strategies (a, b), reported as a minus b.
        metrics: Names of metrics that the file holds.
        without: IDs of questions to leave out, in addition to those that the record left out.
        seed: Random seed of the bootstrap and of the sign patterns; that of the record reproduces its numbers.

    Raises:
        EvaluationError: If the file is not of this kind, no question is left, or a pair or metric is unknown.
    """
    left_out = set(without)
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            records = [parsed_json(line) for line in lines]
        records = [line for line in records if not (line.get("left_out") or line["question_id"] in left_out)]
        names = list(records[0]["scores"]) if records else []
        columns = list(records[0]["scores"][names[0]]) if names else []
        scores = {
            name: np.array([[line["scores"][name][metric] for metric in columns] for line in records]) for name in names
        }
        questions = [QuestionOutcome(line["question_id"], line["space"], line["category"], ()) for line in records]
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError) as error:
        raise EvaluationError(f"{path}: not a question scores file of locigraph evaluate ({error!r})") from error
    if not records:
        raise EvaluationError(f"{path}: no question is left; there is nothing to compare")
    check_comparisons(pairs, metrics, names, columns)
    return compare(
        scores,
        columns,
        list(pairs),
        metrics,
        clusters=[question.space for question in questions],
        categories=rows_by_category(questions),
        seed=seed,
    )
