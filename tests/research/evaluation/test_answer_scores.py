from __future__ import annotations

import math

import pytest

from locigraph.kg.types import Question, SpaceId
from locigraph.research.evaluation.answer_scores import (
    AnswerRecord,
    Verdict,
    judges_on_wrong,
    summarise_answers,
    wrong_answers,
)


def record(question_id: str, answer: str, *, known: bool = True, reference: str | None = "red boat") -> AnswerRecord:
    verdict = Verdict(1.0, 0.5) if known and reference is not None else None
    category = "list" if question_id == "q1" else "other"
    return AnswerRecord("v2", question_id, category, answer, known, reference, verdict)


def test_means_are_over_questions_with_an_answer_and_the_others_stand_apart() -> None:
    made = summarise_answers(
        [
            record("q1", "red boat"),
            record("q2", "", known=False),
            record("q3", "a guess", reference=None),
            record("q4", "", known=False, reference=None),
        ]
    )["v2"]
    # Right, and not known: that counts as nothing found.
    assert made["answers"] == 2
    assert made["overall"] == pytest.approx({"f1": 0.5, "bleu1": 0.5, "facts": 0.5, "grade": 0.25, "abstained": 0.5})
    assert made["by_category"]["list"]["f1"] == 1.0
    assert made["unanswerable"] == 0.5


def test_categories_of_listings_are_scored_by_parts() -> None:
    held = AnswerRecord("v2", "q1", "list", "lake, red", True, "red, boat lake", Verdict(1, 1))
    by_parts = summarise_answers([held], ["list"])["v2"]["overall"]["f1"]
    assert by_parts == pytest.approx((1 + 2 / 3) / 2)
    assert summarise_answers([held])["v2"]["overall"]["f1"] == pytest.approx(2 * 2 / (2 + 3))


def test_an_explanation_behind_a_semicolon_counts_for_neither_f1_nor_bleu() -> None:
    held = AnswerRecord("v2", "q1", "opinion", "National park", True, "National park; she likes it", Verdict(0.5, 0.5))
    made = summarise_answers([held], explained=["opinion"])["v2"]["overall"]
    assert (made["f1"], made["bleu1"]) == (1.0, 1.0)
    assert (made["facts"], made["grade"]) == (0.5, 0.5)
    # Of five words of the reference two are answered, and ";" is a sign that BLEU counts besides.
    whole = summarise_answers([held])["v2"]["overall"]
    assert whole["f1"] == pytest.approx(2 * 2 / (2 + 5))
    assert whole["bleu1"] == pytest.approx(math.exp(1 - 6 / 2))


def question(number: int, space: str, answer: str, category: str = "c") -> Question:
    return Question(SpaceId(space), f"q{number}", "what?", category, (), answer=answer)


def test_wrong_answers_are_of_another_conversation_and_share_no_word() -> None:
    questions = [question(1, "a", "red boat"), question(2, "b", "a red car"), question(3, "b", "seven"),
                 question(4, "a", "lake"), question(5, "c", "tom", "alone")]  # fmt: skip
    made = {each.question_id: answer for each, answer in wrong_answers(questions, 10, seed=0)}
    assert set(made) == {"q1", "q2", "q3", "q4"}  # nobody else has a question of the category of q5
    assert made["q1"] == "seven"
    assert made["q2"] == "lake"
    assert made["q3"] in ("red boat", "lake")
    assert made["q4"] in ("a red car", "seven")
    assert len(wrong_answers(questions, 2, seed=0)) == 2
    assert wrong_answers(questions, 10, seed=0) == wrong_answers(questions, 10, seed=0)


def test_a_judge_errs_when_it_takes_a_wrong_answer_for_at_least_half_right() -> None:
    verdicts = [Verdict(0.0, 0.5), Verdict(1.0, 0.4), Verdict(0.0, 0.0), Verdict(0.0, 1.0)]
    assert judges_on_wrong(verdicts) == {
        "wrong_answers": 4, "facts_taken_for_right": 0.25, "grade_taken_for_right": 0.5,
    }  # fmt: skip
    assert judges_on_wrong([])["facts_taken_for_right"] is None


def test_a_question_that_fails_for_one_strategy_counts_for_none() -> None:
    right, wrong = Verdict(1.0, 1.0), Verdict(0.0, 0.0)
    records = [AnswerRecord("a", f"q{i}", "c", "x", True, "x", right if i < 3 else wrong) for i in range(6)]
    records += [AnswerRecord("b", f"q{i}", "c", "x", True, "x", right) for i in range(3)]
    made = summarise_answers(records)
    assert {name: (each["answers"], each["overall"]["facts"]) for name, each in made.items()} == {
        "a": (3, 1.0), "b": (3, 1.0),
    }  # fmt: skip
