"""``python -m tests.servers start | stop | options``: both servers, in a folder of their own."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict

from tests.servers import milvus, postgresql
from tests.servers.running import DATABASE, FOLDER, STATE, Running, running


def main(arguments: list[str]) -> int:
    """Do what the argument says; returns the exit code."""
    if arguments not in (["start"], ["stop"], ["options"]):
        print(__doc__, file=sys.stderr)
        return 2
    found = running()
    if arguments == ["start"] and found is None:
        found = _start()
    if arguments == ["stop"]:
        if found is not None:
            found.postgresql.stop()
            found.milvus.stop()
        shutil.rmtree(FOLDER, ignore_errors=True)
        return 0
    if found is None:
        print("the servers are not running; make servers starts them", file=sys.stderr)
        return 1
    print(f"--store {found.postgresql.url(DATABASE)} --index.uri {found.milvus.uri}")
    return 0


def _start() -> Running:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(mode=0o755)
    started = Running(postgresql.start(FOLDER / "postgresql"), milvus.start(FOLDER / "milvus"))
    started.postgresql.create(DATABASE)
    STATE.write_text(json.dumps(asdict(started)))
    return started


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
