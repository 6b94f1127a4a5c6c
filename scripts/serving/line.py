"""The line in which requests wait for the memory: what concerns the same spaces is done together.

The first question to a space after an addition brings the space's graph embeddings up to date. When the turn of a space
comes, all that waits for it is done, what changes it first, so that the questions share that work; what arrives later
waits until the others in line have had their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from locigraph.scripts.async_memory import AsyncMemory
from locigraph.scripts.memory import Memory

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Waiting:
    work: Callable[[Memory], Any]
    changes: bool
    result: asyncio.Future[Any]


class Line:
    """Calls of a memory in an order that serves all of them soonest.

    Args:
        memory: The memory.
        groups: Number of groups that are done side by side: while one has the memory, the answer of the other is sent.
    """

    def __init__(self, memory: AsyncMemory, *, groups: int = 2) -> None:
        self._memory = memory
        self._groups = groups
        self._waiting: dict[Hashable, list[_Waiting]] = {}  # longest waiting first
        self._workers: set[asyncio.Task[None]] = set()

    async def call(self, work: Callable[[Memory], _Result], *, about: Hashable, changes: bool = False) -> _Result:
        """What a function makes of the memory, when its turn has come; left out if nobody awaits it any longer then.

        Args:
            work: The function.
            about: What it concerns: what is about the same is done together.
            changes: Whether it is done before what does not change the memory.
        """
        result: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(about, []).append(_Waiting(work, changes, result))
        if len(self._workers) < self._groups:
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        return await result

    async def _work(self) -> None:
        while self._waiting:
            group = self._waiting.pop(next(iter(self._waiting)))
            for each in sorted(group, key=lambda each: not each.changes):
                if each.result.done():
                    continue
                try:
                    found = await self._memory.call(each.work)
                except Exception as error:
                    if not each.result.done():
                        each.result.set_exception(error)
                else:
                    if not each.result.done():
                        each.result.set_result(found)
