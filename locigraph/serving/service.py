"""Runs operations on a memory for HTTP and MCP in a few threads, with metrics and a limit on waiting requests."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import sys
import traceback
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import BaseModel

from locigraph.kg.errors import LocigraphError
from locigraph.memory import AsyncMemory, MemoryState
from locigraph.serving.keys import Caller
from locigraph.serving.limits import RateLimit
from locigraph.serving.operations import Operation, Request
from locigraph.serving.problems import INTERNAL, BusyError, LimitError
from locigraph.serving.request_queue import RequestQueue

log = logging.getLogger("locigraph.serve")
_STATE_S = 1.0
_AGAIN_S = 30.0  # before models that could not be loaded are tried again
#: Seconds between two erasures of what has expired.
SWEEP_S = 600.0
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Service:
    """A memory that serves several clients at a time.

    Args:
        memory: The memory, with a thread for each lane of the queue.
        limit: Limit on the requests of each caller; None for none.
        folders: Folders whose paths no answer may show.

    Attributes:
        limit: As given.
        registry: Metrics of this service.
        not_ready: Why requests cannot be answered yet, or at all; empty once models and checkpoint are loaded.
    """

    def __init__(self, memory: AsyncMemory, *, limit: RateLimit | None = None, folders: Collection[str] = ()) -> None:
        self._memory = memory
        self.limit = RateLimit(sys.maxsize) if limit is None else limit
        self._folders = sorted(folders, key=len, reverse=True)
        self._reading: asyncio.Task[MemoryState] | None = None
        self._last: MemoryState | None = None
        self._queue = RequestQueue(memory, self._observe)
        self._waiting = 0
        self._has_stopped = asyncio.Event()
        self.not_ready = "models are being loaded; try again in a few seconds"
        self.registry = CollectorRegistry()
        self.refused = Counter(
            "locigraph_refused", "Requests refused before they reached the memory, by status", ["status"],
            registry=self.registry,
        )  # fmt: skip
        self._calls = Counter(
            "locigraph_operations", "Operations by name and how they ended: ok, refused or failed",
            ["operation", "end"], registry=self.registry,
        )  # fmt: skip
        self._waited = Histogram(
            "locigraph_wait_seconds", "Time that an operation waited for a thread", ["operation"],
            registry=self.registry, buckets=_SECONDS,
        )  # fmt: skip
        self._took = Histogram(
            "locigraph_operation_seconds", "Time that an operation took in its thread", ["operation"],
            registry=self.registry, buckets=_SECONDS,
        )  # fmt: skip
        self._running = Gauge(
            "locigraph_waiting", "Operations that are waiting or running",
            registry=self.registry, multiprocess_mode="livesum",
        )  # fmt: skip

    async def warm_up(self, again_s: float = _AGAIN_S) -> None:
        """Load the models and the checkpoint, so that the first answer need not wait for them; until it succeeds."""
        while not await self._has_loaded():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_stopped.wait(), again_s)
            if self._has_stopped.is_set():
                return

    async def _has_loaded(self) -> bool:
        try:
            await self._memory.warm_up()
            # The models and libraries stay. Without this, the garbage collector would look through all of their objects
            # again and again, during which nothing is answered.
            gc.collect()
            gc.freeze()
            self.not_ready = ""
        except LocigraphError as error:  # the server keeps running, and answers what it can
            self.not_ready = str(self._told_error(error))
        except Exception as error:
            log_crash(error)
            self.not_ready = INTERNAL
        return not self.not_ready

    def stop_warming(self) -> None:
        """Do not try again to load what could not be loaded."""
        self._has_stopped.set()

    async def sweep(self, every_s: float) -> None:
        """Erase what has expired, again and again, so that nothing waits for the next addition; see ``expires_at``."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self._memory.forget_expired()
            except Exception as error:  # it is tried again; answers show nothing of it meanwhile
                log_crash(error)

    async def state(self, read: Callable[[], MemoryState]) -> MemoryState:
        """The state of the memory; while a long write blocks reading it, the last known state.

        Args:
            read: Reads the state; it is called in a thread, without waiting in the queue of requests.

        Raises:
            BusyError: If no state is known.
            LocigraphError: If the memory cannot answer.
        """
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(asyncio.to_thread(read))
        done, _ = await asyncio.wait([self._reading], timeout=_STATE_S)
        if done:
            try:
                self._last = self._reading.result()
            except LocigraphError as error:
                raise self._told_error(error) from None
        if self._last is None:
            raise BusyError("the memory is busy writing; try again in a few seconds")
        return self._last

    async def perform(self, operation: Operation[Any], asked: Request, caller: Caller) -> BaseModel:
        """Perform an operation, and return its answer; one that is more work counts as several requests.

        Raises:
            LimitError: If the caller owes more requests than a minute pays.
            BusyError: If too many requests are waiting, or the service is stopped before there is an answer.
            LocigraphError: As ``Operation.perform``.
        """
        self._waiting += 1
        self._running.set(self._waiting)
        end = "failed"
        try:
            if wait_s := math.ceil(self.limit.charge(caller.name, asked.size - 1)):
                said = f"key {caller.name!r} has asked for more work than it has requests; try again in {wait_s} s"
                raise LimitError(said, wait_s)
            answer = self._told(await self._queue.answer(operation, asked, caller))
            end = "ok"
        except LocigraphError as error:
            end = "refused"
            raise self._told_error(error) from None
        finally:
            self._waiting -= 1
            self._running.set(self._waiting)
            self._calls.labels(operation.name, end).inc()
        return answer

    def without_folders(self, said: str) -> str:
        """A message as clients may see it: without what is the operator's, the folders of this machine."""
        for folder in self._folders:
            said = said.replace(f"{folder}{os.sep}", "")
        return said

    def _told_error(self, error: LocigraphError) -> LocigraphError:
        error.args = (self.without_folders(error.public or str(error)),)
        return error

    def _told(self, answer: BaseModel) -> BaseModel:
        """An answer whose notes, and reason why something cannot be used, are such as clients may see."""
        told = {
            name: self.without_folders(said) if isinstance(said, str) else [*map(self.without_folders, said)]
            for name in ("reason", "notes")
            if (said := getattr(answer, name, None))
        }
        return answer.model_copy(update=told) if told else answer

    def stop(self) -> None:
        """Refuse all requests without an answer, and all new ones."""
        self._queue.stop()

    def _observe(self, name: str, waited: float, took: float) -> None:
        self._waited.labels(name).observe(waited)
        self._took.labels(name).observe(took)


def log_crash(error: BaseException) -> None:
    """Log where an unexpected error came from, without its message, which may quote conversations."""
    frames = reversed(traceback.extract_tb(error.__traceback__)[-8:])
    log.error("%s at %s", type(error).__name__, " < ".join(f"{frame.filename}:{frame.lineno}" for frame in frames))
