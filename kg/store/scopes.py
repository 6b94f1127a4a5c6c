"""The owners of spaces: the user and agent to whom each belongs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import Connection, select, update

from locigraph.kg.errors import StoreError, shortened
from locigraph.kg.store.tables import spaces
from locigraph.kg.types import NAME_RULE, Scope, SpaceId, is_name


def lacking(connection: Connection, scopes: Sequence[tuple[SpaceId, Scope]]) -> dict[SpaceId, dict[str, str]]:
    """What spaces lack of the owners that they are to have, by space and field; a space need not be stored.

    Raises:
        StoreError: If a name is invalid, or a space belongs to another user or agent.
    """
    owners: dict[SpaceId, dict[str, str | None]] = {}  # as they will be, since one call may name a space repeatedly
    found: dict[SpaceId, dict[str, str]] = {}
    for space, scope in dict.fromkeys(scopes):
        given = {field: name for field, name in asdict(scope).items() if name is not None}
        if given and space not in owners:
            stored = connection.execute(select(spaces).where(spaces.c.space == space)).mappings().first()
            owners[space] = dict(stored or {})
        for field, name in given.items():
            if not is_name(name):
                raise StoreError(
                    f"space {space!r}: {field} is {shortened(name)}; expected {NAME_RULE}; nothing was written"
                )
            owner = owners[space].get(field)
            if owner not in (None, name):
                raise StoreError(
                    f"space {space!r} belongs to {field} {owner!r}, not {name!r}; nothing was written; add to "
                    "another space"
                )
            if owner is None:
                owners[space][field] = found.setdefault(space, {})[field] = name
    return found


def put(connection: Connection, owners: Mapping[SpaceId, Mapping[str, str]]) -> None:
    """Set owners of stored spaces, by space and field; spaces that are not stored are ignored.

    Args:
        connection: A connection within a transaction.
        owners: What ``lacking`` found.
    """
    for space, names in owners.items():
        connection.execute(update(spaces).where(spaces.c.space == space).values(names))
