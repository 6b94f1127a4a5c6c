"""Places of stores on each kind of database, for tests that must pass on all of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers.running import require_running

#: Gives the location of a store by a name: the path of an SQLite file, or the URL of an empty PostgreSQL database. The
#: same name gives the same location.
Place = Callable[..., str]
#: The kinds of databases, as parameters of the fixture ``store_at``.
KINDS = ("sqlite", pytest.param("postgresql", marks=pytest.mark.servers))


def places(kind: str, folder: Path) -> Iterator[Place]:
    """The places of one test; databases on a server are dropped after it."""
    if kind == "sqlite":
        yield lambda name="graph": str(folder / f"{name}.sqlite")
        return
    server, made = require_running().postgresql, dict[str, str]()
    with ExitStack() as cleaning:

        def place(name: str = "graph") -> str:
            if name not in made:
                database = f"test_{secrets.token_hex(6)}"
                made[name] = server.create(database)
                cleaning.callback(server.drop, database)
            return made[name]

        yield place
