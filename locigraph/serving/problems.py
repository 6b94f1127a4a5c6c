"""Errors as clients get them: JSON problem details (RFC 9457), with the same messages as on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from locigraph.consolidation.errors import LanguageModelError
from locigraph.kg.errors import (
    LocigraphError,
    MissingStoreError,
    StoreUnavailableError,
    StoreVersionError,
    TurnConflictError,
    UnknownNodeError,
    UnknownScopeError,
    UnknownSpaceError,
    UnknownTurnError,
    shortened,
)
from locigraph.retrieval.errors import IndexMismatchError, IndexUnavailableError, TextEncoderError
from locigraph.serving.keys import ForbiddenSpaceError
from locigraph.training.errors import CheckpointError, StaleEmbeddingsError


class Problem(BaseModel):
    """Why a request has no answer (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class InvalidRequestError(LocigraphError):
    """The fields of a request are not those that its operation takes."""


class BusyError(LocigraphError):
    """Too many requests are waiting, or the server is stopping; ``wait_s`` is when to try again, in seconds."""

    wait_s = 1


class LimitError(BusyError):
    """A key has asked for more than it has requests."""

    def __init__(self, message: str, wait_s: int) -> None:
        super().__init__(message)
        self.wait_s = wait_s


def stopping() -> BusyError:
    """The error for a request that has no answer when the server stops."""
    return BusyError(
        "the server is stopping before this request is answered; send it again when the server is running, and keep "
        "the turn_id of each turn"
    )


#: HTTP status of each kind of error; the first row that fits counts, and all other errors are 400.
_STATUS: dict[type[LocigraphError], int] = {
    ForbiddenSpaceError: 403,
    UnknownSpaceError: 404,
    UnknownScopeError: 404,
    UnknownNodeError: 404,
    UnknownTurnError: 404,
    TurnConflictError: 409,
    InvalidRequestError: 422,
    LimitError: 429,
    BusyError: 503,
    LanguageModelError: 503,
    StoreVersionError: 503,
    MissingStoreError: 503,
    StoreUnavailableError: 503,
    IndexUnavailableError: 503,
    IndexMismatchError: 503,
    TextEncoderError: 503,
    CheckpointError: 503,
    StaleEmbeddingsError: 503,
}
#: Type of our own Pydantic error for an unknown field, whose message is passed on as it is.
UNKNOWN_FIELD = "unknown_field"
INTERNAL = "the server failed; its log says where, without quoting conversations"


def problem(status: int, detail: str, *, kind: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """A response with problem details.

    Args:
        status: HTTP status.
        detail: What is wrong, with which value, and what to do.
        kind: Name of the error's class; empty for requests that the server itself refuses.
        headers: Further headers.
    """
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.removesuffix("Error")).lower()
    found = Problem(
        type=f"urn:locigraph:{name}" if name else "about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        # A lone surrogate in a request must not break the answer that quotes it.
        detail=detail.encode(errors="backslashreplace").decode(),
    )
    return Response(found.model_dump_json(), status, headers, "application/problem+json")


def problem_of(error: LocigraphError) -> Response:
    """The response to an error of the memory."""
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 400)
    headers = {"Retry-After": str(error.wait_s)} if isinstance(error, BusyError) else None
    kind = "" if type(error) is LocigraphError else type(error).__name__
    return problem(status, str(error), kind=kind, headers=headers)


def told_of(request: Request, error: HTTPException) -> str:
    """Explains an HTTP error, such as a missing route or an unreadable body, and what to do about it."""
    path = shortened(request.url.path)
    if error.status_code == 404:
        return f"path {path} does not exist; /openapi.json lists the paths"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        return f"path {path} does not accept {request.method}; use {allowed}"
    if error.status_code == 400:
        return (
            "the request cannot be read as JSON: it is not in UTF-8, is nested too deeply, or has a number of too many "
            "digits"
        )
    return str(error.detail)


def invalid(errors: Sequence[Any]) -> InvalidRequestError:
    """Pydantic's errors as one error, whose message names the first field, its value and what is expected."""
    first = errors[0]
    field = ".".join(str(part) for part in first["loc"] if part != "body") or "request"
    if first["type"] == UNKNOWN_FIELD:
        return InvalidRequestError(f"{field}: {first['msg']}")
    if first["type"] == "missing" and field != "request":
        return InvalidRequestError(f"field {field!r} is missing")
    if field == "request":
        return InvalidRequestError("the request is not a JSON object; send one with Content-Type: application/json")
    if first["type"] == "json_invalid":
        return InvalidRequestError(f"the request is not valid JSON ({first['ctx']['error']} at character {field})")
    value = shortened(first.get("input"))
    return InvalidRequestError(f"field {field!r} is {value}: {first['msg'][:1].lower()}{first['msg'][1:]}")
