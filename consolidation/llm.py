"""Client for language models behind OpenAI-compatible endpoints: requests JSON of a schema and records the replies."""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, TypeVar

import httpx
from openai import APIConnectionError, APIStatusError, APITimeoutError, DefaultHttpxClient, OpenAI, OpenAIError
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel, Field, ValidationError

from locigraph.consolidation.cassette import Attempt, Cassette, key_of
from locigraph.consolidation.errors import ConsolidationError, LanguageModelError, MissingReplyError, ReplyFormatError
from locigraph.consolidation.ledger import Ledger, Origin, Prices, Purpose, tokens_of
from locigraph.consolidation.replies import Schema, read_reply, without_bounds
from locigraph.kg.counts import Spent
from locigraph.kg.errors import abridged, shortened
from locigraph.kg.language.tokens import printable_line

Message = ChatCompletionMessageParam
_Read = TypeVar("_Read")
_ATTEMPTS = 2  # in the second attempt the model is told what was wrong with its first reply
_PASSING = {408, 409, 425, 429}  # temporary errors, which are retried, as are those of status 500 or more
_OF_ONE_REQUEST = {400, 403, 413, 422}  # may concern what one request says; other errors, such as 402, affect all
_OF_FORMS = {400, 404, 413, 422, 500, 501}  # with which endpoints refuse a form of reply that they do not know
_OF_SETTINGS = {400, 422}  # the subset that a wrong parameter or model can cause as well
_UNAUTHORISED = 401
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_LEFT_FOR_HARMLESS = 0.1  # of the deadline
_LEAST_S = 0.1  # shortest timeout of a retry close to the deadline
_SHOWN = 300  # characters of an endpoint's error that are read and kept; the rest may quote the conversation
_LONGEST_FAULT = 500  # characters of what is wrong with a reply; the rest may be text of the reply itself
_LONGEST_REPLY = 2_000  # tokens assumed for the longest reply if max_tokens is not set
_LARGEST_ANSWER = 8_000_000  # bytes of an answer; a reply of 100,000 tokens with its probabilities is shorter
_LEAST_SHARE = 0.05  # of the estimated number of tokens; an endpoint that counts fewer is not believed
_GZIP = 31  # for zlib: the format with a header of gzip
#: Parameters that some models refuse, and the parameter that replaces them (None: leave it out).
_INSTEAD = {"max_tokens": "max_completion_tokens", "temperature": None}
_TOO_LARGE = re.compile(r"too large|maximum context length|at most \d", re.IGNORECASE)
_UNKNOWN_NAME = re.compile(r"not (?:supported|allowed)|unsupported|unknown|unrecogni|unexpected|instead", re.IGNORECASE)
_HARMLESS = "This is a test of the connection. Reply with the shortest answer that has the right form."
_ABOUT_FORMS = re.compile(r"response_format|json_schema|json_object|schema|grammar", re.IGNORECASE)
_LOG = logging.getLogger(__name__)


