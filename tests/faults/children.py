"""Runs actions in child processes, which may be killed at any moment."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

#: Exit status of a child that was stopped on purpose.
STOPPED = 77
_PATIENCE_S = 120  # long, since the machine may be busy; nothing here should take more than a second
_ENDS = (signal.SIGKILL, signal.SIGPROF)  # SIGPROF kills a child after a given processor time


class ChildError(Exception):
    """A child process ended in an unexpected way."""


def preload(action: Callable[[], Any]) -> None:
    """Import the modules that an action imports, so that children need not; the action itself runs in a child only."""

    def names() -> list[str]:
        action()
        return list(sys.modules)

    for name in in_child(names):
        with contextlib.suppress(ImportError, AttributeError):  # modules that other modules create at run time
            importlib.import_module(name)
    torch.set_num_threads(1)  # threads do not survive a fork
    gc.freeze()


def as_process(action: Callable[[], Any], file: Path) -> tuple[int, str]:
    """Run an action as a program of its own; returns its exit status, and its standard error by way of a file."""
    child = os.fork()
    if child == 0:
        code = 0
        with file.open("wb") as error, open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(error.fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            try:
                action()
            except SystemExit as stop:
                code = int(stop.code or 0)
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    deadline = time.monotonic() + _PATIENCE_S
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise ChildError(f"did not end within {_PATIENCE_S} s, having said: {file.read_text()}")
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(ended[1]), file.read_text()


def in_child(action: Callable[[], Any]) -> Any:
    """The result of an action in a forked child; ``STOPPED`` if the child was stopped on purpose before it finished.

    This process itself must never have opened an index, since gRPC's threads do not survive a fork.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        result: tuple[bool, Any]
        try:
            result = True, action()
        except BaseException:
            result = False, traceback.format_exc()
        with os.fdopen(writing, "wb") as file:
            pickle.dump(result, file)
        os._exit(0)
    os.close(writing)
    said, deadline = b"", time.monotonic() + _PATIENCE_S
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
        part = os.read(reading, 2**16) if ready else b""
        said += part
        if not part:
            break
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    if not said and time.monotonic() >= deadline:
        raise ChildError(f"did not end within {_PATIENCE_S} s")
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in _ENDS:
        return STOPPED
    if os.waitstatus_to_exitcode(status) == STOPPED:
        return STOPPED
    if not said:
        raise ChildError(f"ended with status {status}")
    is_done, value = pickle.loads(said)
    if not is_done:
        raise ChildError(str(value)[-3_000:])
    return value
