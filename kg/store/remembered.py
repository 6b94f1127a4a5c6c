"""Settings that the store keeps by name, such as the extractor that built a space."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, delete, select

from locigraph.kg.store import tables
from locigraph.kg.store.statements import chunks, dialect_insert, insert_or_keep
from locigraph.kg.types import SpaceId

#: Name of the setting that identifies a store uniquely.
IDENTITY = "identity"
#: Name of the setting that holds a hash of the export that a store was made of.
IMPORTED = "imported"


def of_space(what: str, space: SpaceId) -> str:
    """Name of a setting that is erased with its space."""
    return f"{what}/{space}"


def drop_of_spaces(connection: Connection, spaces: Collection[SpaceId]) -> None:
    """Erase all settings of some spaces."""
    gone = {*spaces}
    names = connection.scalars(select(tables.settings.c.name)).all()
    for some in chunks([name for name in names if name.partition("/")[2] in gone]):
        connection.execute(delete(tables.settings).where(tables.settings.c.name.in_(some)))


def get(connection: Connection, name: str) -> str | None:
    """The value of a setting; None if it was never set."""
    value: str | None = connection.scalar(select(tables.settings.c.value).where(tables.settings.c.name == name))
    return value


def put(connection: Connection, name: str, value: str) -> None:
    """Set the value of a setting."""
    statement = dialect_insert(connection, tables.settings).values(name=name, value=value)
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_={"value": value}))


def put_first(connection: Connection, name: str, value: str) -> str:
    """Set the value of a setting unless it has one already; returns the value that it has then."""
    held = get(connection, name)
    if held is None:  # or another process sets it at this moment
        connection.execute(insert_or_keep(connection, tables.settings).values(name=name, value=value))
        held = get(connection, name)
    assert held is not None
    return held
