"""The queue of requests to the memory, which batches those for the same spaces.

The first question to a space after an addition brings the space's graph embeddings up to date. When the turn of a space
comes, all that waits for it is done, what changes it first, so that additions are one write and the questions share
what follows it; what arrives later waits until the others in the queue have had their turn.
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
from locigraph.scripts.serving.problems import BusyError

#: Told of each request that was done: its operation's name, and the seconds it waited and took.
Observer = Callable[[str, float, float], None]


# Additions that are one write: while it lasts, nobody else has the memory.
_MOST_AT_ONCE = 50


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    operation: Operation[Any]
    asked: Request
    caller: Caller
    answer: asyncio.Future[BaseModel]
    since: float = field(default_factory=time.perf_counter)


class RequestQueue:
    """Requests in an order that serves all of them soonest.

    Args:
        memory: The memory.
        observe: Told of each request that was done.
        waits_for_models: Whether additions wait for language models; they have a queue of their own then, so that
            questions do not wait with them.
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
        """What comes of a request, when its turn has come; left out if nobody awaits it any longer then.

        Raises:
            BusyError: If the queue is stopped before.
            LocigraphError: As ``Operation.perform``.
        """
        if self._has_stopped:
            raise _stopped()
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
        """Refuse all that has no answer yet, and all that comes; what has not begun is left out."""
        self._has_stopped = True
        _deliver([*self._unanswered], [_stopped() for _ in self._unanswered])

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
        """In a thread of the memory; each answer is sent when it is there."""
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


def _stopped() -> BusyError:
    return BusyError(
        "the server stops before this is answered; ask again when it runs, and add again under the same turn_id what "
        "has one"
    )


def _together(waiting: _Waiting) -> Hashable:
    """What neighbours share that are done at once."""
    return waiting.operation.name if waiting.operation.run_each else id(waiting)


def _deliver(wanted: Sequence[_Waiting], found: Sequence[BaseModel | Exception]) -> None:
    for each, answer in zip(wanted, found, strict=True):
        if each.answer.done():
            continue
        if isinstance(answer, Exception):
            each.answer.set_exception(answer)
        else:
            each.answer.set_result(answer)
