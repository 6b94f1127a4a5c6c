"""``python -m tests.servers start | stop | options``: both servers, in a folder of their own."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict

from tests.servers import milvus, postgresql
from tests.servers.processes import listens
from tests.servers.running import DATABASE, FOLDER, STATE, Running, running, started


def main(arguments: list[str]) -> int:
    """Do what the argument says; returns the exit code."""
    if arguments not in (["start"], ["stop"], ["options"]):
        print(__doc__, file=sys.stderr)
        return 2
    if arguments == ["stop"]:
        _stop()
        return 0
    found = running()
    if arguments == ["start"] and found is None:
        found = _start()
    if found is None:
        print("the servers are not running; make servers starts them", file=sys.stderr)
        return 1
    print(f"--store {found.postgresql.url(DATABASE)} --index.uri {found.milvus.uri}")
    return 0


def _start() -> Running:
    _stop()  # what is left where one of them has died
    FOLDER.mkdir(mode=0o755)
    database = postgresql.start(FOLDER / "postgresql")
    try:
        both = Running(database, milvus.start(FOLDER / "milvus"))
    except BaseException:
        database.stop()
        raise
    both.postgresql.create(DATABASE)
    STATE.write_text(json.dumps(asdict(both)))
    return both


def _stop() -> None:
    found = started()
    for server in () if found is None else (found.postgresql, found.milvus):
        if listens(server.port):
            server.stop()
    shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
