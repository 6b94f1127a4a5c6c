"""Tasks for workers; in a module of their own, so that a worker imports nothing heavy to do them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from locigraph.consolidation.errors import ConsolidationError


def failing(task: int) -> int:
    raise ConsolidationError(f"task {task} cannot be done")


def prepared_failing() -> Callable[[int], int]:
    return failing


def dying_once(marker: Path, task: int) -> tuple[int, int]:
    if task == 2 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid(), 2 * task


def prepared_dying(marker: Path) -> Callable[[int], tuple[int, int]]:
    return partial(dying_once, marker)


def prepared_never() -> Callable[[int], int]:
    raise ConsolidationError("nothing can be prepared")
