"""Runs tasks in this process, or in several processes on this machine or on a Ray cluster.

A task may run twice, where a worker is lost after its work and before its answer, so running it again must change
nothing. Nothing is kept between runs: a job that is started again asks the store what is still to be done.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

from locigraph.assembly.settings import IndexSettings
from locigraph.kg.errors import LocigraphError, how_to_install
from locigraph.kg.store.engine import file_of, shown_url

_Item = TypeVar("_Item")
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
#: Does a task; made once in each worker by a function that opens what all tasks need.
Work = Callable[[_Task], _Result]
# A worker that was lost so often is not started again: its task may be what kills it.
_RESTARTS = 3
# Tasks for each worker: enough that none waits long for the last one, and that a lost worker loses little.
_TASKS_EACH = 8


@dataclass(frozen=True)
class Workers:
    """Who runs the tasks of a job.

    Attributes:
        count: Number of worker processes.
        address: Address of a Ray cluster; None for this machine.
    """

    count: int = 1
    address: str | None = None

    @property
    def is_this_process(self) -> bool:
        """Whether there are no workers, and this process does the work."""
        return self.count == 1 and self.address is None


def workers_of(workers: int, address: str | None, store: str, index: IndexSettings) -> Workers:
    """The workers that a command line asks for; raises LocigraphError if they cannot share the store and the index."""
    require_servers(workers if address is None else max(2, workers), store, index)
    return Workers(workers, address)


def require_servers(workers: int, store: str, index: IndexSettings) -> None:
    """Raise LocigraphError if so many processes cannot share the store and the index."""
    if workers < 1:
        raise LocigraphError(f"workers is {workers}; expected 1 or more")
    if workers > 1 and (file_of(store) is not None or "://" not in (index.uri or "")):
        raise LocigraphError(
            f"{workers} workers cannot share store {shown_url(store)!r} and index {index.uri!r}: one process at a time "
            "can have an SQLite file or an embedded index open; name servers with --store and --index.uri, or use one "
            "worker"
        )


def portions(sizes: Mapping[_Item, int], workers: int) -> list[list[_Item]]:
    """Divide items into tasks of about the same work, the largest first; an item is never divided.

    Args:
        sizes: The work of each item, such as the number of turns of a space.
        workers: Number of workers.
    """
    count = max(1, min(len(sizes), workers * _TASKS_EACH))
    tasks: list[tuple[int, int, list[_Item]]] = [(0, place, []) for place in range(count)]
    for item in sorted(sizes, key=sizes.__getitem__, reverse=True):
        work, place, items = heapq.heappop(tasks)  # the task with the least work so far
        items.append(item)
        heapq.heappush(tasks, (work + max(1, sizes[item]), place, items))
    return [items for _, _, items in sorted(tasks, reverse=True) if items]


def run(
    prepare: Callable[[], Work[_Task, _Result]], tasks: Sequence[_Task], workers: Workers
) -> Iterator[tuple[_Task, _Result]]:
    """Run tasks, and yield each with its result as soon as it is done, in any order.

    Args:
        prepare: Makes the function that does a task. With several workers it is called in each, so it, the tasks and
            the results must be picklable.
        tasks: The tasks, those with the most work first.
        workers: Who runs them.

    Raises:
        LocigraphError: If a task raises it, Ray is not installed, or workers are lost again and again.
    """
    if workers.is_this_process:
        work = prepare()
        for task in tasks:
            yield task, work(task)
        return
    with _ray(workers):
        yield from _distributed(prepare, tasks, workers.count)


@contextmanager
def _ray(workers: Workers) -> Iterator[None]:
    if find_spec("ray") is None:
        raise LocigraphError(f"several workers need Ray; {how_to_install('ray')}")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    import ray

    address = workers.address
    local: dict[str, Any] = {"num_cpus": workers.count, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        # "local" keeps it from joining a cluster that runs on this machine or that the environment names.
        ray.init(address or "local", log_to_driver=False, configure_logging=False, **({} if address else local))
    except Exception as error:  # it also raises Exception itself, where a machine is too busy
        raise LocigraphError(f"Ray cannot be used at {address or 'this machine'}: {error}; check --ray") from error
    try:
        yield
    finally:
        ray.shutdown()


def _distributed(
    prepare: Callable[[], Work[_Task, _Result]], tasks: Sequence[_Task], workers: int
) -> Iterator[tuple[_Task, _Result]]:
    import ray
    from ray.exceptions import RayActorError, RayTaskError

    # A worker that is lost is started again, and its task with it.
    make = ray.remote(max_restarts=_RESTARTS, max_task_retries=_RESTARTS)(_Worker)
    idle: list[Any] = [make.remote(prepare) for _ in range(min(workers, len(tasks)))]
    waiting, running = list(reversed(tasks)), dict[Any, tuple[Any, _Task]]()
    while waiting or running:
        while waiting and idle:
            worker, task = idle.pop(), waiting.pop()
            running[worker.work.remote(task)] = worker, task
        (done,), _ = ray.wait([*running], num_returns=1)
        worker, task = running.pop(done)
        try:
            result = ray.get(done)
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, LocigraphError) else error from None
        except RayActorError as error:
            raise LocigraphError(
                f"a worker was lost more than {_RESTARTS} times; what is done is kept, so run the command again, with "
                "fewer workers if memory is short"
            ) from error
        idle.append(worker)
        yield task, result


class _Worker:
    """Runs in a process of Ray."""

    def __init__(self, prepare: Callable[[], Work[Any, Any]]) -> None:
        self._prepare = prepare
        self._work: Work[Any, Any] | None = None

    def work(self, task: Any) -> Any:
        """Do a task."""
        if self._work is None:  # not in the constructor, whose errors Ray reports as a lost worker
            self._work = self._prepare()
        return self._work(task)
