from __future__ import annotations

from locigraph.research.evaluation.notes import a_a_note
from locigraph.research.evaluation.outcomes import QuestionOutcome, StrategyRun

SPACES = [f"s{i}" for i in range(8)]
QUESTIONS = [QuestionOutcome(f"{s}:{i}", s, "c", ("t0",), ("one",)) for s in SPACES for i in range(3)]


def run(name: str, right: set[str]) -> StrategyRun:
    rankings = {q.question_id: ("t0", "t1") if q.question_id in right else ("t1",) for q in QUESTIONS}
    return StrategyRun(name, rankings, {}, {})


def test_the_a_a_note_says_how_often_true_nulls_are_rejected() -> None:
    better = run("v2", {q.question_id for q in QUESTIONS if not q.question_id.endswith(":2")})
    note = a_a_note(QUESTIONS, better, run("v1", {"s0:0", "s3:1"}), seed=0)
    assert note.startswith("Check of the test itself, on v2 against v1: on data without any difference, ")
    assert "over 8 conversations finds one in" in note
    assert "; 5% is expected. It is conservative here." in note
    few = [question for question in QUESTIONS if question.space in SPACES[:4]]
    assert "It cannot find any difference with so few conversations." in a_a_note(few, better, better, seed=0)
