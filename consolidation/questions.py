"""Questions about facts, written by a language model behind any OpenAI-compatible endpoint.

Training learns from them as queries (``training.protocols.QuestionWriter``).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.resources import files
from pathlib import Path
from typing import Any

from openai import OpenAI, OpenAIError
from openai.types.chat import ChatCompletionMessageParam
from tqdm import tqdm

from locigraph.consolidation.errors import QuestionWriterError
from locigraph.kg.files import opened_sqlite

PROMPT = files("locigraph.consolidation").joinpath("prompts", "questions.txt").read_text()
_MOST_QUESTIONS, _MOST_CHARACTERS = 2, 300
_BATCH = 20
_ATTEMPTS = 2  # the second with what was wrong
_SCHEMA = {
    "type": "object",
    "properties": {
        "answers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "statement": {"type": "integer"},
                    "questions": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["statement", "questions"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["answers"],
    "additionalProperties": False,
}


class LLMQuestions:
    """Writes each statement's questions once and keeps them, so that a training can be repeated without the endpoint.

    Args:
        base_url: Of the endpoint, such as ``http://localhost:8000/v1``.
        model: Its name there.
        cassette: SQLite file of what was written, by model, prompt and statement.
        api_key: Of the endpoint; most local ones take any.
        concurrency: Requests at a time.
        timeout_s: Longest wait for a reply.
        retries: Of a request that the endpoint refuses for the moment, with growing pauses.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        cassette: Path,
        api_key: str = "none",
        concurrency: int = 4,
        timeout_s: float = 120.0,
        retries: int = 4,
    ) -> None:
        if concurrency < 1:
            raise QuestionWriterError(f"writer.concurrency is {concurrency}; at least 1 request must be allowed")
        self._base_url, self._model, self._concurrency = base_url, model, concurrency
        self._client = OpenAI(base_url=base_url, api_key=api_key, timeout=timeout_s, max_retries=retries)
        self._cassette = cassette
        self._version = hashlib.sha256(f"{model}\n{PROMPT}".encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """Model and hash of model and prompt."""
        return f"{self._model} {self._version}"

    def write(self, statements: Sequence[str]) -> list[list[str]]:
        """Questions that each statement answers; none where the model finds nothing to ask.

        Raises:
            QuestionWriterError: If the endpoint fails, or its reply is no such JSON on the second attempt either. What
                was written before is kept.
        """
        self._cassette.parent.mkdir(parents=True, exist_ok=True)
        with opened_sqlite(self._cassette, self._failed) as kept:
            kept.execute("CREATE TABLE IF NOT EXISTS questions (key TEXT PRIMARY KEY, questions TEXT NOT NULL)")
            wanted = {statement: self._key(statement) for statement in statements}
            found = dict(self._held(kept, wanted.values()))
            missing = [statement for statement, key in wanted.items() if key not in found]
            batches = [missing[first : first + _BATCH] for first in range(0, len(missing), _BATCH)]
            with (
                ThreadPoolExecutor(self._concurrency) as pool,
                tqdm(total=len(missing), desc="write questions", unit="statement", disable=not missing) as bar,
            ):
                asked = {pool.submit(self._ask, batch): batch for batch in batches}
                try:
                    for done in as_completed(asked):
                        batch = asked[done]
                        for statement, questions in zip(batch, done.result(), strict=True):
                            found[wanted[statement]] = questions
                            row = (wanted[statement], json.dumps(questions))
                            kept.execute("INSERT OR REPLACE INTO questions VALUES (?, ?)", row)
                        kept.commit()
                        bar.update(len(batch))
                except BaseException:
                    pool.shutdown(cancel_futures=True)  # what has not been asked yet would fail alike
                    raise
        return [found[wanted[statement]] for statement in statements]

    def _failed(self, error: sqlite3.Error) -> QuestionWriterError:
        return QuestionWriterError(
            f"{self._cassette}: the cassette of questions cannot be used ({error}); if it is not locked by another "
            "process, name another file with --writer.cassette"
        )

    def _key(self, statement: str) -> str:
        return hashlib.sha256(f"{self._version}\n{statement}".encode()).hexdigest()

    def _held(self, kept: sqlite3.Connection, keys: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
        # By key: a cassette holds the statements of every space, and this is asked space by space.
        for key in keys:
            row = kept.execute("SELECT questions FROM questions WHERE key = ?", (key,)).fetchone()
            if row is not None:
                yield key, json.loads(row[0])

    def _ask(self, batch: Sequence[str]) -> list[list[str]]:
        listed = "\n".join(f"{number}. {statement}" for number, statement in enumerate(batch, start=1))
        messages: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": listed},
        ]
        fault = ""
        for _ in range(_ATTEMPTS):
            try:
                reply = self._client.chat.completions.create(
                    model=self._model,
                    messages=messages,
                    response_format={
                        "type": "json_schema",
                        "json_schema": {"name": "questions", "strict": True, "schema": _SCHEMA},
                    },
                )
            except OpenAIError as error:
                raise QuestionWriterError(
                    f"{self._base_url}, model {self._model!r}: {error}; {self._cassette} keeps what was written; run "
                    "again when the endpoint answers, or leave it out to have questions written by rules"
                ) from error
            # Some endpoints answer an error with status 200 and no choices.
            text = (reply.choices[0].message.content if reply.choices else None) or ""
            try:
                return parse_reply(text, len(batch))
            except ValueError as error:
                fault = str(error)
                messages += [
                    {"role": "assistant", "content": text},
                    {"role": "user", "content": f"That was not right: {fault}. Reply again with all {len(batch)}."},
                ]
        raise QuestionWriterError(
            f"{self._base_url}, model {self._model!r}: {fault}, after {_ATTEMPTS} attempts; try another model"
        )


def parse_reply(text: str, count: int) -> list[list[str]]:
    """Questions by statement from a model's reply.

    Args:
        text: JSON of the form that the prompt asks for.
        count: Statements that were asked about.

    Raises:
        ValueError: If the reply is anything else; says what.
    """
    try:
        reply: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the reply is not JSON ({error})") from error
    answers = reply.get("answers") if isinstance(reply, dict) else None
    if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
        raise ValueError("the reply has no list of 'answers'")
    numbers = [answer.get("statement") for answer in answers]
    if numbers != list(range(1, count + 1)):
        raise ValueError(f"the answers are about statements {numbers}; expected 1 to {count}, each once and in order")
    written = []
    for answer in answers:
        questions = answer.get("questions")
        if not isinstance(questions, list) or not all(isinstance(question, str) for question in questions):
            raise ValueError(f"the questions of statement {answer['statement']} are not a list of texts")
        for question in questions:
            if not question.strip().endswith(("?", "？")) or len(question) > _MOST_CHARACTERS:
                raise ValueError(
                    f"statement {answer['statement']}: {question[:80]!r} is no question of at most {_MOST_CHARACTERS} "
                    "characters"
                )
        written.append([question.strip() for question in questions[:_MOST_QUESTIONS]])
    return written
