"""The owners of spaces: the user and agent to whom each belongs."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict

from sqlalchemy import Connection, select, update

from locigraph.kg.errors import StoreError, shortened
from locigraph.kg.store.tables import spaces
from locigraph.kg.types import NAME_RULE, Scope, SpaceId, is_name


def put(connection: Connection, scopes: Sequence[tuple[SpaceId, Scope]], passed_over: AbstractSet[SpaceId]) -> None:
    """Set the owners of stored spaces; spaces that are not stored are ignored.

    Args:
        connection: A connection within a transaction.
        scopes: The owners by space, all of which are checked.
        passed_over: Spaces whose owners are not set, since all turns given for them were forgotten.

    Raises:
        StoreError: If a name is invalid, or a space belongs to another user or agent.
    """
    for space, scope in dict.fromkeys(scopes):
        given = {field: name for field, name in asdict(scope).items() if name is not None}
        owner = connection.execute(select(spaces).where(spaces.c.space == space)).mappings().first() if given else None
        for field, name in given.items():
            if not is_name(name):
                raise StoreError(
                    f"space {space!r}: {field} is {shortened(name)}; expected {NAME_RULE}; nothing was written"
                )
            if owner is not None and owner[field] not in (None, name):
                raise StoreError(
                    f"space {space!r} belongs to {field} {owner[field]!r}, not {name!r}; nothing was written; add to "
                    "another space"
                )
        if space in passed_over:
            continue
        if owner is not None and any(owner[field] is None for field in given):
            connection.execute(update(spaces).where(spaces.c.space == space).values(given))
