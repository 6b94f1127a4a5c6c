"""Processes of the servers: free ports, waiting until one answers, ending one."""

from __future__ import annotations

import os
import pwd
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Longest wait for a server to start or to end, in seconds. A busy machine takes half a minute.
PATIENCE_S = 120.0
_STARTED: dict[int, subprocess.Popen[bytes]] = {}  # by process ID
_DRAWN: deque[int] = deque(maxlen=200)  # ports


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        pid: Its process.
        port: The port of 127.0.0.1 on which it listens.
        folder: Its files.
    """

    pid: int
    port: int
    folder: str


def free_port() -> int:
    """A port of the loopback interface that nothing listens on, and that none of the last calls has returned.

    It is below those that the system gives to clients, one of which could else take it while a server restarts. Each
    process draws from a part of the range of its own, since a port stays free until its server has started.
    """
    first = 20_000 + os.getpid() % 10 * 1_000
    while True:
        port = random.SystemRandom().randrange(first, first + 1_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _DRAWN:
                _DRAWN.append(port)
                return port


def wait_until(is_so: Callable[[], bool], what: str, *, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until something is so; raises TimeoutError, or RuntimeError where the process ends before."""
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"{what}: the process ended with exit code {process.returncode}")
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {PATIENCE_S:.0f} seconds")
        time.sleep(0.1)


def listens(port: int) -> bool:
    """Whether something listens on a port of the loopback interface."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def started(command: Sequence[str], log: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start a server that outlives this process; its output goes to a log."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, **options
        )
    _STARTED[process.pid] = process
    return process


def is_running(pid: int) -> bool:
    """Whether a process exists."""
    if pid in _STARTED:  # else it would stay a zombie
        return _STARTED[pid].poll() is None
    return Path(f"/proc/{pid}").exists()


def end(pid: int, how: signal.Signals = signal.SIGTERM, *, grace_s: float = 3.0) -> None:
    """End a process, with ``SIGKILL`` after a time of grace, and wait until it is gone."""
    for each in (how, signal.SIGKILL):
        try:
            os.kill(pid, each)
        except ProcessLookupError:
            return
        until = time.monotonic() + grace_s
        while is_running(pid) and time.monotonic() < until:
            time.sleep(0.02)
        if not is_running(pid):
            return


def unprivileged() -> str | None:
    """A user without privileges, where this process is root's, as which PostgreSQL refuses to run; else None."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise RuntimeError("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")


def open_folder() -> Path:
    """A new folder that another user can enter, unlike those of pytest and tempfile; the caller removes it."""
    folder = Path(tempfile.mkdtemp(prefix="locigraph-", dir="/tmp"))
    folder.chmod(0o755)
    return folder


def ran(command: Sequence[str], *, user: str | None, environment: Mapping[str, str] | None = None) -> None:
    """Run a command to its end as a user; raises RuntimeError with its output where it fails."""
    done = subprocess.run(
        [*command], user=user, env=environment, capture_output=True, text=True, check=False, cwd="/", timeout=PATIENCE_S
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with exit code {done.returncode}: {done.stdout}{done.stderr}")
