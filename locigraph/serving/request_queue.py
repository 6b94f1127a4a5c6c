"""The queue of requests to the memory: who waits is served in turn by key, and what can be answered at once is.

There are four lanes, each with one thread at a time. Questions go first to the lane of those that need nothing but a
search of what is held in memory; those whose spaces have to be brought up to date go on to the lane of all other
reads. Changes have the third; while there are any, the first lane rests half of the time. The last lane is for reads
that wait for a language model, or for a space that is consolidated again. So a question waits for neither a change nor
an update, except those of its own spaces. What waits in a lane is taken in rounds, a request of each key in a round,
and done together as far as possible.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import BaseModel

from locigraph.kg.errors import outcome
from locigraph.memory import AsyncMemory, Memory
from locigraph.serving.keys import Caller
from locigraph.serving.operations import Operation, Request
from locigraph.serving.problems import BusyError, stopping

#: Called after each request with its operation's name, and the seconds that it waited and took.
Observer = Callable[[str, float, float], None]


# Largest number of questions, and of turns that are added, that are taken together. The spaces that questions need are
# brought up to date once for all of them, whereas each turn takes its own time, which others have to wait.
_MOST_QUESTIONS, _MOST_TURNS = 500, 50
# Requests of one key that may wait, and of all keys together.
_MOST_OF_KEY, _MOST_WAITING = 1_000, 5_000


@dataclass(slots=True, eq=False)
class _Waiting:
    operation: Operation[Any]
    asked: Request
    caller: Caller
    answer: asyncio.Future[BaseModel]
    since: float = field(default_factory=time.perf_counter)
    took: float = 0.0
    steps: Generator[None, None, BaseModel] | None = None  # of what is done in steps, once it has begun


class _Lane:
    """What waits, by key; the keys take turns.

    Args:
        most: Largest number of requests, or of turns in them, that are taken together.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_key: dict[str, deque[_Waiting]] = {}  # the key whose turn it is comes first
        self.task: asyncio.Task[None] | None = None

    def put(self, waiting: _Waiting) -> None:
        self._of_key.setdefault(waiting.caller.name, deque()).append(waiting)

    def put_back(self, taken: Sequence[_Waiting]) -> None:
        """Put back what was taken and is not done; it comes before what its key asked for later."""
        for waiting in reversed(taken):
            self._of_key.setdefault(waiting.caller.name, deque()).appendleft(waiting)

    def take(self) -> list[_Waiting]:
        """What is done next, of each key in its order; empty if nothing waits."""
        taken, size = list[_Waiting](), 0
        while self._of_key and size < self._most:
            key = next(iter(self._of_key))
            queue = self._of_key.pop(key)
            waiting = queue.popleft()
            if queue:
                self._of_key[key] = queue
            if waiting.steps is None and waiting.answer.done():
                continue  # nobody waits for it any longer
            taken.append(waiting)
            size += waiting.asked.size
        return taken


