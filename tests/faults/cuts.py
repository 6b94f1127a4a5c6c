"""Faults: a command is stopped at any moment, and running the same command again must complete it.

It is stopped before or after a call that writes, or anywhere. The calls are counted in an uninterrupted run: statements
and commits of the store and the cache, calls of the index's client, renames and fsyncs. After a simulated power loss,
all written files of the index are empty, and those files of a checkpoint that were not synced. As a program of its own,
a command is interrupted by a signal, and must report this in one line.
"""

from __future__ import annotations

import atexit
import errno
import filecmp
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import sqlalchemy as sa

from locigraph import __main__
from locigraph.kg.files import whole_folder
from locigraph.retrieval.errors import IndexUnavailableError
from locigraph.retrieval.index.milvus_client import GuardedClient
from locigraph.training.checkpoint import load_checkpoint
from tests.faults import workbench
from tests.faults.children import STOPPED, ChildError, as_process, in_child

#: Sequences of commands, of which the last is stopped. A "build" after "forget" skips the forgotten turns.
_STAGES = (
    ("build",),
    ("build", "refresh"),
    ("build", "refresh", "rebuild"),
    ("build", "refresh", "append"),
    ("build", "refresh", "add"),
    ("build", "append", "forget"),
    ("build", "append", "forget_space"),
    ("build", "refresh", "add", "forget_user"),
    ("build", "forget", "build"),
    ("build", "forget", "restore"),
    ("build", "append", "classify"),
    ("build", "append", "reflect"),
    ("build", "append", "resolve"),
    ("build", "append", "link"),
    ("build", "average"),
)
#: Two conversations that are built concurrently with language models.
_BY_MODELS = (("build_by_models",),)
_BY_ADD = (("build", "refresh", "add"),)
#: A turn is put before others, and what it was put before is forgotten.
_LATE = (("build", "refresh", "add_late"), ("build", "add_late", "forget"))
_AT_A_CALL = ("exit", "kill", "interrupt", "full disk", "power loss")
_ANYWHERE = ("killed", "interrupted", "signalled")
#: What tqdm writes to standard error after the name of a bar.
_BAR = re.compile(r"\[\d\d:\d\d")
# The error of a command that was already complete when it is run again.
_DONE = {
    "forget_user": "no space belongs to user 'ann'",
    "restore": "there is nothing to restore",
}
_READS = ("SELECT", "PRAGMA", "BEGIN", "ROLLBACK")
_FULL = sa.exc.OperationalError("", None, sqlite3.OperationalError("database or disk is full"))
_READING_CALLS = ("query", "search", "has", "list", "describe", "read", "get", "close", "connect")


class Counter:
    """Counts the writing calls of this process and stops the process at one of them."""

    def __init__(self, at: int, way: str) -> None:
        self.calls = 0
        self._at, self._way = at, way

    def __call__(self, no_space: Exception) -> None:
        self.calls += 1
        if self.calls != self._at:
            return
        if self._way in ("exit", "power loss"):
            os._exit(STOPPED)
        if self._way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._way == "full disk":
            raise no_space
        if threading.current_thread() is threading.main_thread():  # Python raises it only there
            raise KeyboardInterrupt

    def watch(self, notes: Path) -> None:
        """Start counting; every call counts twice, before and after. Synced files are listed in ``notes``."""
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
        fsync = os.fsync

        def noted(file: int) -> None:
            fsync(file)
            with notes.open("a") as lines:
                lines.write(f"{os.fstat(file).st_ino}\n")

        os.fsync = _around(noted, partial(counted, no_space))


def _around(call: Callable[..., Any], counted: Callable[[], None]) -> Callable[..., Any]:
    def around(*arguments: Any, **options: Any) -> Any:
        counted()
        result = call(*arguments, **options)
        counted()
        return result

    return around


#: Runs a command on a memory in a folder; its exit code with what it said.
Run = Callable[[Path, str], tuple[int, str]]


