"""What is scored: questions with their gold evidence, and the rankings that a strategy returned for them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from locigraph.research.errors import EvaluationError, IncompleteRunError

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class QuestionOutcome:
    """A question that is scored, with its gold evidence.

    ``space`` is its conversation, the unit of all statistics. ``gold`` holds IDs of turns and must not be empty;
    ``gold_sessions`` holds IDs of sessions if the corpus names sessions as evidence. ``fold`` is the cross-validation
    fold that tested the question; None without folds.
    """

    question_id: str
    space: str
    category: str
    gold: tuple[str, ...]
    gold_sessions: tuple[str, ...] = ()
    fold: int | None = None


@dataclass(frozen=True, slots=True)
class PackedContext:
    """A context of limited length, packed from a strategy's hits.

    ``lines`` are the memories as a reader sees them, in the order of the context, possibly with notes on those left
    out. ``turns`` are the source turns of the memories, and ``tokens`` is the number of tokens used.
    """

    lines: tuple[str, ...]
    turns: tuple[str, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class StrategyRun:
    """What one strategy returned, by question ID: turn IDs, best first, and milliseconds.

    ``search_ms`` is the time without encoding the query, ``encode_ms`` that of encoding alone (0 for a strategy without
    an encoder). ``seed`` distinguishes repetitions of one strategy; None for a strategy without randomness.
    ``contexts`` holds contexts by their size in tokens; it is empty if none were packed.
    """

    name: str
    rankings: Mapping[str, Sequence[str]]
    search_ms: Mapping[str, float]
    encode_ms: Mapping[str, float]
    seed: int | None = None
    contexts: Mapping[str, Mapping[int, PackedContext]] = field(default_factory=dict)


def by_strategy(runs: Sequence[StrategyRun]) -> dict[str, list[StrategyRun]]:
    """The runs of each strategy, one for each seed, in their order."""
    runs_of: dict[str, list[StrategyRun]] = {}
    for run in runs:
        runs_of.setdefault(run.name, []).append(run)
    return runs_of


def check_questions(questions: Sequence[QuestionOutcome]) -> None:
    """Raise EvaluationError unless every question has a unique id and gold evidence."""
    if not questions:
        raise EvaluationError("there are no questions with gold evidence; nothing can be scored")
    repeated = [name for name, times in Counter(q.question_id for q in questions).items() if times > 1]
    if repeated:
        raise EvaluationError(f"question id {repeated[0]!r} occurs more than once; ids must be unique")
    for question in questions:
        if not question.gold:
            raise EvaluationError(
                f"question {question.question_id!r} has no gold evidence; count it among the skipped ones"
            )


def check_runs(questions: Sequence[QuestionOutcome], runs: Sequence[StrategyRun]) -> None:
    """Raise EvaluationError unless every run has a ranking and valid times for every question."""
    if not runs:
        raise EvaluationError("there are no strategies to score")
    repeated = [key for key, times in Counter((run.name, run.seed) for run in runs).items() if times > 1]
    if repeated:
        name, seed = repeated[0]
        raise EvaluationError(f"strategy name {name!r} occurs more than once with seed {seed}; use different names")
    for run in runs:
        for question in questions:
            of_question(run, "rankings", run.rankings, question.question_id)
            for name, times_ms in (("search_ms", run.search_ms), ("encode_ms", run.encode_ms)):
                value = of_question(run, name, times_ms, question.question_id)
                if not math.isfinite(value) or value < 0.0:
                    raise EvaluationError(
                        f"strategy {run.name!r}, question {question.question_id!r}: {name} is {value}; "
                        "expected milliseconds, 0 or more"
                    )


def of_question(run: StrategyRun, field: str, values: Mapping[str, Value], question_id: str) -> Value:
    """The value of a run for a question; IncompleteRunError if there is none."""
    if question_id not in values:
        raise IncompleteRunError(
            f"strategy {run.name!r} has no entry in '{field}' for question {question_id!r}; run it again, "
            "since a missing result must not count as an empty one"
        )
    return values[question_id]