_FREE = Prices()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A language model and how to reach it.

    Attributes:
        base_url: Base URL, such as ``http://localhost:8000/v1``.
        model: Name of the model at this endpoint.
        api_key: API key; most local endpoints accept any.
        lacking_key: Environment variable that should hold the key but is not set; named in the error if a key is
            needed.
        parameters: Further parameters of every request, such as ``temperature``.
        prices: Prices of its tokens.
        timeout_s: Longest time until a reply is complete.
        deadline_s: Longest total time for one request including retries, the last tenth of it to find out whether the
            endpoint answers other requests; 0 disables retries.
        concurrency: Largest number of concurrent requests.
    """

    base_url: str
    model: str
    api_key: str = "none"
    lacking_key: str | None = None
    parameters: Mapping[str, Any] | None = None
    prices: Prices = _FREE
    timeout_s: float = 120.0
    deadline_s: float = 600.0
    concurrency: int = 1


# The parts of a chat completion that are read. Some compatible endpoints omit fields, or answer without any choice.


class _Part(BaseModel):
    text: str | None = None


class _Message(BaseModel):
    content: str | list[_Part] | None = None
    refusal: str | None = None

    @property
    def text(self) -> str:
        """The text of the message, whether it came in one piece or in parts."""
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""


class _Choice(BaseModel):
    message: _Message | None = None
    finish_reason: str | None = None


_Tokens = Annotated[int, Field(ge=0, le=10**9)]  # more are a fault, and their sums could be too large for a store


class _Usage(BaseModel):
    prompt_tokens: _Tokens | None = None
    completion_tokens: _Tokens | None = None


class _Completion(BaseModel):
    choices: list[_Choice]
    usage: _Usage | None = None


class _UnusableAnswerError(OpenAIError):
    """The endpoint answers in a way that no endpoint should; asking again would not help."""


class _CarefulHttpClient(DefaultHttpxClient):
    """An HTTP client for an endpoint that may be broken or hostile.

    The timeout of a request applies to the whole body of its answer, also to that of an error (usually it is for each
    piece); the size of an answer is limited, before and after decompression; and no redirection is followed, since it
    could send the conversation to another server. The answer is read here, where the OpenAI client turns exceptions of
    its HTTP library into its own.
    """

    def __init__(self) -> None:
        super().__init__(headers={"Accept-Encoding": "identity"}, follow_redirects=False)

    def send(self, request: Any, **options: Any) -> Any:
        """The answer, read completely.

        Raises:
            APITimeoutError: If that takes longer than the request's timeout.
            OpenAIError: If it is too large, compressed in a way that was not asked for, or a redirection.
        """
        end = time.monotonic() + request.extensions["timeout"]["read"]
        response = super().send(request, **{**options, "stream": True, "follow_redirects": False})
        try:
            if response.has_redirect_location:
                raise _UnusableAnswerError(
                    f"it redirects to {shortened(response.headers['location'])}, and the conversation is not sent "
                    "there; if you trust that server, give its address instead"
                )
            pieces, size = [], 0
            for piece in _decompressed(response):
                pieces.append(piece)
                size += len(piece)
                if size > _LARGEST_ANSWER:
                    raise _UnusableAnswerError(f"its answer is larger than {_LARGEST_ANSWER:,} bytes")
                if time.monotonic() > end:
                    raise APITimeoutError(request)
        finally:
            response.close()
        headers = [(name, value) for name, value in response.headers.items() if name != "content-encoding"]
        return type(response)(response.status_code, headers=headers, content=b"".join(pieces), request=request)

    def __del__(self) -> None:
        # As the OpenAI client does with an HTTP client that it makes by itself; otherwise connections stay open.
        with suppress(Exception):
            self.close()


def _decompressed(response: Any) -> Iterator[bytes]:
    """The pieces of an answer; each is small, however much it was compressed."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        yield from response.iter_raw()
        return
    if encoding not in ("gzip", "x-gzip"):
        raise _UnusableAnswerError(f"its answer is compressed ({shortened(encoding)}), which it was asked not to do")
    decoder = zlib.decompressobj(_GZIP)
    try:
        for piece in response.iter_raw():
            yield decoder.decompress(piece, _LARGEST_ANSWER + 1)
    except zlib.error as error:
        raise APIConnectionError(message="its answer cannot be decompressed", request=response.request) from error


