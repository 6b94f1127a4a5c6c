"""``python -m tests.scripts.serving.echo_workers COUNT [refuse|fail]``: workers that tell clients their process ID."""

from __future__ import annotations

import os
import signal
import socket
import sys

from locigraph.serving.workers import run_workers


def echo(listener: socket.socket) -> None:
    """Answer each connection with the process ID, until SIGTERM comes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(str(os.getpid()).encode())


def refuse(listener: socket.socket) -> None:
    """End as a worker does that cannot open the memory."""
    raise SystemExit(2)


def fail(listener: socket.socket) -> None:
    """End as a worker does that lacks memory."""
    raise SystemExit(1)


_WORK = {"refuse": refuse, "fail": fail}


def main() -> int:
    """Listen, print the port, and run the workers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        return run_workers(int(sys.argv[1]), _WORK.get(sys.argv[-1], echo), listener)


if __name__ == "__main__":
    sys.exit(main())
