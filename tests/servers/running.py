"""The servers that ``make servers`` has started."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from tests.servers.milvus import MilvusServer
from tests.servers.postgresql import PostgresServer
from tests.servers.processes import listens

#: Outside the checkout, since PostgreSQL may run as another user, who cannot enter every checkout.
FOLDER = Path(f"/tmp/locigraph-servers-{os.getuid()}")
STATE = FOLDER / "running.json"
#: The empty database for trials.
DATABASE = "locigraph"


@dataclass(frozen=True)
class Running:
    """Both servers."""

    postgresql: PostgresServer
    milvus: MilvusServer


def started() -> Running | None:
    """The servers that were started last, whether they still run or not."""
    try:
        state = json.loads(STATE.read_text())
    except OSError:
        return None
    return Running(PostgresServer(**state["postgresql"]), MilvusServer(**state["milvus"]))


def running() -> Running | None:
    """The servers, where both run."""
    found = started()
    # Not the process IDs, which may be other processes' by now.
    is_complete = found is not None and listens(found.postgresql.port) and listens(found.milvus.port)
    return found if is_complete else None


def require_running() -> Running:
    """The servers; skips the test, saying why, where they do not run."""
    import pytest

    found = running()
    if found is None:
        pytest.skip("no servers: make servers starts PostgreSQL and Milvus for these tests")
    return found
