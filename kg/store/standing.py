"""How a space stands: whose it is, whether it has changed, and what of it still has to be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, func, select

from locigraph.kg.store.statements import chunks
from locigraph.kg.store.tables import changed_spaces, spaces, turns
from locigraph.kg.types import ANYBODY, Scope, SpaceId, TurnState


@dataclass(frozen=True, slots=True)
class Standing:
    """How a space stands. As long as it is equal, whatever a question reads of the space is unchanged.

    Attributes:
        scope: The user and agent to whom it belongs.
        revision: Its revision number; see ``Store.revision``.
        pending: Number of its turns that are not consolidated yet.
        failed: Number of its turns whose consolidation failed.
        due: Number of its last change that its graph embeddings in the index do not reflect; 0 if there is none. It
            does not count for equality.
        expires_at: When the first of its turns is to be forgotten, in seconds since 1970; None if none is.
    """

    scope: Scope
    revision: int
    pending: int
    failed: int
    due: int = field(compare=False)
    expires_at: int | None = None


_SPACE = spaces.c.space
# Made once, since making a statement takes longer than running this one.
_ALL = select(
    _SPACE,
    spaces.c.user,
    spaces.c.agent,
    spaces.c.revision,
    # An index finds these few turns, however many are done.
    *(
        select(func.count()).where(turns.c.space == _SPACE, turns.c.state == state).scalar_subquery().label(state.value)
        for state in (TurnState.PENDING, TurnState.FAILED)
    ),
    select(func.coalesce(func.max(changed_spaces.c.seq), 0))
    .where(changed_spaces.c.space == _SPACE)
    .scalar_subquery()
    .label("due"),
    select(func.min(turns.c.expires_at)).where(turns.c.space == _SPACE).scalar_subquery().label("expires_at"),
).order_by(_SPACE)
_NAMED = _ALL.where(_SPACE.in_(bindparam("named", expanding=True)))


def standings(
    connection: Connection, named: Sequence[SpaceId] | None, scope: Scope = ANYBODY
) -> dict[SpaceId, Standing]:
    """How some spaces stand, or all (None) of a scope, sorted by name; those that do not exist are left out."""
    if named is None:
        owners = ((spaces.c.user, scope.user), (spaces.c.agent, scope.agent))
        rows = [*connection.execute(_ALL.where(*(column == owner for column, owner in owners if owner is not None)))]
    else:
        rows = [row for part in chunks(named) for row in connection.execute(_NAMED, {"named": list(part)})]
    return {
        SpaceId(name): Standing(Scope(user, agent), revision, pending, failed, int(due), expires_at)
        for name, user, agent, revision, pending, failed, due, expires_at in rows
    }
