"""Relation labels: those of the schema, and those coined by turns, with separate descriptions for each space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, select, update

from locigraph.kg.errors import UnknownTypeError
from locigraph.kg.schema import COINED_FAMILY, LABEL_PATTERN, RELATION_LABELS, RelationLabel
from locigraph.kg.store import postgresql, tables
from locigraph.kg.store.statements import chunks, insert_or_keep
from locigraph.kg.types import SpaceId

#: Description of a coined label where the words of a turn must not be shown.
UNDESCRIBED = RELATION_LABELS[COINED_FAMILY].description
_ALL = "labels"  # name of the lock under which labels, which spaces share, are added and removed
_LABELS, _COINED = tables.relation_labels, tables.coined_labels


def read(connection: Connection, space: SpaceId) -> dict[str, RelationLabel]:
    """Labels by name: the schema's, and those coined by a space."""
    rows = connection.execute(select(_COINED.c.name, _COINED.c.description).where(_COINED.c.space == space))
    coined = {row.name: RelationLabel(row.name, "semantic", COINED_FAMILY, row.description) for row in rows}
    return dict(RELATION_LABELS) | coined


def coin(connection: Connection, space: SpaceId, coined: Mapping[str, str], turn_key: int | None) -> None:
    """Write coined labels; their descriptions are visible only in the space, and erased with the turn ``turn_key``.

    Raises:
        UnknownTypeError: If a label does not match ``LABEL_PATTERN``.
    """
    postgresql.take(connection, [_ALL])
    for name in sorted(coined):
        if not LABEL_PATTERN.fullmatch(name):
            raise UnknownTypeError(
                f"relation label {name!r} is not in CAPITALS_WITH_UNDERSCORES (at most 64 characters)"
            )
        shared = {"name": name, "kind": "semantic", "family": COINED_FAMILY, "description": UNDESCRIBED}
        connection.execute(insert_or_keep(connection, _LABELS), shared)
        own = {"space": space, "name": name, "turn_key": turn_key, "description": coined[name]}
        connection.execute(insert_or_keep(connection, _COINED), own)


def forget_turns(connection: Connection, turn_keys: Sequence[int]) -> None:
    """Erase the descriptions that came from the turns; the labels stay for the edges of other turns."""
    for chunk in chunks(turn_keys):
        of_turns = _COINED.c.turn_key.in_(chunk)
        connection.execute(update(_COINED).where(of_turns).values(turn_key=None, description=UNDESCRIBED))


def drop_unused(connection: Connection, space: SpaceId) -> None:
    """Erase coined labels that no edge has any more, since their names may reveal what was said."""
    postgresql.take(connection, [_ALL])
    edges = tables.relations.c
    used = select(edges.label).where(edges.space == space)
    connection.execute(delete(_COINED).where(_COINED.c.space == space, _COINED.c.name.not_in(used)))
    names = _LABELS.c.name
    connection.execute(delete(_LABELS).where(names.not_in(RELATION_LABELS), names.not_in(select(edges.label))))