class RequestQueue:
    """Queue of requests; see the module.

    Args:
        memory: The memory, with a thread for each lane.
        observe: Called after each request.
    """

    def __init__(self, memory: AsyncMemory, observe: Observer) -> None:
        self._memory = memory
        self._observe = observe
        self._at_once, self._reads, self._changes = _Lane(_MOST_QUESTIONS), _Lane(_MOST_QUESTIONS), _Lane(_MOST_TURNS)
        self._patient = _Lane(1)
        self._unanswered: dict[_Waiting, None] = {}
        self._of_key: dict[str, int] = {}  # number of unanswered requests
        self._has_stopped = False

    async def answer(self, operation: Operation[Any], asked: Request, caller: Caller) -> BaseModel:
        """Queue a request and return its answer; it is skipped if it is cancelled before its turn comes.

        Raises:
            BusyError: If too many requests wait, or the queue is stopped first.
            LocigraphError: As ``Operation.perform``.
        """
        if self._has_stopped:
            raise stopping()
        of_key = self._of_key.get(caller.name, 0)
        if of_key >= _MOST_OF_KEY or len(self._unanswered) >= _MOST_WAITING:
            of_whom = f"of key {caller.name!r} " if of_key >= _MOST_OF_KEY else ""
            count = of_key if of_whom else len(self._unanswered)
            raise BusyError(f"{count:,} requests {of_whom}are already waiting; try again later")
        waiting = _Waiting(operation, asked, caller, asyncio.get_running_loop().create_future())
        self._unanswered[waiting] = None
        self._of_key[caller.name] = of_key + 1
        try:
            if operation.changes:
                self._put(self._changes, waiting)
            elif asked.waits_for_models:
                self._put(self._patient, waiting)
            else:
                self._put(self._reads if operation.run_at_once is None else self._at_once, waiting)
            return await waiting.answer
        finally:
            del self._unanswered[waiting]
            self._of_key[caller.name] -= 1
            if not self._of_key[caller.name]:
                del self._of_key[caller.name]

    def stop(self) -> None:
        """Refuse all requests without an answer, and all new ones; those that have not begun are not performed."""
        self._has_stopped = True
        _deliver([*self._unanswered], [stopping() for _ in self._unanswered])

    def _put(self, lane: _Lane, waiting: _Waiting) -> None:
        lane.put(waiting)
        if lane.task is None:
            lane.task = asyncio.create_task(self._work(lane))

    async def _work(self, lane: _Lane) -> None:
        loop = asyncio.get_running_loop()
        try:
            while batch := lane.take():
                works = {
                    self._at_once: self._try_at_once, self._reads: self._perform_or_put_off,
                    self._changes: self._change_or_put_off,
                }  # fmt: skip
                work = works.get(lane, self._perform)
                # To which those go that are not done: the rest of an addition takes its turn with those of others.
                then = {self._at_once: self._reads, self._reads: self._patient}.get(lane)
                begun = time.perf_counter()
                try:
                    left = await self._memory.call(partial(work, batch, loop))
                except Exception as error:
                    _deliver(batch, [error] * len(batch))
                    continue
                if then is None:
                    lane.put_back(left)
                    continue
                for waiting in left:
                    self._put(then, waiting)
                if lane is self._at_once and self._changes.task is not None:
                    # Only one thread at a time runs Python. Where questions never end, changes would hardly get to it.
                    await asyncio.sleep(time.perf_counter() - begun)
        finally:
            lane.task = None

    # --- in a thread of the memory -------------------------------------------------------------------------

    def _try_at_once(
        self, batch: Sequence[_Waiting], loop: asyncio.AbstractEventLoop, memory: Memory
    ) -> list[_Waiting]:
        """Answer what can be answered at once; returns the others."""
        left = []
        for run in _together(batch):
            part = [each for each in run if not each.answer.done()]
            if not part:
                continue
            requests = [(each.asked, each.caller) for each in part]
            started = time.perf_counter()
            found = part[0].operation.perform_at_once(memory, requests)
            took = time.perf_counter() - started
            done = {each: answer for each, answer in zip(part, found, strict=True) if answer is not None}
            left += [each for each in part if each not in done]
            for each in done:
                self._observe(each.operation.name, started - each.since, took / len(part))
            loop.call_soon_threadsafe(_deliver, [*done], [*done.values()])
        return left

    def _perform_or_put_off(
        self, batch: Sequence[_Waiting], loop: asyncio.AbstractEventLoop, memory: Memory
    ) -> list[_Waiting]:
        """As ``_perform``, but requests about spaces that are consolidated again are returned at once."""
        put_off = [each for each in batch if each.asked.is_about_rebuilt(memory, each.caller)]
        return self._perform([each for each in batch if each not in put_off], loop, memory) + put_off

    def _change_or_put_off(
        self, batch: Sequence[_Waiting], loop: asyncio.AbstractEventLoop, memory: Memory
    ) -> list[_Waiting]:
        """As ``_perform``, but turns of spaces to which many are being added in steps wait for these.

        They come after them, so their own addition would consolidate all of them at one go.
        """
        put_off = []
        if any(each.operation.steps is not None for each in batch):
            turns = [each for each in batch if each.operation.steps is None and not each.operation.erases]
            put_off = [each for each in turns if memory.is_being_added(each.asked.touched)]
        left = self._perform([each for each in batch if each not in put_off], loop, memory) + put_off
        return [each for each in batch if each in left]

    def _perform(self, batch: Sequence[_Waiting], loop: asyncio.AbstractEventLoop, memory: Memory) -> list[_Waiting]:
        """Do what waits, each answer being sent to the event loop as soon as it is there; returns what is not done."""
        left = []
        for run in _together(batch):
            part = [each for each in run if each.steps is not None or not each.answer.done()]
            if not part:
                continue
            started = time.perf_counter()
            found: list[BaseModel | Exception]
            if part[0].operation.steps is not None:
                (waiting,) = part
                answer = outcome(partial(self._step, waiting, memory))
                if answer is None:
                    waiting.took += time.perf_counter() - started
                    left.append(waiting)
                    continue
                found = [answer]
            else:
                requests = [(each.asked, each.caller) for each in part]
                found = part[0].operation.perform_each(memory, requests)
            took = (time.perf_counter() - started) / len(part)
            for each in part:
                self._observe(each.operation.name, started - each.since - each.took, each.took + took)
            loop.call_soon_threadsafe(_deliver, part, found)
        return left

    def _step(self, waiting: _Waiting, memory: Memory) -> BaseModel | None:
        """Do one step; returns the answer, or None if there are more."""
        if waiting.steps is None:
            waiting.steps = waiting.operation.begin(memory, waiting.asked, waiting.caller)
        try:
            next(waiting.steps)
        except StopIteration as done:
            answer: BaseModel = done.value
            return answer
        return None


def _together(batch: Sequence[_Waiting]) -> Iterator[list[_Waiting]]:
    """Requests of one operation that can be done in one call, in the order of their first ones."""
    groups: dict[Hashable, list[_Waiting]] = {}
    for each in batch:
        groups.setdefault(each.operation.name if each.operation.run_each else each, []).append(each)
    yield from groups.values()


def _deliver(wanted: Sequence[_Waiting], found: Sequence[BaseModel | Exception]) -> None:
    for each, answer in zip(wanted, found, strict=True):
        if each.answer.done():
            continue
        if isinstance(answer, Exception):
            each.answer.set_exception(answer)
        else:
            each.answer.set_result(answer)
