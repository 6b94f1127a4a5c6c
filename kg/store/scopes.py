"""The owners of spaces: the user and agent to whom each belongs."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict

from sqlalchemy import Connection, RowMapping, select, update

from locigraph.kg.errors import StoreError, shortened
from locigraph.kg.store.tables import spaces
from locigraph.kg.types import NAME_RULE, Scope, SpaceId, is_name


def require_free(connection: Connection, scopes: Sequence[tuple[SpaceId, Scope]]) -> None:
    """Check the owners that spaces are to have, of which some may not be stored.

    Raises:
        StoreError: If a name is invalid, or a space belongs to another user or agent.
    """
    owners: dict[SpaceId, dict[str, str | None]] = {}  # as they will be, since one call may name a space repeatedly
    for space, scope in dict.fromkeys(scopes):
        given = _given(scope)
        if given and space not in owners:
            owners[space] = dict(_owner(connection, space) or {})
        for field, name in given.items():
            if not is_name(name):
                raise StoreError(
                    f"space {space!r}: {field} is {shortened(name)}; expected {NAME_RULE}; nothing was written"
                )
            if owners[space].setdefault(field, name) not in (None, name):
                raise StoreError(
                    f"space {space!r} belongs to {field} {owners[space][field]!r}, not {name!r}; nothing was written; "
                    "add to another space"
                )
            owners[space][field] = name


def put(connection: Connection, scopes: Sequence[tuple[SpaceId, Scope]], passed_over: AbstractSet[SpaceId]) -> None:
    """Set the owners of stored spaces, which ``require_free`` has checked; spaces that are not stored are ignored.

    Args:
        connection: A connection within a transaction.
        scopes: The owners by space.
        passed_over: Spaces whose owners are not set, since all turns given for them were forgotten.
    """
    for space, scope in dict.fromkeys(scopes):
        given = _given(scope)
        owner = _owner(connection, space) if given and space not in passed_over else None
        if owner is not None and any(owner[field] is None for field in given):
            connection.execute(update(spaces).where(spaces.c.space == space).values(given))


def _given(scope: Scope) -> dict[str, str]:
    return {field: name for field, name in asdict(scope).items() if name is not None}


def _owner(connection: Connection, space: SpaceId) -> RowMapping | None:
    return connection.execute(select(spaces).where(spaces.c.space == space)).mappings().first()
