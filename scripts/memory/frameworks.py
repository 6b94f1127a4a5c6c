"""Shared code of the retrievers for other frameworks, which return hits of a memory as texts with metadata."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from locigraph.kg.errors import LocigraphError
from locigraph.retrieval.protocols import Hit
from locigraph.scripts.memory import AsyncMemory, Memory, Recalled

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asking:
    """A memory with what it is asked by.

    Attributes:
        memory: The memory, which whoever opened it closes.
        options: Arguments of ``Memory.recall``, with the space, user or agent that is asked.
    """

    memory: Memory | AsyncMemory
    options: Mapping[str, Any]

    def recall(self, question: str) -> Recalled:
        """What is remembered about a question; LocigraphError where the memory is one for asyncio.

        Notes are logged as warnings: where nothing is found there is no text whose metadata could hold them.
        """
        if isinstance(self.memory, AsyncMemory):
            raise LocigraphError("an AsyncMemory is asked in a coroutine: await ainvoke(...), or await aretrieve(...)")
        return _logged(self.memory.recall(question, **self.options))

    async def arecall(self, question: str) -> Recalled:
        """The same for a coroutine; a memory of either kind is asked in a thread."""
        if isinstance(self.memory, AsyncMemory):
            return _logged(await self.memory.recall(question, **self.options))
        return await asyncio.to_thread(partial(self.recall, question))

    def id_of(self, hit: Hit) -> str:
        """The id of a hit's node, after its space where several are asked, of which two may have one id."""
        return hit.node_id if isinstance(self.options.get("space"), str) else f"{hit.space}:{hit.node_id}"

    def metadata(self, hit: Hit, found: Recalled) -> dict[str, Any]:
        """What a framework keeps beside the text of a hit: all that the hit says, and what found it."""
        told = {name: value for name, value in hit.as_json().items() if name != "text"}
        return {**told, "strategy": found.strategy, "notes": list(found.notes)}


def _logged(found: Recalled) -> Recalled:
    for note in found.notes:
        _LOG.warning("%s", note)
    return found
