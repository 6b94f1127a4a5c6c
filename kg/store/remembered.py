"""Settings that the store keeps by name, such as the extractor that built a space."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, delete, insert, select

from locigraph.kg.store import tables

#: Name of the setting that identifies a store uniquely.
IDENTITY = "identity"


def get(connection: Connection, name: str) -> str | None:
    """The value of a setting; None if it was never set."""
    value: str | None = connection.execute(
        select(tables.settings.c.value).where(tables.settings.c.name == name)
    ).scalar()
    return value


def put(connection: Connection, name: str, value: str) -> None:
    """Set the value of a setting."""
    connection.execute(delete(tables.settings).where(tables.settings.c.name == name))
    connection.execute(insert(tables.settings).values(name=name, value=value))


def random_value(connection: Connection, name: str) -> str:
    """A random value of 64 hexadecimal digits, generated and stored on first use."""
    value = get(connection, name)
    if value is None:
        value = secrets.token_hex(32)
        put(connection, name, value)
    return value
