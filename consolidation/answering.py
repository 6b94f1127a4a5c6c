"""Answers questions from retrieved contexts, and judges answers in two ways, with language models."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import Field

from locigraph.consolidation.ledger import Purpose
from locigraph.consolidation.llm import ChatClient
from locigraph.consolidation.prompting import messages, prompt
from locigraph.consolidation.replies import Form, filled, strict_schema
from locigraph.kg.types import Question

_Read = TypeVar("_Read")


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

    def read(reply: Any) -> AnswerForm:
        form = filled(AnswerForm, reply)
        if form.is_known and not form.answer:
            raise ValueError("is_known is true, but answer is empty")
        return form

    return _ask(client, "answer", question, document, AnswerForm, read)


def covered_facts(client: ChatClient, question: Question, answer: str) -> float:
    """Share of the facts in the question's reference answer that an answer covers, as judged by a model.

    Raises:
        LanguageModelError: As ``ChatClient.ask``.
    """

    def read(reply: Any) -> float:
        facts = filled(FactsForm, reply).facts
        if not facts:
            raise ValueError("facts is empty; a reference states at least one")
        return sum(fact.is_covered for fact in facts) / len(facts)

    return _ask(client, "judge_facts", question, _judged(question, answer), FactsForm, read)


def grade_of(client: ChatClient, question: Question, answer: str) -> float:
    """Grade of an answer from 0 to 1, as judged by a model that compares it with the reference answer.

    Raises:
        LanguageModelError: As ``ChatClient.ask``.
    """

    def read(reply: Any) -> float:
        grade = filled(GradeForm, reply).grade
        if not (math.isfinite(grade) and 0.0 <= grade <= 1.0):
            raise ValueError(f"grade is {grade}; expected a number from 0 to 1")
        return grade

    return _ask(client, "judge_grade", question, _judged(question, answer), GradeForm, read)


def _judged(question: Question, answer: str) -> dict[str, Any]:
    return {"question": question.text, "reference": question.answer, "answer": answer}


def _ask(
    client: ChatClient,
    stage: str,
    question: Question,
    document: dict[str, Any],
    form: type[Form],
    read: Callable[[Any], _Read],
) -> _Read:
    purpose = Purpose(stage, question.space)
    return client.ask(messages(stage, document), strict_schema(form), read, purpose=purpose)
