"""What a change of a space leaves to be done: it is counted, and listed for graph embeddings and indexes.

All of it is written in the same transaction as the change itself. Readers that keep something of a space ask what has
changed since (``part_since``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection, delete, func, insert, select, update

from locigraph.kg.store import tables
from locigraph.kg.store.neighbourhood import Neighbourhood
from locigraph.kg.store.statements import chunks, rows_in
from locigraph.kg.store.tables import changed_spaces, outbox, spaces
from locigraph.kg.types import NodeId, SpaceId, TurnId

# Above this number of changed nodes a space is embedded as a whole.
_NODES_LISTED = 5_000


def mark_changed(connection: Connection, space: SpaceId) -> None:
    """Count a change that may concern all of a space, and list the space for new graph embeddings."""
    list_changed(connection, space)
    count(connection, space)


def list_changed(connection: Connection, space: SpaceId, nodes: Iterable[int] | None = None) -> None:
    """List a space for new graph embeddings; its new number protects it from acknowledgements of earlier states.

    Args:
        connection: A connection within a transaction.
        space: The space.
        nodes: Keys of the nodes that are new or have changed, and of the turns that have other edges now; None if
            anything may have changed.
    """
    c = changed_spaces.c
    keys: list[int | None] = [None] if nodes is None else [*sorted({*nodes})]
    if not keys:
        return
    listed, named = connection.execute(select(func.count(), func.count(c.node_key)).where(c.space == space)).one()
    if listed > named or listed + len(keys) > _NODES_LISTED:
        keys = [None]
    if keys == [None]:
        connection.execute(delete(changed_spaces).where(c.space == space))
    connection.execute(insert(changed_spaces), [{"space": space, "node_key": key} for key in keys])


def count(connection: Connection, space: SpaceId, nodes: Iterable[int] | None = None) -> None:
    """Count a change; called alone for changes that do not affect graph embeddings, such as a new order of turns.

    Args:
        connection: A connection within a transaction.
        space: The space.
        nodes: Keys of the nodes that are new, or have changed, or have other source turns now, or that something has
            replaced that is new or contains the words of other turns; None if anything may have changed.
    """
    revision = spaces.c.revision + 1
    values = {"revision": revision, **({"renewed_in": revision} if nodes is None else {})}
    now = connection.scalar(update(spaces).where(spaces.c.space == space).values(**values).returning(spaces.c.revision))
    for keys in chunks(sorted({*nodes} if nodes is not None else ())):
        connection.execute(update(tables.nodes).where(tables.nodes.c.key.in_(keys)).values(changed_in=now))


def part_since(
    connection: Connection, space: SpaceId, revision: int, types: Collection[str] | None
) -> Neighbourhood | None:
    """The nodes of some types, or all, that have changed since a revision of a space, with their source turns.

    Returns:
        These nodes, which are all still there; None if anything else may have changed as well.
    """
    if not _is_followed(connection, space, revision):
        return None
    nodes, sources = tables.nodes.c, tables.provenance.c
    query = select(nodes.key).where(nodes.space == space, nodes.changed_in > revision)
    keys = connection.scalars(query if types is None else query.where(nodes.type.concat("").in_(sorted(types)))).all()
    turns = {row.turn_key for row in rows_in(connection, select(sources.turn_key), sources.node_key, sorted(keys))}
    return Neighbourhood((), tuple(sorted(keys)), tuple(sorted(turns)), ())


def names_since(
    connection: Connection, space: SpaceId, revision: int
) -> tuple[frozenset[NodeId], frozenset[TurnId]] | None:
    """IDs of the nodes that have changed since a revision of a space, and of the turns whose words they contain.

    None if anything else may have changed as well.
    """
    if not _is_followed(connection, space, revision):
        return None
    nodes, sources, turns = tables.nodes.c, tables.provenance.c, tables.turns.c
    changed = tables.nodes.outerjoin(tables.provenance, (sources.node_key == nodes.key) & sources.worded)
    query = (
        select(nodes.id, turns.turn_id)
        .select_from(changed.outerjoin(tables.turns, turns.key == sources.turn_key))
        .where(nodes.space == space, nodes.changed_in > revision)
    )
    rows = connection.execute(query).all()
    named = frozenset(TurnId(row.turn_id) for row in rows if row.turn_id is not None)
    return frozenset(NodeId(row.id) for row in rows), named


def _is_followed(connection: Connection, space: SpaceId, revision: int) -> bool:
    """Whether what has changed since a revision of a space is told by its nodes."""
    row = connection.execute(select(spaces.c.revision, spaces.c.renewed_in).where(spaces.c.space == space)).first()
    return row is not None and bool(row.renewed_in <= revision <= row.revision)


def post(connection: Connection, space: SpaceId, keys: Sequence[int], action: str) -> None:
    """Add a row for each node to the outbox, so that indexes are updated; ``action`` is ``upsert`` or ``delete``."""
    if keys:
        connection.execute(insert(outbox), [{"space": space, "node_key": key, "action": action} for key in keys])
