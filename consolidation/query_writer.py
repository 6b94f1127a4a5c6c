"""Writes search queries for a question with a language model (implements ``retrieval.query_generator.QueryWriter``)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from locigraph.consolidation.cassette import key_of
from locigraph.consolidation.errors import LanguageModelError, LimitReachedError, MissingReplyError, ReplyFormatError
from locigraph.consolidation.ledger import Purpose
from locigraph.consolidation.llm import ChatClient, Message
from locigraph.consolidation.prompting import messages, prompt
from locigraph.consolidation.replies import Form, filled, nonblank_line, strict_schema
from locigraph.kg.schema import NODE_TYPES, searchable_types

#: Name of this stage, for which a client is configured and the ledger counts usage.
STAGE = "queries"
_MOST_OF_QUESTION = 4_000  # characters of the question that are shown
_REST_S = 60.0  # pause after an outage, so that not every question waits for an endpoint that does not answer
_Line = AfterValidator(nonblank_line)


class QueryForm(Form):
    """One thing to look for."""

    text: Annotated[str, Field(min_length=1, max_length=300), _Line]
    types: list[Annotated[str, Field(json_schema_extra={"enum": "types"})]] = Field(max_length=8, default=[])
    time: Annotated[str, Field(min_length=1, max_length=80), _Line] | None = None
    intent: Literal["why", "when", "entity"] | None = None


class QueriesForm(Form):
    """What a language model replies."""

    queries: list[QueryForm] = Field(min_length=1, max_length=4)


class LLMQueries:
    """Writes search queries for questions, one question at a time.

    Args:
        client: The model, with the cassette that keeps its replies.
        clock: Returns the time in seconds; used to measure the pause after an outage.
    """

    def __init__(self, client: ChatClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._outage: LanguageModelError | None = None
        self._rests_until = 0.0

    @property
    def name(self) -> str:
        """Model and hash of model and prompt."""
        return self._client.version(prompt(STAGE))

    def __call__(self, question: str, asked_on: date | None) -> list[QueryForm]:
        """The queries of a question.

        Args:
            question: The question; the model is given it as data, not as an instruction.
            asked_on: The day on which it is asked, which the model is told; None if unknown.

        Raises:
            LanguageModelError: As ``ChatClient.ask``; for a minute after an outage it is raised at once.
        """
        asked, types = messages_of(question, asked_on), searchable_types()
        schema = strict_schema(QueriesForm, {"types": types})

        def read(reply: object) -> list[QueryForm]:
            queries = filled(QueriesForm, reply).queries
            unknown = {name for query in queries for name in query.types} - {*types}
            if unknown:
                raise ValueError(f"types contains {min(unknown)[:80]!r}; known: {', '.join(types)}")
            return queries

        if self._outage is not None and self._clock() < self._rests_until:
            key = key_of(self._client.request(asked, schema))
            if not self._client.cassette.find([key]):
                raise self._outage
        try:
            return self._client.ask(asked, schema, read, purpose=Purpose(STAGE))
        except (ReplyFormatError, MissingReplyError, LimitReachedError):
            raise  # concerns this question only, or was raised without waiting for the endpoint
        except LanguageModelError as error:
            self._outage, self._rests_until = error, self._clock() + _REST_S
            raise


def messages_of(question: str, asked_on: date | None) -> list[Message]:
    """The messages that ask a model for the queries of a question."""
    document = {
        "question": question[:_MOST_OF_QUESTION],
        "asked_on": None if asked_on is None else asked_on.isoformat(),
        "types": {name: NODE_TYPES[name].description for name in searchable_types()},
    }
    return messages(STAGE, document)