class ChatClient:
    """Client for one language model; safe to use from several threads.

    Args:
        endpoint: The model.
        cassette: Records and replays the replies.
        ledger: Counts tokens and cost.
    """

    def __init__(self, endpoint: Endpoint, cassette: Cassette, ledger: Ledger | None = None) -> None:
        self.model = endpoint.model
        self.cassette = cassette
        self.ledger = ledger or Ledger()
        self.prices = endpoint.prices
        self.concurrency = endpoint.concurrency
        self._endpoint = endpoint
        self._where = f"{endpoint.base_url}, model {endpoint.model!r}"
        self._client = OpenAI(
            base_url=endpoint.base_url, api_key=endpoint.api_key, max_retries=0, http_client=_CarefulHttpClient()
        )
        self._has_warned = False  # that there is no connection; once is enough
        self._form = 0  # index in _FORMS of the first way that the endpoint has not refused
        self._parameters = dict(endpoint.parameters or {})  # without those that the endpoint has refused

    def version(self, prompt: str) -> str:
        """Identifies the results of this model and a prompt: the model's name and a hash of both."""
        digest = hashlib.sha256(f"{self.model}\n{prompt}".encode()).hexdigest()[:12]
        return f"{self.model} {digest}"

    def request(self, messages: Sequence[Message], schema: Schema) -> dict[str, Any]:
        """The data of a call under which the cassette stores its reply."""
        parameters = dict(self._endpoint.parameters or {})
        return {"model": self.model, "messages": list(messages), "schema": dict(schema), "parameters": parameters}

    def ask(
        self, messages: Sequence[Message], schema: Schema, read: Callable[[Any], _Read], *, purpose: Purpose
    ) -> _Read:
        """The parsed reply to a request, from the cassette if it holds one.

        Args:
            messages: The conversation so far.
            schema: JSON schema of the reply, made by ``strict_schema``.
            read: Converts the parsed reply to the result; raises ValueError or ConsolidationError that says what is
                wrong with it.
            purpose: What the reply is for; the ledger counts by it.

        Raises:
            LanguageModelError: If the endpoint fails or refuses harmless requests, too, a limit is reached, or the run
                was stopped.
            MissingReplyError: If the cassette is in replay mode and holds no reply to this request.
            ReplyFormatError: If the endpoint refuses this request alone or never answers it, or the reply is still
                wrong after the model was told once what is wrong. The replies are kept in the cassette and in a text
                file beside it; a replay raises the same error.
        """
        self.ledger.refuse_if_stopped()
        request = self.request(messages, schema)
        key = key_of(request)
        recorded = self.cassette.find([key]).get(key)
        failed = self.cassette.failed(request)
        if recorded is not None or failed:
            self.ledger.on_recorded(purpose, self.cassette.origin(key))
        if failed:  # recorded later than any reply that the cassette holds
            raise self._useless(request, failed)
        spent = Spent()

        def count(more: Spent) -> None:
            nonlocal spent
            spent += more
            self.ledger.count(purpose, more)

        asked = list(messages)
        attempts: list[Attempt] = []
        for attempt in range(_ATTEMPTS):
            # If ``read`` no longer accepts a recorded reply, the model is asked to correct it like a new one.
            if recorded is not None and attempt == 0:
                text, fault = recorded, None
            else:
                if recorded is not None and self.cassette.mode == "replay":
                    raise MissingReplyError(
                        f"{self.cassette.path}: the recorded reply to this request to model {self.model!r} is no "
                        f"longer valid ({attempts[-1][1]}); set mode to record to ask the endpoint again"
                    )
                self.cassette.refuse_missing(request)
                try:
                    text, fault = self._reply(asked, schema, count)
                except ReplyFormatError as error:  # the endpoint refuses the request
                    count(Spent(failed_requests=1))
                    self.cassette.keep_failed(request, [*attempts, (None, str(error))], self._origin(spent))
                    raise
            if fault is None:
                try:
                    result = read_reply(text, read)
                except (ValueError, ConsolidationError) as error:
                    fault = str(error)
                else:
                    if attempt:
                        count(Spent(repaired=1))
                    if text != recorded:
                        self.cassette.keep([(request, text)], self._origin(spent))
                    return result
            count(Spent(invalid=1))
            fault = _storable(printable_line(fault))[:_LONGEST_FAULT]
            attempts.append((text, fault))
            complaint = f"That was not right: {fault}. Reply again, with all that was asked for."
            # Some endpoints refuse an empty message.
            replied: list[Message] = [{"role": "assistant", "content": text}] if text.strip() else []
            asked += [*replied, {"role": "user", "content": complaint}]
        count(Spent(failed_requests=1))
        self.cassette.keep_failed(request, attempts, self._origin(spent))
        raise self._useless(request, attempts)

    def _origin(self, spent: Spent) -> Origin:
        return Origin(self._endpoint.base_url, spent)

    def _useless(self, request: Mapping[str, Any], attempts: Sequence[Attempt]) -> ReplyFormatError:
        """The error for a request that failed; it is the same in a replay with another endpoint."""
        reply, fault = attempts[-1]
        if reply is None:
            return ReplyFormatError(fault)
        file = self.cassette.failure_file(request)
        return ReplyFormatError(
            f"model {self.model!r}: {fault}, after {len(attempts)} attempts; see {file}; try another model"
        )

    def _reply(
        self, messages: Sequence[Message], schema: Schema, count: Callable[[Spent], None]
    ) -> tuple[str, str | None]:
        """The text of a new reply, which is counted, and its fault if it is empty, refused or cut off, else None."""
        said = tokens_of(json.dumps(list(messages)))  # endpoints do not agree on whether the schema counts
        input_tokens = said + tokens_of(json.dumps(schema))
        longest = (self._endpoint.parameters or {}).get("max_tokens", _LONGEST_REPLY)
        most = self.prices.spent(input_tokens, longest)
        with self.ledger.request(input_tokens, longest, self.prices):
            reply = self._completion(messages, schema, most, count)
            choice = reply.choices[0] if reply.choices else _Choice()
            message, used = choice.message or _Message(), reply.usage or _Usage()
            text = _storable(message.text)
            input_tokens = _believed(used.prompt_tokens, said, input_tokens)
            output_tokens = _believed(used.completion_tokens, tokens_of(text), tokens_of(text))
            count(self.prices.spent(input_tokens, output_tokens))
        if message.refusal or choice.finish_reason == "content_filter":
            return text, f"the model refuses ({(message.refusal or 'content filter')[:200]})"
        if choice.finish_reason == "length":  # the text is empty if thoughts took all tokens
            return text, "the reply was cut off at the token limit; it must be shorter"
        return text, None if text.strip() else "the reply is empty"

    def _completion(
        self, messages: Sequence[Message], schema: Schema, most: Spent, count: Callable[[Spent], None]
    ) -> _Completion:
        """The endpoint's answer; temporary failures are retried until the deadline.

        Answers that break off or come too late may have to be paid, so each counts as the most that it may cost.
        """
        deadline = time.monotonic() + self._endpoint.deadline_s
        end = deadline - _LEFT_FOR_HARMLESS * self._endpoint.deadline_s
        pause = _FIRST_PAUSE_S
        while True:
            form, parameters = self._form, self._parameters
            try:
                body = {"model": self.model, **parameters, **_FORMS[form](messages, schema)}
                # The first try has the full timeout; retries end at the deadline.
                left = self._endpoint.timeout_s if pause == _FIRST_PAUSE_S else max(_LEAST_S, end - time.monotonic())
                reply = self._answer(body, min(self._endpoint.timeout_s, left))
                try:
                    return _Completion.model_validate(reply)
                except ValidationError:
                    fault: Exception = ValueError(f"the answer is not a chat completion: {_beginning(reply)!r}")
                wait = None
            except (OpenAIError, json.JSONDecodeError) as error:
                status = error.status_code if isinstance(error, APIStatusError) else None
                # Read only the beginning: the error may go on to quote the request, which mentions schemas as well.
                message = str(error)[:_SHOWN]
                if status in _OF_SETTINGS and (name := _refused_parameter(message, parameters)) is not None:
                    self._go_without(name, message)
                    continue
                if status in _OF_FORMS and _ABOUT_FORMS.search(message) and form + 1 < len(_FORMS):
                    self._step_down(form, message)
                    continue
                if status in _OF_ONE_REQUEST and self._answers_others(messages, schema, count, deadline):
                    to_do = "this request is refused, and others are not; run again when it is accepted"
                    raise ReplyFormatError(self._error_text(error, to_do)) from error
                if (cure := self._cure(error, status)) is not None:
                    raise self._outage(error, cure) from error
                if _may_be_billed(error):
                    count(replace(most, calls=0))
                    self.ledger.check(most.input_tokens, self.prices)
                fault = error
                wait = _retry_after(
                    error.response.headers.get("retry-after") if isinstance(error, APIStatusError) else None
                )
            wait = max(wait or 0.0, random.uniform(pause / 2, pause))
            if time.monotonic() + wait > end:
                is_alone = pause > _FIRST_PAUSE_S and _may_be_alone(fault)
                if is_alone and self._answers_others(messages, schema, count, deadline):
                    to_do = "this request is never answered, and others are; run again when it is answered"
                    raise ReplyFormatError(self._error_text(fault, to_do)) from fault
                raise self._outage(fault) from fault
            if not self._has_warned and isinstance(fault.__cause__, httpx.ConnectError):
                self._has_warned = True
                left = round(end - time.monotonic())
                _LOG.warning("%s: no connection; trying again for up to %d s", self._where, left)
            self.ledger.pause(wait)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _answers_others(
        self, messages: Sequence[Message], schema: Schema, count: Callable[[Spent], None], deadline: float
    ) -> bool:
        """Whether the endpoint answers a harmless request of the same form: then a fault is of one request alone.

        Otherwise one sentence that a provider rejects, or that its server cannot read, would stop all conversations.
        Temporary failures are retried until the deadline; only a refusal tells that it refuses other requests, too.

        Raises:
            LanguageModelError: If there is neither an answer nor a refusal until the deadline.
        """
        harmless: list[Message] = [message for message in messages[:1] if message["role"] == "system"]
        harmless.append({"role": "user", "content": _HARMLESS})
        asked, longest = tokens_of(json.dumps(harmless)), self._endpoint.timeout_s
        pause = _FIRST_PAUSE_S
        while True:
            body = {"model": self.model, **self._parameters, **_FORMS[self._form](harmless, schema)}
            left = deadline - time.monotonic()
            try:
                reply = self._answer(body, min(longest, left) if left > _LEAST_S else longest)
                used = _Completion.model_validate(reply).usage or _Usage()
                count(self.prices.spent(_believed(used.prompt_tokens, asked, asked), used.completion_tokens or 0))
                return True
            except ValidationError:
                return False
            except (OpenAIError, json.JSONDecodeError) as error:
                if _may_be_billed(error):
                    count(replace(self.prices.spent(asked, _LONGEST_REPLY), calls=0))
                status = error.status_code if isinstance(error, APIStatusError) else None
                if status is not None and status < 500 and status not in _PASSING:
                    return False
                if time.monotonic() + pause > deadline:
                    raise self._outage(error) from error
            self.ledger.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _cure(self, error: Exception, status: int | None) -> str | None:
        """What to do about an error that all requests would meet; None if it will pass by itself."""
        if status in _OF_SETTINGS:
            return (
                "it refuses a harmless request, too: add credit if this is about credit, or correct the model or its "
                f"parameters {self._parameters}"
            )
        is_broken_off = isinstance(error, APIConnectionError | ValueError)
        if is_broken_off if status is None else status in _PASSING or status >= 500:
            return "no credit is left; add some and run again" if "insufficient_quota" in str(error) else None
        if status == _UNAUTHORISED and self._endpoint.lacking_key is not None:
            return f"environment variable {self._endpoint.lacking_key} is not set; put the key there"
        return "this will not pass by itself: correct the endpoint, the model or the key, and run again"

    def _answer(self, body: Mapping[str, Any], seconds: float) -> Any:
        """One answer of the endpoint as parsed JSON; raises APITimeoutError if it is not complete in time."""
        completions = self._client.with_options(timeout=seconds).chat.completions
        content = completions.with_raw_response.create(**body).content
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:  # no UTF-8, a number of thousands of digits, or nested too deeply
            reason = abridged(error) if isinstance(error, ValueError) else "nested too deeply"
            raise json.JSONDecodeError(f"the answer is not JSON ({reason})", "", 0) from error

    def _step_down(self, form: int, error: str) -> None:
        if self._form == form:  # only the first of several threads changes it
            self._form = form + 1
            _LOG.warning(
                "%s: does not accept %s (%s); requests use %s from now on",
                self._where, _FORMS[form].__name__.strip("_"), abridged(error, 120),
                _FORMS[form + 1].__name__.strip("_"),
            )  # fmt: skip

    def _go_without(self, name: str, error: str) -> None:
        if name not in self._parameters:  # another thread has removed it already
            return
        others = {other: value for other, value in self._parameters.items() if other != name}
        instead = _INSTEAD[name]
        self._parameters = others if instead is None else {**others, instead: self._parameters[name]}
        _LOG.warning(
            "%s: does not accept %s (%s); requests are sent %s from now on",
            self._where, name, abridged(error, 120), "without it" if instead is None else f"with {instead}",
        )  # fmt: skip

    def _outage(self, error: Exception, to_do: str = "run again when the endpoint answers") -> LanguageModelError:
        """The error for an outage; others than the operator are not told what the endpoint says, nor where it is."""
        outage = LanguageModelError(self._error_text(error, to_do))
        kind = f"HTTP {error.status_code}" if isinstance(error, APIStatusError) else type(error).__name__
        outage.public = f"the language model cannot be used now ({kind})"
        return outage

    def _error_text(self, error: Exception, to_do: str) -> str:
        return f"{self._where}: {str(error)[:_SHOWN]}; replies so far are kept in {self.cassette.path}; {to_do}"


