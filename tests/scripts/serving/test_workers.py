from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

_PATIENCE_S = 60


def started(*options: str) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-m", "tests.scripts.serving.echo_workers", *options]
    supervisor = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert supervisor.stdout is not None
    return supervisor, int(supervisor.stdout.readline())


@pytest.fixture
def served() -> Iterator[tuple[subprocess.Popen[str], int]]:
    supervisor, port = started("2")
    yield supervisor, port
    supervisor.kill()
    supervisor.communicate()


def answered_by(port: int, count: int) -> set[int]:
    """The processes that answer, once there are so many; each connection reaches the one that takes it first."""
    found, until = set[int](), time.monotonic() + _PATIENCE_S
    while len(found) < count and time.monotonic() < until:
        with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S) as connection:
            if said := connection.recv(100):  # empty if the one that took it was killed before it could answer
                found.add(int(said))
    return found


def test_workers_share_a_port_and_one_that_dies_is_replaced(served: tuple[subprocess.Popen[str], int]) -> None:
    supervisor, port = served
    first = answered_by(port, 2)
    assert len(first) == 2
    assert supervisor.pid not in first
    killed = min(first)
    os.kill(killed, signal.SIGKILL)
    assert answered_by(port, 2) - first


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_workers(how: signal.Signals, served: tuple[subprocess.Popen[str], int]) -> None:
    supervisor, port = served
    workers = answered_by(port, 2)
    supervisor.send_signal(how)
    supervisor.communicate(timeout=_PATIENCE_S)
    assert supervisor.returncode == 0
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def test_workers_end_with_the_process_that_started_them_also_if_it_is_killed(
    served: tuple[subprocess.Popen[str], int],
) -> None:
    supervisor, port = served
    answered_by(port, 2)
    supervisor.kill()
    supervisor.communicate(timeout=_PATIENCE_S)  # until no worker holds its standard output any more
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)


def test_workers_that_cannot_start_end_the_server_with_their_exit_code() -> None:
    supervisor, _ = started("2", "refuse")
    supervisor.communicate(timeout=_PATIENCE_S)
    assert supervisor.returncode == 2


def test_a_worker_that_cannot_start_while_others_serve_stops_none_of_them() -> None:
    supervisor, port = started("2", "once")
    try:
        first = answered_by(port, 2)
        os.kill(min(first), signal.SIGKILL)
        assert answered_by(port, 2) - first  # the first that took its place could not start
    finally:
        supervisor.kill()
        supervisor.communicate()


def test_workers_that_all_end_at_once_are_not_replaced_without_end() -> None:
    supervisor, _ = started("2", "fail")
    supervisor.communicate(timeout=_PATIENCE_S)
    assert supervisor.returncode == 1
