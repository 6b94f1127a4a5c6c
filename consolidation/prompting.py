"""Messages to language models: the instructions of a stage, which are a file in ``prompts``, and the data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # its client takes a second to import
    from locigraph.consolidation.llm import Message

#: The data that a model is asked about.
Document = Mapping[str, Any]


@cache
def prompt(stage: str) -> str:
    """The instructions of a stage."""
    return files("locigraph.consolidation").joinpath("prompts", f"{stage}.txt").read_text(encoding="utf-8")


def messages(stage: str, document: Document) -> list[Message]:
    """The instructions of a stage, and the document that they are about as JSON, which keeps the two apart."""
    told = json.dumps(document, ensure_ascii=False)
    return [{"role": "system", "content": prompt(stage)}, {"role": "user", "content": told}]
