"""Builds messages to language models from the instructions of a stage, a file in ``prompts``, and the data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # its client takes a second to import
    from locigraph.consolidation.llm import Message

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
