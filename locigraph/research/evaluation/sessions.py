"""Evidence recall of sessions, for corpora whose gold evidence is sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from locigraph.research.errors import EvaluationError
from locigraph.research.evaluation.outcomes import QuestionOutcome, StrategyRun, of_question
from locigraph.retrieval.metrics import evidence_recall


def session_recall(
    questions: Sequence[QuestionOutcome],
    run: StrategyRun,
    session_of: Mapping[str, Mapping[str, str]],
) -> dict[str, float]:
    """Evidence recall of sessions: the share of the gold sessions that are among the first 5 and 10.

    Each turn is replaced by its session, and only the first mention of a session is kept, so that depth counts
    sessions. Rankings hold 50 turns, so fewer than 10 sessions may be among them.

    Args:
        questions: Questions; those without gold sessions are ignored.
        run: Rankings of the strategy.
        session_of: Space -> turn ID -> session ID; by space, since turn IDs may repeat between conversations.

    Returns:
        Means under "recall@5" and "recall@10", and the number of questions under "questions"; empty when no question
        cites sessions.

    Raises:
        IncompleteRunError: If the run lacks a question.
        EvaluationError: If a returned turn has no session.
    """
    cited = [question for question in questions if question.gold_sessions]
    if not cited:
        return {}
    curves = []
    for question in cited:
        ranking = of_question(run, "rankings", run.rankings, question.question_id)
        known = session_of.get(question.space, {})
        unknown = [turn_id for turn_id in ranking if turn_id not in known]
        if unknown:
            raise EvaluationError(
                f"strategy {run.name!r}, question {question.question_id!r}: turn {unknown[0]!r} has no "
                f"session in space {question.space!r}"
            )
        sessions = list(dict.fromkeys(known[turn_id] for turn_id in ranking))
        gold = frozenset(question.gold_sessions)
        curves.append([evidence_recall(sessions, gold, top_k) for top_k in (5, 10)])
    at_5, at_10 = np.mean(curves, axis=0)
    return {"recall@5": float(at_5), "recall@10": float(at_10), "questions": float(len(cited))}
