"""Several processes that serve one memory behind one port, where store and index are on servers."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from prometheus_client.multiprocess import mark_process_dead

#: Environment variable by which the metrics of all workers are added up; its folder must exist before they start.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
#: Number of threads of each worker in which requests are answered (``request_queue``); one more erases what expires.
LANES = 4
log = logging.getLogger("locigraph.serve")
# Exit code of a worker that its own error message has ended, such as a store that cannot be opened.
_REFUSED = 2
# Workers that end so soon, one after another, would be replaced without end.
_SOON_S, _MOST_AT_ONCE, _PAUSE_S = 10.0, 5, 0.2


def share_processors(workers: int) -> None:
    """Let the text encoder use as many threads as there are processors for it, of which all lanes may be encoding.

    It is to be called before PyTorch is imported, which reads the number then. More threads than processors would wait
    for one another. What the user has set is kept.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // (LANES * workers))))


def run_workers(count: int, work: Callable[[socket.socket], None], listener: socket.socket) -> int:
    """Run workers until a signal ends them; one that dies is replaced, and the others go on.

    Args:
        count: Number of workers.
        work: Serves a listening socket until a signal comes; called in each worker, so it must be picklable.
        listener: The socket, on which the operating system gives each connection to one of the workers.

    Returns:
        The exit code: 0 after a signal; that of a worker that could not start before any had served, or 1 if several in
        a row ended at once.
    """
    context = multiprocessing.get_context("spawn")
    is_stopping = False
    workers: list[BaseProcess] = []
    began: dict[BaseProcess, float] = {}

    def stop(*_: object) -> None:
        nonlocal is_stopping
        is_stopping = True
        for worker in workers:
            worker.terminate()

    def start() -> None:
        worker = context.Process(target=_work, args=(work, listener))
        worker.start()
        began[worker] = time.monotonic()
        workers.append(worker)
        if is_stopping:  # the signal came before the worker was in the list
            worker.terminate()

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    code = at_once = 0
    has_served = False  # a worker has, for some time
    with tempfile.TemporaryDirectory(prefix="locigraph-metrics-") as folder:
        os.environ[METRICS_FOLDER] = folder
        try:
            for _ in range(count):
                start()
            while workers:
                wait([worker.sentinel for worker in workers])
                for worker in [worker for worker in workers if worker.exitcode is not None]:
                    workers.remove(worker)
                    mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]  # its package has types, but not here
                    if is_stopping:
                        continue
                    is_soon = time.monotonic() - began.pop(worker) < _SOON_S
                    is_refused = worker.exitcode == _REFUSED
                    if is_refused and not has_served:  # another would say the same
                        code = _REFUSED
                        stop()
                        continue
                    has_served = has_served or not is_soon
                    if not is_refused:  # else a server is away, and those that serve go on
                        at_once = at_once + 1 if is_soon else 0
                    if at_once == _MOST_AT_ONCE:
                        log.error(
                            "worker %s ended with exit code %s, the %sth at once", worker.pid, worker.exitcode, at_once
                        )
                        code = 1
                        stop()
                        continue
                    log.error("worker %s ended with exit code %s and is replaced", worker.pid, worker.exitcode)
                    time.sleep((_MOST_AT_ONCE if is_refused else at_once) * _PAUSE_S)
                    start()
        finally:
            del os.environ[METRICS_FOLDER]
            for each, handler in before.items():
                signal.signal(each, handler)
    return code


def _work(work: Callable[[socket.socket], None], listener: socket.socket) -> None:
    """Run a worker, which ends when the process that started it is gone, even if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, name="parent", daemon=True).start()
    work(listener)
