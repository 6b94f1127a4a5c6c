"""Asks language models behind OpenAI-compatible endpoints for JSON of a given schema, and keeps what they reply."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from openai import OpenAI, OpenAIError
from openai.types.chat import ChatCompletionMessageParam
from openai.types.shared_params.response_format_json_schema import JSONSchema

from locigraph.consolidation.errors import LanguageModelError, ReplyFormatError
from locigraph.kg.files import opened_sqlite

Message = ChatCompletionMessageParam
Schema = Mapping[str, Any]
_Read = TypeVar("_Read")
_ATTEMPTS = 2  # the second is told what was wrong with the first


def strict_object(**properties: Schema) -> Schema:
    """JSON schema of an object with exactly these properties, which is the only kind that strict endpoints take."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


class Cassette:
    """Replies of language models in an SQLite file, so that a run can be repeated without paying for them again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, keys: Sequence[str]) -> dict[str, str]:
        """The kept replies by key; a key without a reply is left out."""
        with self._opened() as file:
            rows = (file.execute("SELECT key, reply FROM replies WHERE key = ?", (key,)).fetchone() for key in keys)
            return dict(row for row in rows if row is not None)

    def keep(self, replies: Mapping[str, str]) -> None:
        """Write replies by key; they replace earlier ones."""
        with self._opened() as file, file:
            file.executemany("INSERT OR REPLACE INTO replies VALUES (?, ?)", replies.items())

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        columns = "(key TEXT PRIMARY KEY, reply TEXT NOT NULL)"
        with opened_sqlite(self.path, self._failed, table="replies", columns=columns) as file:
            yield file

    def _failed(self, error: sqlite3.Error) -> LanguageModelError:
        return LanguageModelError(
            f"{self.path}: the cassette of replies cannot be used ({error}); if no other process locks it, name another"
        )


class ChatClient:
    """Asks one language model.

    Args:
        base_url: Address of the endpoint, such as ``http://localhost:8000/v1``.
        model: Name of the model there.
        cassette: SQLite file that keeps the replies.
        api_key: Key of the endpoint; most local endpoints take any.
        timeout_s: Longest wait for a reply.
        retries: How often a request is repeated that the endpoint refuses for the moment, with growing pauses.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        cassette: Path,
        api_key: str = "none",
        timeout_s: float = 120.0,
        retries: int = 4,
    ) -> None:
        self.model = model
        self.cassette = Cassette(cassette)
        self._where = f"{base_url}, model {model!r}"
        self._client = OpenAI(base_url=base_url, api_key=api_key, timeout=timeout_s, max_retries=retries)

    def key(self, messages: Sequence[Message], schema: Schema) -> str:
        """Key under which the cassette keeps the reply to a request."""
        request = json.dumps([self.model, list(messages), schema], sort_keys=True)
        return hashlib.sha256(request.encode()).hexdigest()

    def ask(self, messages: Sequence[Message], schema: Schema, read: Callable[[Any], _Read]) -> _Read:
        """The reply to a request, from the cassette if it is there; threads may ask at the same time.

        Args:
            messages: The conversation so far.
            schema: JSON schema of the reply, made by ``strict_object``.
            read: Makes the result of the parsed reply; raises ValueError with what is wrong with it.

        Raises:
            LanguageModelError: If the endpoint fails.
            ReplyFormatError: If the model, told once what is wrong with its reply, replies wrongly again.
        """
        key = self.key(messages, schema)
        held = self.cassette.find([key]).get(key)
        asked, fault = list(messages), ""
        for attempt in range(_ATTEMPTS):
            # A held reply that ``read`` no longer takes is repaired like a new one.
            text = held if held is not None and attempt == 0 else self._request(asked, schema)
            try:
                result = read(json.loads(text))
            except ValueError as error:
                fault = f"the reply is not JSON ({error})" if isinstance(error, json.JSONDecodeError) else str(error)
                complaint = f"That was not right: {fault}. Reply again, with all that was asked for."
                asked += [{"role": "assistant", "content": text}, {"role": "user", "content": complaint}]
            else:
                if text != held:
                    self.cassette.keep({key: text})
                return result
        raise ReplyFormatError(f"{self._where}: {fault}, after {_ATTEMPTS} attempts; try another model")

    def _request(self, messages: Sequence[Message], schema: Schema) -> str:
        form: JSONSchema = {"name": "reply", "strict": True, "schema": dict(schema)}
        try:
            reply = self._client.chat.completions.create(
                model=self.model,
                messages=messages,
                response_format={"type": "json_schema", "json_schema": form},
            )
        except OpenAIError as error:
            raise LanguageModelError(
                f"{self._where}: {error}; {self.cassette.path} keeps what was written; run again when it answers"
            ) from error
        # Some endpoints answer an error with status 200 and no choices.
        return (reply.choices[0].message.content if reply.choices else None) or ""
