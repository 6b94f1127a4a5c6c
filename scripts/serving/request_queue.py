"""The queue of requests to the memory, which batches those for the same spaces.

The first question to a space after an addition has to bring the space's graph embeddings up to date. Spaces are
therefore served one after the other. All requests that wait for a space are served together, changes first, so that
additions become one write and all questions share one update. Later requests wait until the other spaces were served.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from pydantic import BaseModel

from locigraph.scripts.memory import AsyncMemory, Memory
from locigraph.scripts.serving.keys import Caller
from locigraph.scripts.serving.operations import Operation, Request
from locigraph.scripts.serving.problems import stopping

#: Called after each request with its operation's name, and the seconds that it waited and took.
Observer = Callable[[str, float, float], None]


# Largest number of additions in one write, during which no other request is served.
_MOST_AT_ONCE = 50


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    operation: Operation[Any]
    asked: Request
    caller: Caller
    answer: asyncio.Future[BaseModel]
    since: float = field(default_factory=time.perf_counter)


class RequestQueue:
    """Queue of requests, which are batched by the spaces that they touch.

    Args:
        memory: The memory.
        observe: Called after each request.
        waits_for_models: Whether additions wait for language models. If so, requests that change the memory have a
            queue of their own, so that questions do not wait for them.
    """

    def __init__(self, memory: AsyncMemory, observe: Observer, *, waits_for_models: bool = False) -> None:
        self._memory = memory
        self._observe = observe
        self._waits_for_models = waits_for_models
        self._waiting: dict[bool, dict[Hashable, list[_Waiting]]] = {False: {}, True: {}}  # longest waiting first
        self._workers: dict[bool, asyncio.Task[None]] = {}
        self._unanswered: set[_Waiting] = set()
        self._has_stopped = False

    async def answer(self, operation: Operation[Any], asked: Request, caller: Caller) -> BaseModel:
        """Queue a request and return its answer; it is skipped if it is cancelled before its turn comes.

        Raises:
            BusyError: If the queue is stopped first.
            LocigraphError: As ``Operation.perform``.
        """
        if self._has_stopped:
            raise stopping()
        waiting = _Waiting(operation, asked, caller, asyncio.get_running_loop().create_future())
        lane = self._waits_for_models and operation.changes
        self._waiting[lane].setdefault(frozenset(asked.touched) or operation.name, []).append(waiting)
        if lane not in self._workers:
            self._workers[lane] = asyncio.create_task(self._work(lane))
        self._unanswered.add(waiting)
        try:
            return await waiting.answer
        finally:
            self._unanswered.remove(waiting)

    def stop(self) -> None:
        """Refuse all requests without an answer, and all new ones; those that have not begun are not performed."""
        self._has_stopped = True
        _deliver([*self._unanswered], [stopping() for _ in self._unanswered])

    async def _work(self, lane: bool) -> None:
        groups, loop = self._waiting[lane], asyncio.get_running_loop()
        try:
            while groups:
                group = sorted(groups.pop(next(iter(groups))), key=lambda each: not each.operation.changes)
                try:
                    await self._memory.call(partial(self._answer, group, loop))
                except Exception as error:
                    _deliver(group, [error] * len(group))
        finally:
            del self._workers[lane]

    def _answer(self, group: Sequence[_Waiting], loop: asyncio.AbstractEventLoop, memory: Memory) -> None:
        """Runs in a thread of the memory; sends each answer to the event loop as soon as it is there."""
        for _, run in groupby(group, key=_together):
            wanted = [each for each in run if not each.answer.done()]
            for start in range(0, len(wanted), _MOST_AT_ONCE):
                part = wanted[start : start + _MOST_AT_ONCE]
                loop.call_soon_threadsafe(_deliver, part, self._performed(memory, part))

    def _performed(self, memory: Memory, wanted: Sequence[_Waiting]) -> list[BaseModel | Exception]:
        started = time.perf_counter()
        found = wanted[0].operation.perform_each(memory, [(each.asked, each.caller) for each in wanted])
        took = (time.perf_counter() - started) / len(wanted)
        for each in wanted:
            self._observe(each.operation.name, started - each.since, took)
        return found


def _together(waiting: _Waiting) -> Hashable:
    """Key that is equal for neighbouring requests that can be performed in one call."""
    return waiting.operation.name if waiting.operation.run_each else id(waiting)


def _deliver(wanted: Sequence[_Waiting], found: Sequence[BaseModel | Exception]) -> None:
    for each, answer in zip(wanted, found, strict=True):
        if each.answer.done():
            continue
        if isinstance(answer, Exception):
            each.answer.set_exception(answer)
        else:
            each.answer.set_result(answer)
