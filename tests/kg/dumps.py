"""Everything that a database holds, for tests that compare states."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

#: What differs between two runs that mean the same: numbers of the queues of the indexes.
QUEUE = ("outbox", "changed_spaces", "sqlite_sequence")
_COLUMNS = {"spaces": "space"}


def dump(path: Path, *, without: Sequence[str] = ()) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables by table name, sorted; of spaces without their revisions, which begin anywhere."""
    with sqlite3.connect(path) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {
            name: sorted(connection.execute(f'SELECT {_COLUMNS.get(name, "*")} FROM "{name}"').fetchall(), key=repr)
            for name in sorted(names)
            if name not in without
        }
    connection.close()
    return found


def shared_labels(path: Path) -> dict[str, str]:
    """Descriptions of the relation labels in the table that all spaces share, by name."""
    with sqlite3.connect(path) as connection:
        labels = dict(connection.execute("SELECT name, description FROM relation_labels").fetchall())
    connection.close()
    return labels
