"""Writes questions about facts with a language model, as training queries (see ``training.pseudo_questions``)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from tqdm import tqdm

from locigraph.consolidation.cassette import key_of
from locigraph.consolidation.errors import LanguageModelError
from locigraph.consolidation.ledger import Purpose
from locigraph.consolidation.llm import ChatClient, Message
from locigraph.consolidation.prompting import messages, prompt
from locigraph.consolidation.replies import Form, filled, read_reply, strict_schema

_STAGE = "questions"
_MOST_QUESTIONS, _MOST_CHARACTERS = 2, 300
_MOST_ASKED = 8  # a reply may hold more questions than are used
_BATCH = 20


class _Answer(Form):
    statement: Annotated[int, Field(ge=1, le=_BATCH)]
    questions: list[Annotated[str, Field(max_length=_MOST_CHARACTERS)]] = Field(max_length=_MOST_ASKED)


class _Answers(Form):
    answers: list[_Answer] = Field(max_length=_BATCH)


_SCHEMA = strict_schema(_Answers)


class LLMQuestions:
    """Writes questions for statements in batches; the questions for a statement are written only once.

    Args:
        client: The model, with the cassette that keeps the questions by model, prompt and statement.
        concurrency: Largest number of concurrent requests.
    """

    def __init__(self, client: ChatClient, *, concurrency: int = 4) -> None:
        if concurrency < 1:
            raise LanguageModelError(f"writer.concurrency is {concurrency}; expected at least 1")
        self._client = client
        self._concurrency = concurrency

    @property
    def name(self) -> str:
        """Model and hash of model and prompt."""
        return self._client.version(prompt(_STAGE))

    def write(self, statements: Sequence[str]) -> list[list[str]]:
        """Questions that each statement answers; an empty list if the model finds nothing to ask.

        Raises:
            LanguageModelError: If the endpoint fails, or its reply is invalid on the second attempt too. Questions
                written before are kept.
        """
        # Questions are stored as if each statement had been asked about alone, so that they do not depend on batches.
        cassette = self._client.cassette
        requests = {s: self._client.request(_messages([s]), _SCHEMA) for s in statements}
        keys = {statement: key_of(request) for statement, request in requests.items()}
        recorded = cassette.find(list(keys.values()))
        of_one = partial(questions_of, count=1)
        questions = {s: read_reply(recorded[key], of_one)[0] for s, key in keys.items() if key in recorded}
        missing = [statement for statement in keys if statement not in questions]
        if missing:
            cassette.refuse_missing(requests[missing[0]])
        batches = [missing[first : first + _BATCH] for first in range(0, len(missing), _BATCH)]
        with (
            ThreadPoolExecutor(self._concurrency) as pool,
            tqdm(total=len(missing), desc="write questions", unit="statement", disable=not missing) as bar,
        ):
            asked = {pool.submit(self._ask, batch): batch for batch in batches}
            try:
                for future in as_completed(asked):
                    written = dict(zip(asked[future], future.result(), strict=True))
                    cassette.keep([(requests[s], _reply(questions)) for s, questions in written.items()])
                    questions |= written
                    bar.update(len(written))
            except BaseException:
                pool.shutdown(cancel_futures=True)  # requests not sent yet would fail in the same way
                raise
        return [questions[statement] for statement in statements]

    def _ask(self, batch: Sequence[str]) -> list[list[str]]:
        read = partial(questions_of, count=len(batch))
        return self._client.ask(_messages(batch), _SCHEMA, read, purpose=Purpose(_STAGE))


def _messages(statements: Sequence[str]) -> list[Message]:
    listed = [{"statement": number, "text": statement} for number, statement in enumerate(statements, start=1)]
    return messages(_STAGE, {"statements": listed})


def _reply(questions: Sequence[str]) -> str:
    return json.dumps({"answers": [{"statement": 1, "questions": questions}]})


def questions_of(reply: Any, count: int) -> list[list[str]]:
    """Questions by statement from a model's reply.

    Args:
        reply: Parsed JSON in the form that the prompt asks for.
        count: Number of statements in the request.

    Raises:
        ValueError: If the reply has another form; says what is wrong.
    """
    answers = filled(_Answers, reply).answers
    numbers = [answer.statement for answer in answers]
    if numbers != list(range(1, count + 1)):
        raise ValueError(f"the answers are about statements {numbers}; expected 1 to {count}, each once and in order")
    for answer in answers:
        for question in answer.questions:
            if not question.endswith(("?", "？")):
                raise ValueError(f"statement {answer.statement}: {question[:80]!r} is not a question; end it with '?'")
    return [answer.questions[:_MOST_QUESTIONS] for answer in answers]
