"""Asks language models by the instructions of a stage, a file in ``prompts``, about data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from locigraph.consolidation.ledger import Purpose
from locigraph.consolidation.replies import Form, filled, strict_schema

if TYPE_CHECKING:  # its client takes a second to import
    from locigraph.consolidation.llm import ChatClient, Message

_Form = TypeVar("_Form", bound=Form)
_Result = TypeVar("_Result")
#: The data about which a model is asked.
Document = Mapping[str, Any]


@cache
def prompt(stage: str) -> str:
    """The instructions of a stage."""
    return files("locigraph.consolidation").joinpath("prompts", f"{stage}.txt").read_text(encoding="utf-8")


def messages(stage: str, document: Document) -> list[Message]:
    """The instructions of a stage as system message, and the document as JSON in the user message, kept separate."""
    data = json.dumps(document, ensure_ascii=False)
    return [{"role": "system", "content": prompt(stage)}, {"role": "user", "content": data}]


def ask(
    client: ChatClient,
    purpose: Purpose,
    document: Document,
    form: type[_Form],
    read: Callable[[_Form], _Result],
    *,
    enums: Mapping[str, Sequence[str]] | None = None,
    leave_out: Sequence[str] = (),
) -> _Result:
    """Ask a model about a document by the instructions of the purpose's stage.

    Args:
        client: The model.
        purpose: What the reply is for.
        document: The data about which it is asked.
        form: The form of its reply.
        read: Converts the filled form to the result; raises ValueError or ConsolidationError that says what is wrong.
        enums: As in ``strict_schema``.
        leave_out: As in ``strict_schema``.

    Raises:
        LanguageModelError: As ``ChatClient.ask``.
    """
    schema = strict_schema(form, enums, leave_out=leave_out)
    return client.ask(
        messages(purpose.stage, document), schema, lambda reply: read(filled(form, reply)), purpose=purpose
    )
