"""Shared code of the retrievers for other frameworks, which return hits of a memory as texts with metadata."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from locigraph.kg.errors import LocigraphError, UnknownScopeError, UnknownSpaceError
from locigraph.memory import AsyncMemory, Memory, Recalled
from locigraph.retrieval.protocols import Hit

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asking:
    """A memory and the arguments with which it is searched.

    Attributes:
        memory: The memory; whoever opened it also closes it.
        options: Arguments of ``Memory.recall``, including the space, user or agent to search.
    """

    memory: Memory | AsyncMemory
    options: Mapping[str, Any]

    def recall(self, question: str) -> Recalled:
        """Search the memory; raises LocigraphError if it is an ``AsyncMemory``.

        Notes are logged as warnings, since a result without hits has no metadata that could hold them.
        """
        if isinstance(self.memory, AsyncMemory):
            raise LocigraphError(
                "an AsyncMemory can only be searched in a coroutine; await ainvoke(...) or aretrieve(...)"
            )
        return _logged(self.memory.recall(question, **self.options))

    async def arecall(self, question: str) -> Recalled:
        """The same as a coroutine; a memory of either kind is searched in a thread."""
        if isinstance(self.memory, AsyncMemory):
            return _logged(await self.memory.recall(question, **self.options))
        return await asyncio.to_thread(partial(self.recall, question))

    def without(self, error: UnknownSpaceError | UnknownScopeError) -> Asking | None:
        """The same without a space to which nothing was added yet, which is logged; None if there is no other."""
        _LOG.warning("%s", error)
        spaces = self.options.get("space")
        if not isinstance(error, UnknownSpaceError) or spaces is None or isinstance(spaces, str):
            return None
        left = [space for space in spaces if space != error.space]
        return replace(self, options={**self.options, "space": left}) if left and len(left) < len(spaces) else None

    def id_of(self, hit: Hit) -> str:
        """The ID of a hit's node; prefixed with its space if several are searched, since two may use the same ID."""
        return hit.node_id if isinstance(self.options.get("space"), str) else f"{hit.space}:{hit.node_id}"

    def metadata(self, hit: Hit, found: Recalled) -> dict[str, Any]:
        """Metadata of a hit for a framework: all its fields but the text, and the strategy and notes of the search."""
        told = {name: value for name, value in hit.as_json().items() if name != "text"}
        return {**told, "strategy": found.strategy, "notes": list(found.notes)}


def _logged(found: Recalled) -> Recalled:
    for note in found.notes:
        _LOG.warning("%s", note)
    return found