def counted(folder: Path, command: str, at: int, way: str, *, run: Run = workbench.run) -> int:
    """Run a command that is stopped at one of its writing calls; how many of these it has made."""
    counter = Counter(at, way)
    counter.watch(synced(folder))
    _run(folder, command, run)
    return counter.calls


def synced(place: Path) -> Path:
    return place.with_name("synced")


def _run(folder: Path, command: str, run: Run) -> None:
    code, said = run(folder, command)
    assert code in (0, 2), said
    assert "\n" not in said.strip() or code == 0, said


def stopped_after(seconds: float, way: str, folder: Path, command: str, *, run: Run = workbench.run) -> None:
    """Run a command until it has used some processor time."""
    # Processor time, since wall-clock time depends on the other load on the machine.
    signal.signal(signal.SIGPROF, signal.SIG_DFL if way == "killed" else signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        _run(folder, command, run)
    except KeyboardInterrupt:  # between the command and here
        pass
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _signalled_after(seconds: float, folder: Path, command: str) -> tuple[int, str]:
    """Run a command as a program that gets SIGINT; returns its exit status and standard error, without progress bars.

    The program may have ended before the signal.
    """
    workbench.commands(folder)  # sets the text encoder
    words = workbench.words(folder)[command]

    def program() -> None:
        signal.signal(signal.SIGPROF, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        atexit._clear()  # what this process is to remove when it ends is not the program's
        try:
            with patch.object(sys, "argv", ["locigraph", *words]):
                __main__.main()  # an interrupt ends the process in here
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    code, said = as_process(program, folder.with_name("said"))
    return code, without_bars(said)


def without_bars(said: str) -> str:
    """The lines that a program has written to standard error, without those of progress bars."""
    return "\n".join(line for line in re.split("[\r\n]+", said) if line and not _BAR.search(line))


@dataclass(frozen=True)
class Stage:
    """A command, with the memory before it, the number of its writing calls, its duration, and the state after it."""

    command: str
    start: Path
    calls: int
    seconds: float
    wanted: Mapping[str, Any]

    @property
    def is_typed(self) -> bool:
        """Whether the command is also available as words of a command line."""
        return self.command in workbench.words(self.start)


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries, each with a command, a way to stop it and a moment."""
    return _tries(seed, folder, _STAGES, _AT_A_CALL + _ANYWHERE)


def kills_of_models(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries of ``kill -9`` during a build with language models."""
    return _tries(seed, folder, _BY_MODELS, ("kill", "killed"))


def kills_of_adds(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries of ``kill -9`` at a writing call of ``Memory.add`` or of the ``recall`` after it."""
    return _tries(seed, folder, _BY_ADD, ("kill",))


def cuts_of_late_turns(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries of every way to stop an addition of a turn that is put before others, or a forgetting after it."""
    return _tries(seed, folder, _LATE, _AT_A_CALL + _ANYWHERE)


def _tries(
    seed: int, folder: Path, rows: Sequence[tuple[str, ...]], ways: Sequence[str]
) -> Iterator[Callable[[], None]]:
    stages: dict[tuple[str, ...], Stage] = {}
    randomness = random.Random(seed)
    while True:
        commands = randomness.choice(rows)
        if commands not in stages:
            stages[commands] = stage_of(folder, commands[:-1], commands[-1])
        stage = stages[commands]
        way = randomness.choice([way for way in ways if way != "signalled" or stage.is_typed])
        at = randomness.randrange(stage.calls) + 1 if way in _AT_A_CALL else randomness.uniform(0.01, stage.seconds)
        yield partial(_check, folder / "try", stage, way, at)


def stage_of(folder: Path, before: Sequence[str], command: str) -> Stage:
    """Run commands, then measure another one that nothing stops."""
    start, done = _memory(folder, before), folder / "done"

    def completed() -> tuple[int, float, Mapping[str, Any]]:
        started = time.process_time()
        calls = counted(done, command, 0, "")
        seconds = time.process_time() - started
        workbench.run_all(done, "verify")
        return calls, seconds, workbench.state(done)

    shutil.copytree(start, done)
    calls, seconds, wanted = in_child(completed)
    shutil.rmtree(done)
    return Stage(command, start, calls, seconds, wanted)


def _memory(folder: Path, commands: Sequence[str]) -> Path:
    """A memory after some commands; each prefix of the sequence is run only once."""
    place = folder / "-".join(["after", *commands])
    if not place.exists():
        if commands:
            shutil.copytree(_memory(folder, commands[:-1]), place)
            in_child(lambda: workbench.run_all(place, commands[-1]))
        else:
            in_child(lambda: workbench.prepare(place))
    return place


def _check(place: Path, stage: Stage, way: str, at: float) -> None:
    what = f"{stage.command} {stage.start.name}, stopped by {way} at {at}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(stage.start, place)
    try:
        if way in _AT_A_CALL:
            synced(place).unlink(missing_ok=True)
            in_child(lambda: counted(place, stage.command, int(at), way))
        elif way == "signalled":
            code, said = _signalled_after(at, place, stage.command)
            one_line = (
                f"locigraph: interrupted; run the same command again and {workbench.words(place)[stage.command][0]}"
            )
            assert (code, said) in ((0, ""), (2, f"{one_line} will continue")), f"{what}: {code} {said}"
        else:
            in_child(lambda: stopped_after(at, way, place, stage.command))
        has_lost_files = way == "power loss" and _lose(place, stage.start)
        if stage.command in ("add", "add_late") and not has_lost_files:
            in_child(lambda: _verified(place))
        if whole_folder(place / "mean" / "checkpoint").exists():
            load_checkpoint(place / "mean" / "checkpoint")  # it is complete, or does not exist
        in_child(lambda: again(place, stage, is_index_damaged=has_lost_files))
    except ChildError as error:
        raise AssertionError(f"{what}: {error}") from error


def _lose(place: Path, start: Path) -> bool:
    """Empty the files written since ``start`` that may not be on the disk; returns whether any is of the index.

    For the index these are all written files, since the fsyncs of Milvus Lite cannot be observed here.
    """
    lost = []
    empty_lost_files(place, place / "mean")
    for path in (place / "graph.index.db").rglob("*"):
        before = start / path.relative_to(place)
        if path.is_file() and not (before.is_file() and filecmp.cmp(path, before, shallow=False)):
            lost.append(path)
            path.write_bytes(b"")
    return bool(lost)


def empty_lost_files(place: Path, below: Path, *, but: re.Pattern[str] | None = None) -> None:
    """Empty the files below a folder that were not waited for, but for those whose path matches a pattern."""
    notes = synced(place)
    waited_for = set(notes.read_text().split()) if notes.exists() else set()
    for path in below.rglob("*"):
        kept = but is not None and but.fullmatch(str(path.relative_to(below)))
        if path.is_file() and not kept and str(path.stat().st_ino) not in waited_for:
            path.write_bytes(b"")


def _verified(place: Path) -> None:
    """Check that an interrupted ``add`` leaves a complete memory with nothing but due work, before it is repeated."""
    copy = place.with_name("verified")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(place, copy)
    workbench.run_all(copy, "verify")


def again(place: Path, stage: Stage, *, is_index_damaged: bool) -> None:
    """Run a stopped command again, after rebuilding a damaged index; it must end as if it had not been stopped."""
    if is_index_damaged:
        code, said = workbench.run(place, "rebuild")  # what every error of the index tells the user to do
        assert code == 0, said
    code, said = workbench.run(place, stage.command)
    if code == 2 and _DONE.get(stage.command, "\n") in said:
        code = 0
    assert code == 0, f"again: {said}"
    workbench.run_all(place, "verify")
    found = workbench.state(place)
    for name, value in stage.wanted.items():
        assert found.get(name) == value, f"{name} differs"
    assert found.keys() == stage.wanted.keys(), f"{found.keys() ^ stage.wanted.keys()}"
    assert not [path for path in place.rglob("*") if path.name.endswith((".part", ".old"))]
