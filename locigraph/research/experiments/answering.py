"""Answers questions from retrieved contexts, and judges answers in two ways, with language models."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from pydantic import Field

from locigraph.consolidation.ledger import Purpose
from locigraph.consolidation.llm import ChatClient
from locigraph.consolidation.prompting import ask, prompt
from locigraph.consolidation.replies import Form
from locigraph.kg.types import Question


class AnswerForm(Form):
    """An answer, or that the memories do not hold it."""

    is_known: bool
    answer: Annotated[str, Field(max_length=4_000)]


class FactForm(Form):
    """A fact of a reference, and whether an answer has it."""

    fact: Annotated[str, Field(min_length=1, max_length=600)]
    is_covered: bool


class FactsForm(Form):
    """All facts of a reference."""

    facts: list[FactForm] = Field(max_length=50)


class GradeForm(Form):
    """A grade of an answer."""

    grade: float


def prompt_versions() -> dict[str, str]:
    """Hash of each prompt, twelve hexadecimal digits, by stage."""
    return {
        stage: hashlib.sha256(prompt(stage).encode()).hexdigest()[:12]
        for stage in ("answer", "judge_facts", "judge_grade")
    }


def answer_from(client: ChatClient, question: Question, context: str) -> AnswerForm:
    """Answer a question with a model that sees only the given context.

    Raises:
        LanguageModelError: As ``ChatClient.ask``.
    """
    day = None if question.asked_at is None else question.asked_at.date().isoformat()
    document = {"question": question.text, "asked_on": day, "memories": context.split("\n") if context else []}

    def read(form: AnswerForm) -> AnswerForm:
        if form.is_known and not form.answer:
            raise ValueError("is_known is true, but answer is empty")
        return form

    return ask(client, Purpose("answer", question.space), document, AnswerForm, read)


def covered_facts(client: ChatClient, question: Question, answer: str) -> float:
    """Share of the facts in the question's reference answer that an answer covers, as judged by a model.

    Raises:
        LanguageModelError: As ``ChatClient.ask``.
    """

    def read(form: FactsForm) -> float:
        if not form.facts:
            raise ValueError("facts is empty; a reference states at least one")
        return sum(fact.is_covered for fact in form.facts) / len(form.facts)

    return ask(client, Purpose("judge_facts", question.space), _judged(question, answer), FactsForm, read)


def grade_of(client: ChatClient, question: Question, answer: str) -> float:
    """Grade of an answer from 0 to 1, as judged by a model that compares it with the reference answer.

    Raises:
        LanguageModelError: As ``ChatClient.ask``.
    """

    def read(form: GradeForm) -> float:
        if not 0.0 <= form.grade <= 1.0:
            raise ValueError(f"grade is {form.grade}; expected a number from 0 to 1")
        return form.grade

    return ask(client, Purpose("judge_grade", question.space), _judged(question, answer), GradeForm, read)


def _judged(question: Question, answer: str) -> dict[str, Any]:
    return {"question": question.text, "reference": question.answer, "answer": answer}
