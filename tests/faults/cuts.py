"""Faults: a command is stopped before or after any call that writes; the same command again must make up for it.

The calls are found by counting them in an uninterrupted run: statements and commits of the store and the cache, calls
of the index's client, renames and waits for the disk.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from locigraph.retrieval.errors import IndexUnavailableError
from locigraph.retrieval.index.milvus_client import GuardedClient
from tests.faults import workbench
from tests.faults.children import STOPPED, ChildError, in_child

#: Each command, what must have run before it, and what is asked afterwards.
_STAGES: dict[str, tuple[str, ...]] = {
    "build": (),
    "forget": ("build", "refresh"),
    "rebuild": ("build",),
    "refresh": ("build",),
}
_WAYS = ("exit", "kill", "interrupt", "full disk")
#: Of a build by language models, whose conversations are consolidated side by side.
_MODEL_STAGES: dict[str, tuple[str, ...]] = {"build_by_models": ()}
_READS = ("SELECT", "PRAGMA", "BEGIN", "ROLLBACK")
_FULL = sa.exc.OperationalError("", None, sqlite3.OperationalError("database or disk is full"))
_READING_CALLS = ("query", "search", "has", "list", "describe", "read", "get", "close", "connect")


class _Counter:
    """Counts the writing calls of this process and acts at one of them."""

    def __init__(self, at: int, way: str) -> None:
        self.calls = 0
        self._at, self._way = at, way

    def __call__(self, no_space: Exception) -> None:
        self.calls += 1
        if self.calls != self._at:
            return
        if self._way == "exit":
            os._exit(STOPPED)
        if self._way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._way == "full disk":
            raise no_space
        if threading.current_thread() is threading.main_thread():  # where Python raises it
            raise KeyboardInterrupt

    def watch(self) -> None:
        """Begin; every call counts twice, before and after."""
        counted = self

        @sa.event.listens_for(sa.Engine, "before_cursor_execute")
        def _before(_: Any, __: Any, statement: str, *___: Any) -> None:
            if not statement.startswith(_READS):
                counted(_FULL)

        @sa.event.listens_for(sa.Engine, "after_cursor_execute")
        def _after(_: Any, __: Any, statement: str, *___: Any) -> None:
            if not statement.startswith(_READS):
                counted(_FULL)

        sa.event.listen(sa.Engine, "commit", lambda connection: counted(_FULL))
        guarded = GuardedClient.guarded

        def watched(client: GuardedClient, what: str, action: Callable[..., Any]) -> Callable[..., Any]:
            call = guarded(client, what, action)
            return (
                call
                if what.startswith(_READING_CALLS)
                else _around(call, partial(counted, IndexUnavailableError("no space left on device")))
            )

        GuardedClient.guarded = watched  # type: ignore[method-assign,assignment]
        no_space = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "graph")
        os.replace = _around(os.replace, partial(counted, no_space))
        os.fsync = _around(os.fsync, partial(counted, no_space))


def _around(call: Callable[..., Any], counted: Callable[[], None]) -> Callable[..., Any]:
    def around(*arguments: Any, **options: Any) -> Any:
        counted()
        result = call(*arguments, **options)
        counted()
        return result

    return around


def _counted(folder: Path, command: str, at: int, way: str) -> int:
    counter = _Counter(at, way)
    counter.watch()
    code, said = workbench.run(folder, command)
    assert code in (0, 2), said
    assert "\n" not in said.strip() or code == 0, said
    return counter.calls


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Tries without end: a command, a call, a way to be stopped there."""
    return _tries(seed, folder, _STAGES, _WAYS)


def kills_of_models(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Tries without end of ``kill -9`` at a call of a build by language models."""
    return _tries(seed, folder, _MODEL_STAGES, ("kill",))


def _tries(
    seed: int, folder: Path, stages: Mapping[str, Sequence[str]], ways: Sequence[str]
) -> Iterator[Callable[[], None]]:
    randomness = random.Random(seed)
    points, wanted = {}, {}
    for command, before in stages.items():
        start, done = folder / f"before-{command}", folder / f"after-{command}"
        in_child(lambda start=start: workbench.prepare(start))  # type: ignore[misc]
        for earlier in before:
            code, said = in_child(lambda start=start, earlier=earlier: workbench.run(start, earlier))  # type: ignore[misc]
            assert code == 0, said
        shutil.copytree(start, done)
        points[command] = in_child(lambda done=done, command=command: _counted(done, command, 0, ""))  # type: ignore[misc]
        wanted[command] = in_child(lambda done=done: workbench.state(done))  # type: ignore[misc]
    while True:
        command, way = randomness.choice(list(stages)), randomness.choice(ways)
        at = randomness.randrange(points[command]) + 1
        yield lambda c=command, w=way, a=at: _check(folder, c, a, w, wanted[c])  # type: ignore[misc]


def _check(folder: Path, command: str, at: int, way: str, wanted: dict[str, Any]) -> None:
    what = f"{command} stopped by {way} at call {at}"
    place = folder / "try"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / f"before-{command}", place)
    try:
        in_child(lambda: _counted(place, command, at, way))
    except ChildError as error:
        raise AssertionError(what) from error
    code, said = in_child(lambda: workbench.run(place, command))
    if command == "forget" and code == 2 and "or no longer" in said:
        code = 0  # it was complete already, and says so
    assert code == 0, f"{what}: again: {said}"
    assert in_child(lambda: workbench.run(place, "verify"))[0] == 0, what
    found = in_child(lambda: workbench.state(place))
    for name, value in wanted.items():
        assert found.get(name) == value, f"{what}: {name} differs"
    assert found.keys() == wanted.keys(), f"{what}: {found.keys() ^ wanted.keys()}"
    assert not [path for path in place.rglob("*") if path.name.endswith((".part", ".old"))], what