def _believed(counted: int | None, least: int, estimated: int) -> int:
    """The tokens that an endpoint counted, or the estimate if it counted none, or far fewer than the least possible.

    Otherwise an endpoint that always reports 0 would never reach a limit.
    """
    return estimated if counted is None or counted < _LEAST_SHARE * least else counted


def _may_be_billed(error: Exception) -> bool:
    """Whether an endpoint may have read a request that it has not answered, or not in full."""
    if not isinstance(error, APIConnectionError):
        return isinstance(error, json.JSONDecodeError)
    return not type(error.__cause__).__name__.startswith("Connect")  # by name: the client chooses its HTTP library


def _may_be_alone(fault: Exception) -> bool:
    """Whether what lasts until the deadline may be of one request alone: a crash, silence, or no completion."""
    if isinstance(fault, APIStatusError):
        return fault.status_code >= 500
    return isinstance(fault, APITimeoutError | ValueError)


def _beginning(reply: Any) -> str:
    try:
        return str(reply)[:100]
    except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
        return type(reply).__name__


def _storable(text: str) -> str:
    """The text with lone surrogates and NUL characters escaped, so that requests and databases can hold it."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")


def _refused_parameter(message: str, parameters: Mapping[str, Any]) -> str | None:
    """The first parameter in ``_INSTEAD`` that the request has and the error message names; None if there is none.

    A message that finds ``max_tokens`` too large does not mean its name: without it, replies would have no limit.
    """
    names = [name for name in _INSTEAD if name in parameters and re.search(rf"\b{name}\b", message)]
    if _TOO_LARGE.search(message) and not _UNKNOWN_NAME.search(message):
        names = [name for name in names if name != "max_tokens"]
    return next(iter(names), None)


def _retry_after(header: str | None) -> float | None:
    """Seconds to wait according to a Retry-After header (a number or a date); None if it is absent or unreadable."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(header)
    except (ValueError, OverflowError):  # the latter for numbers with too many digits
        return None
    return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time())


