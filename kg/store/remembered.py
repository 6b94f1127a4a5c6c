"""Values that the store remembers by name, such as which extractor built a space."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, delete, insert, select

from locigraph.kg.store import tables

#: Name of the value that tells a store from every other one.
IDENTITY = "identity"


def get(connection: Connection, name: str) -> str | None:
    """A remembered value; None when never set."""
    value: str | None = connection.execute(
        select(tables.settings.c.value).where(tables.settings.c.name == name)
    ).scalar()
    return value


def put(connection: Connection, name: str, value: str) -> None:
    """Remember a value under a name."""
    connection.execute(delete(tables.settings).where(tables.settings.c.name == name))
    connection.execute(insert(tables.settings).values(name=name, value=value))


def drawn(connection: Connection, name: str) -> str:
    """A remembered random value of 64 hexadecimal digits; drawn when it is first asked for."""
    value = get(connection, name)
    if value is None:
        value = secrets.token_hex(32)
        put(connection, name, value)
    return value
