"""The only deletion: turns, or a whole space, are erased with all that was drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from locigraph.kg.errors import StoreError
from locigraph.kg.store import outbox, tables
from locigraph.kg.store import turns as turns_
from locigraph.kg.store.statements import chunks
from locigraph.kg.types import SpaceId, TurnId

# These only name what many turns speak of; the wording of all other types may hold what must be erased.
_SHARED = ("concept", "entity")


def turns(connection: Connection, space: SpaceId, turn_ids: Sequence[TurnId]) -> int:
    """Erase turns and what was drawn from them within the connection's transaction; see ``Store.forget``."""
    turn_keys = turns_.keys_of(connection, space, turn_ids)
    missing = sorted(set(turn_ids) - set(turn_keys))
    if missing:
        raise StoreError(f"space {space!r} holds no turn {missing[0]!r}; nothing was forgotten")
    doomed_turns = set(turn_keys.values())
    touched: dict[int, str] = {}
    for chunk in chunks(sorted(doomed_turns)):
        touched.update(
            (row.key, row.type)
            for row in connection.execute(
                select(tables.nodes.c.key, tables.nodes.c.type)
                .join(tables.provenance, tables.provenance.c.node_key == tables.nodes.c.key)
                .where(tables.provenance.c.turn_key.in_(chunk))
            )
        )
    doomed = [key for key, kind in touched.items() if kind not in _SHARED]
    for key in (key for key, kind in touched.items() if kind in _SHARED):
        sources = connection.scalars(select(tables.provenance.c.turn_key).where(tables.provenance.c.node_key == key))
        if set(sources) <= doomed_turns:
            doomed.append(key)
    _reopen_superseded(connection, doomed)
    bridges = _bridges(connection, space, set(doomed), set(turn_keys))
    _nodes(connection, space, doomed)
    relations = tables.relations
    for names in chunks(sorted(turn_keys)):  # what a turn said of nodes that stay
        connection.execute(delete(relations).where(relations.c.space == space, relations.c.turn_id.in_(names)))
    for chunk in chunks(sorted(doomed_turns)):
        connection.execute(delete(tables.turns).where(tables.turns.c.key.in_(chunk)))
    if bridges:
        connection.execute(insert(relations), bridges)
    return len(doomed)


def _reopen_superseded(connection: Connection, doomed: Sequence[int]) -> None:
    """Reopen the facts that doomed facts superseded: each ends as it would have without them."""
    relations, nodes, versions = tables.relations, tables.nodes, tables.node_versions
    gone = set(doomed)
    successors = select(relations.c.target, relations.c.created_at).where(relations.c.label == "SUPERSEDED_BY")
    for chunk in chunks(sorted(doomed)):
        closed = connection.execute(
            select(relations.c.source, relations.c.created_at).where(
                relations.c.label == "SUPERSEDED_BY", relations.c.target.in_(chunk)
            )
        ).all()
        for source, closed_at in closed:
            left = connection.execute(successors.where(relations.c.source == source)).all()
            # Only supersession changes the end of a valid time, so the first version holds the node's own end.
            own = select(versions.c.valid_to).where(versions.c.key == source).order_by(versions.c.version).limit(1)
            ends = [connection.execute(own).scalar(), *(row.created_at for row in left if row.target not in gone)]
            end = min((each for each in ends if each is not None), default=None)
            # A fact that had ended by itself before it was superseded still ends there.
            reopened = nodes.c.key == source, nodes.c.valid_to == closed_at
            connection.execute(update(nodes).where(*reopened).values(valid_to=end))


def _bridges(
    connection: Connection, space: SpaceId, doomed: AbstractSet[int], forgotten: AbstractSet[TurnId]
) -> list[dict[str, Any]]:
    """NEXT edges across the doomed episodes: from the last episode before them to the first one after them."""
    relations = tables.relations
    following: dict[int, Any] = {}
    for chunk in chunks(sorted(doomed)):
        touching = relations.c.source.in_(chunk) | relations.c.target.in_(chunk)
        for row in connection.execute(select(relations).where(relations.c.label == "NEXT", touching)):
            following[row.source] = row
    bridges = []
    for source, row in following.items():
        if source in doomed:
            continue
        last = row
        while last is not None and last.target in doomed:
            last = following.get(last.target)
        if last is not None and last is not row:
            made_by = None if last.turn_id in forgotten else last.turn_id
            bridges.append({**last._mapping, "space": space, "source": source, "turn_id": made_by})
    return bridges


def space(connection: Connection, space: SpaceId) -> int:
    """Erase a space with everything it holds, within the connection's transaction; returns the number of nodes."""
    keys = list(connection.scalars(select(tables.nodes.c.key).where(tables.nodes.c.space == space)))
    _nodes(connection, space, keys)
    connection.execute(delete(tables.turns).where(tables.turns.c.space == space))
    for name in connection.scalars(select(tables.settings.c.name)).all():
        if name.partition("/")[2] == space:
            connection.execute(delete(tables.settings).where(tables.settings.c.name == name))
    connection.execute(delete(tables.spaces).where(tables.spaces.c.space == space))
    return len(keys)


def _nodes(connection: Connection, space: SpaceId, keys: Sequence[int]) -> None:
    """Erase nodes, and with them their relations, earlier versions and embeddings; the outbox tells every index."""
    for chunk in chunks(sorted(keys)):
        connection.execute(delete(tables.nodes).where(tables.nodes.c.key.in_(chunk)))
    outbox.post(connection, space, keys, "delete")
