"""Scores of answers, their means by strategy, and how often the judges accept wrong answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from locigraph.kg.types import Question
from locigraph.research.evaluation.answer_metrics import bleu_1, token_f1, token_f1_of_parts

#: A judge accepts an answer to which it gives at least this score.
TAKEN_FOR_RIGHT = 0.5


@dataclass(frozen=True, slots=True)
class Verdict:
    """Scores of the two judges for an answer: share of the reference's facts in it, and a grade from 0 to 1."""

    facts: float
    grade: float


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """An answer to a question from a strategy's context.

    ``reference`` is None for a question without an answer, for which ``is_known`` should be false. ``verdict`` is None
    if nothing was judged: for such a question, and if the model said that it does not know, which counts as 0.
    """

    strategy: str
    question_id: str
    category: str
    answer: str
    is_known: bool
    reference: str | None
    verdict: Verdict | None = None


def scores_of(record: AnswerRecord, listing: Sequence[str] = (), explained: Sequence[str] = ()) -> dict[str, float]:
    """``f1``, ``bleu1``, ``facts``, ``grade`` and ``abstained`` of an answer with a reference.

    Args:
        record: The answer.
        listing: Categories whose references list several things.
        explained: Categories whose references hold an explanation after their first semicolon, which the word metrics
            ignore.
    """
    assert record.reference is not None
    answer = record.answer if record.is_known else ""
    reference = record.reference.partition(";")[0] if record.category in explained else record.reference
    f1 = token_f1_of_parts if record.category in listing else token_f1
    verdict = record.verdict or Verdict(0.0, 0.0)
    return {
        "f1": f1(answer, reference),
        "bleu1": bleu_1(answer, reference),
        "facts": verdict.facts,
        "grade": verdict.grade,
        "abstained": float(not record.is_known),
    }


def summarise_answers(
    records: Sequence[AnswerRecord], listing: Sequence[str] = (), explained: Sequence[str] = ()
) -> dict[str, Any]:
    """By strategy: means of ``scores_of`` (``overall``, ``by_category``), number of ``answers``, and ``unanswerable``.

    All strategies have the same questions: those that each has answered. ``unanswerable`` is the share of the questions
    without an answer that the model left unanswered; None without any.
    """
    summaries: dict[str, Any] = {}
    strategies = list(dict.fromkeys(record.strategy for record in records))
    answered = Counter((record.question_id, record.reference is None) for record in records)
    paired = [r for r in records if answered[r.question_id, r.reference is None] == len(strategies)]
    for strategy in strategies:
        own = [record for record in paired if record.strategy == strategy]
        scored = [
            (record.category, scores_of(record, listing, explained)) for record in own if record.reference is not None
        ]
        others = [record for record in own if record.reference is None]
        summaries[strategy] = {
            "answers": len(scored),
            "overall": _means([scores for _, scores in scored]),
            "by_category": {
                name: _means([scores for category, scores in scored if category == name])
                for name in sorted({category for category, _ in scored})
            },
            "unanswerable": float(np.mean([not record.is_known for record in others])) if others else None,
        }
    return summaries


def wrong_answers(questions: Sequence[Question], count: int, *, seed: int) -> list[tuple[Question, str]]:
    """Questions with answers known to be wrong: those to a question of the same category about another conversation.

    Args:
        questions: Questions that have an answer.
        count: Largest number of wrong answers.
        seed: Random seed of the choice.
    """
    chance = random.Random(seed)
    shuffled = [question for question in questions if question.answer]
    chance.shuffle(shuffled)
    pairs: list[tuple[Question, str]] = []
    for question in shuffled:
        if len(pairs) == count:
            break
        others = [
            other.answer
            for other in shuffled
            if other.answer
            and other.category == question.category
            and other.space != question.space
            and token_f1(other.answer, question.answer or "") == 0.0
        ]
        if others:
            pairs.append((question, chance.choice(others)))
    return pairs


def judges_on_wrong(verdicts: Sequence[Verdict]) -> Mapping[str, float | int | None]:
    """False positive rate of each judge on wrong answers; None if none was judged."""

    def share(values: list[float]) -> float | None:
        return float(np.mean([value >= TAKEN_FOR_RIGHT for value in values])) if values else None

    return {
        "wrong_answers": len(verdicts),
        "facts_taken_for_right": share([verdict.facts for verdict in verdicts]),
        "grade_taken_for_right": share([verdict.grade for verdict in verdicts]),
    }


def _means(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([each[name] for each in scores])) for name in scores[0]} if scores else {}