def _strict_schema(messages: Sequence[Message], schema: Schema) -> dict[str, Any]:
    form = {"name": "reply", "strict": True, "schema": dict(schema)}
    return {"messages": list(messages), "response_format": {"type": "json_schema", "json_schema": form}}


def _schema_without_bounds(messages: Sequence[Message], schema: Schema) -> dict[str, Any]:
    return _strict_schema(messages, without_bounds(schema))


def _json_mode(messages: Sequence[Message], schema: Schema) -> dict[str, Any]:
    return {**_plain_text(messages, schema), "response_format": {"type": "json_object"}}


def _plain_text(messages: Sequence[Message], schema: Schema) -> dict[str, Any]:
    told = f"Reply with one JSON object of this JSON schema and nothing else:\n{json.dumps(schema)}"
    first: Message = {"role": "system", "content": told}
    if messages and messages[0]["role"] == "system":  # some endpoints take only one system message
        first = {"role": "system", "content": f"{messages[0]['content']}\n\n{told}"}
        messages = messages[1:]
    return {"messages": [first, *messages]}


# Ways to request JSON, best first; if the endpoint refuses one, the next is used.
_FORMS: tuple[Callable[[Sequence[Message], Schema], dict[str, Any]], ...] = (
    _strict_schema, _schema_without_bounds, _json_mode, _plain_text,
)  # fmt: skip
