"""``python -m tests.scripts.serving.echo_workers COUNT [refuse|fail|once]``: workers that tell their process ID."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile

from locigraph.serving import workers


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


def refuse_once(listener: socket.socket) -> None:
    """Serve in the first two processes, refuse in the third, as while a database is away, and serve again."""
    with open(os.environ["ECHO_STARTS"], "a+") as starts:
        starts.write("x")
        starts.flush()
        starts.seek(0)
        number = len(starts.read())
    if number == 3:
        raise SystemExit(2)
    echo(listener)


_WORK = {"refuse": refuse, "fail": fail, "once": refuse_once}


def main() -> int:
    """Listen, print the port, and run the workers."""
    if sys.argv[-1] == "once":  # no worker has to live for long to count as one that has served
        workers._SOON_S = 0.0
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        tempfile.NamedTemporaryFile() as starts,
    ):
        os.environ["ECHO_STARTS"] = starts.name
        print(listener.getsockname()[1], flush=True)
        return workers.run_workers(int(sys.argv[1]), _WORK.get(sys.argv[-1], echo), listener)


if __name__ == "__main__":
    sys.exit(main())
