"""Everything that a database holds, for tests that compare states."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from locigraph.kg.store import tables

#: What differs between two runs that mean the same: numbers of the queues of the indexes.
QUEUE = ("outbox", "changed_spaces", "sqlite_sequence")
_COLUMNS = {
    "spaces": "space",
    "nodes": ", ".join(column.name for column in tables.nodes.c if column is not tables.nodes.c.changed_in),
}


def dump(place: str | Path, *, without: Sequence[str] = ()) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables by table name, sorted; without revisions, which begin anywhere.

    Args:
        place: Path of an SQLite file, or URL of a database.
        without: Tables that are left out.
    """
    engine = _engine(place)
    with engine.connect() as connection:
        names = sa.inspect(connection).get_table_names()
        if engine.dialect.name == "sqlite":  # with the table of the last keys
            names = list(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars())
        found = {
            name: sorted(
                (tuple(row) for row in connection.exec_driver_sql(f'SELECT {_COLUMNS.get(name, "*")} FROM "{name}"')),
                key=repr,
            )
            for name in sorted(names)
            if name not in without
        }
    engine.dispose()
    return found


def shared_labels(place: str | Path) -> dict[str, str]:
    """Descriptions of the relation labels in the table that all spaces share, by name."""
    engine = _engine(place)
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT name, description FROM relation_labels")
        labels = {row.name: row.description for row in rows}
    engine.dispose()
    return labels


def _engine(place: str | Path) -> sa.Engine:
    return sa.create_engine(str(place) if "://" in str(place) else f"sqlite:///{place}")
