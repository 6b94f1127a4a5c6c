from __future__ import annotations

import pytest

from locigraph.research.errors import EvaluationError, IncompleteRunError
from locigraph.research.evaluation.outcomes import QuestionOutcome
from locigraph.research.evaluation.sessions import session_recall
from tests.research.evaluation.planted import run_of


def test_session_recall_counts_each_session_once() -> None:
    questions = [
        QuestionOutcome("q1", "c1", "x", ("t1",), gold_sessions=("s1", "s6")),
        QuestionOutcome("q2", "c1", "x", ("t1",)),
    ]
    # Sessions in order of first mention: s1 s2 s3 s4 s5 s6; s6 is the sixth although its turn is the eighth.
    ranking = ("t1a", "t1b", "t2", "t1c", "t3", "t4", "t5", "t6")
    session_of = {"c1": {turn: f"s{turn[1]}" for turn in ranking}}
    run = run_of("v1", {"q1": ranking})
    assert session_recall(questions, run, session_of) == {
        "recall@5": 0.5,
        "recall@10": 1.0,
        "questions": 1.0,
    }


def test_a_turn_without_a_session_or_a_missing_answer_is_an_error() -> None:
    question = QuestionOutcome("q1", "c1", "x", ("t1",), gold_sessions=("s1",))
    run = run_of("v1", {"q1": ("t1",)})
    with pytest.raises(EvaluationError, match="turn 't1' has no session in space 'c1'"):
        session_recall([question], run, {"other": {"t1": "s1"}})
    with pytest.raises(IncompleteRunError):
        session_recall([question], run_of("v1", {}), {})


def test_without_questions_that_cite_sessions_there_is_nothing_to_say() -> None:
    assert session_recall([QuestionOutcome("q1", "c1", "x", ("t1",))], run_of("v1", {"q1": ("t1",)}), {}) == {}
