"""Entry point of ``python -m locigraph COMMAND`` and of the ``locigraph`` command."""

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn


def main() -> None:
    """Run a command. An interrupt prints one line and exits with code 2, even while modules are being imported.

    What commands write is what people said, so only its owner may read it.
    """
    os.umask(0o077)
    try:
        from locigraph.scripts import cli
    except KeyboardInterrupt:
        print("locigraph: interrupted before the command started", file=sys.stderr)
        raise SystemExit(2) from None
    try:
        cli.main()
    except SystemExit as stop:
        error = stop.__context__
        while error is not None:
            if isinstance(error, KeyboardInterrupt):
                _leave(2)
            error = error.__context__
        raise


def _leave(code: int) -> NoReturn:
    """End the process without freeing what the interrupted calls held.

    gRPC waits for the end of a call when it frees what belongs to it. If an interrupt came while a call was being set
    up, that end never comes, and the process would hang instead of exiting.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or its reader is gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
