"""``Memory`` for asyncio: its methods run in threads, so that they do not block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from locigraph.kg.errors import LocigraphError
from locigraph.memory.memory import Memory

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _awaited(
    method: Callable[Concatenate[Memory, _Arguments], _Result], *, changes: bool = False
) -> Callable[Concatenate[AsyncMemory, _Arguments], Coroutine[Any, Any, _Result]]:
    @wraps(method)
    async def awaited(self: AsyncMemory, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        return await self.call(lambda memory: method(memory, *arguments, **named), changes=changes)

    return awaited


def _close(opening: Future[Memory]) -> None:
    """Close a memory whose opening was cancelled after it had begun, since nobody else can."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


class AsyncMemory:
    """A ``Memory`` whose methods are awaited; open one with ``async with AsyncMemory.open(path)``.

    Calls are queued for a small thread pool, and changes for a thread of their own, so that no question waits for two
    of them. If the task of a call is cancelled, the call is dropped if it has not
    started yet, and finished otherwise: a turn whose ``add`` was cancelled may have been remembered.

    Example:
        >>> from locigraph import AsyncMemory
        >>> async def ask(path: str) -> str:
        ...     async with AsyncMemory.open(path) as memory:
        ...         await memory.add(space="ana", session="s1", speaker="Ana", text="I sold the blue bike to Tom.")
        ...         hits = await memory.recall("Who bought the bike?", space="ana")
        ...         return hits[0].text
        >>> import asyncio, tempfile
        >>> asyncio.run(ask(f"{tempfile.mkdtemp()}/memory.sqlite"))
        'Ana: I sold the blue bike to Tom.'

    Args:
        make: Opens the memory; called in a thread when the block is entered.
        threads: Size of the thread pool for all but changes.
    """

    def __init__(self, make: Callable[[], Memory], *, threads: int = 2) -> None:
        self._make = make
        self._memory: Memory | None = None
        self._closing: Future[None] | None = None
        self._num_threads = threads

    @classmethod
    def open(cls, path: str | Path, **options: Any) -> Self:
        """A memory with the options of ``Memory.open``, which is opened when its ``async with`` block is entered."""
        return cls(partial(Memory.open, path, **options))

    async def __aenter__(self) -> Self:
        if self._closing is not None:
            await asyncio.wait([asyncio.wrap_future(self._closing)])
        # Made here, so that the block can be entered again after it has ended.
        self._threads = ThreadPoolExecutor(self._num_threads, thread_name_prefix="memory")
        self._changing = ThreadPoolExecutor(1, thread_name_prefix="memory-changes")
        opening = self._threads.submit(self._make)
        try:
            self._memory = await asyncio.wrap_future(opening)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                opening.add_done_callback(_close)
            self._changing.shutdown(wait=False)
            self._threads.shutdown(wait=False)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(lambda memory: memory.__exit__(kind, error, trace))

    async def close(self, *, flush: bool = True) -> None:
        """Bring the indexes up to date and release all resources, once the running calls are done.

        Without ``flush``, what is due for the indexes stays listed in the store, for whoever opens the memory next.
        """
        await self._end(lambda memory: memory.close(flush=flush))

    async def _end(self, close: Callable[[Memory], None]) -> None:
        memory, self._memory = self._memory, None
        if memory is not None:
            # After the changes that wait, also if whoever waits for this is cancelled.
            threads, self._closing = self._threads, self._changing.submit(close, memory)
            self._closing.add_done_callback(lambda _: threads.shutdown(wait=False))
            self._changing.shutdown(wait=False)
        closing = self._closing
        if closing is None:
            return  # closed before, such as within its block
        try:
            await asyncio.shield(asyncio.wrap_future(closing))
        finally:
            if closing.done():
                self._closing = None

    async def call(self, function: Callable[[Memory], _Result], *, changes: bool = False) -> _Result:
        """Run a function on the memory in one thread, for several calls that belong together; returns its result.

        ``changes`` says that it may change the memory, so that it waits for other changes and holds up no question.
        """
        memory = self._memory
        if memory is None:
            raise LocigraphError("the memory is not open; use it inside: async with AsyncMemory.open(path) as memory")
        threads = self._changing if changes else self._threads
        return await asyncio.get_running_loop().run_in_executor(threads, function, memory)

    add = _awaited(Memory.add, changes=True)
    add_many = _awaited(Memory.add_many, changes=True)
    add_each = _awaited(Memory.add_each, changes=True)
    forget = _awaited(Memory.forget, changes=True)
    forget_expired = _awaited(Memory.forget_expired, changes=True)
    set_retention = _awaited(Memory.set_retention, changes=True)
    retentions = _awaited(Memory.retentions)
    restore = _awaited(Memory.restore, changes=True)
    flush = _awaited(Memory.flush)
    spaces = _awaited(Memory.spaces)
    scopes = _awaited(Memory.scopes)
    titles = _awaited(Memory.titles)
    turns = _awaited(Memory.turns)
    times = _awaited(Memory.times)
    overview = _awaited(Memory.overview)
    recall = _awaited(Memory.recall)
    recall_each = _awaited(Memory.recall_each)
    recall_at_once = _awaited(Memory.recall_at_once)
    profile = _awaited(Memory.profile)
    state = _awaited(Memory.state)
    warm_up = _awaited(Memory.warm_up)
    notes = _awaited(Memory.notes)
    is_rebuilding = _awaited(Memory.is_rebuilding)
    is_being_added = _awaited(Memory.is_being_added)
    explain = _awaited(Memory.explain)
