"""Erases turns, or whole spaces, and everything derived from them; nothing else ever deletes turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from locigraph.kg.errors import UnknownTurnError, shortened
from locigraph.kg.language.terms import terms
from locigraph.kg.schema import ARCHIVED_BY, MERGED_BY, MERGED_INTO, NAMED_TYPES, SUPERSEDED_BY
from locigraph.kg.store import (
    changes,
    embeddings,
    expenses,
    labels,
    remembered,
    rewind,
    sequence,
    tables,
    tombstones,
    turns,
)
from locigraph.kg.store.statements import chunks, rows_in
from locigraph.kg.types import NodeStatus, SpaceId, TurnId, states_same

_NO_NODE = 0  # keys start at 1
_ARCHIVING = (MERGED_INTO, MERGED_BY, ARCHIVED_BY)  # attributes that say why a node is archived
_CHAINS = ("NEXT", "PRECEDES")  # labels of which each node has at most one incoming edge
#: Called with the texts that are about to be erased.
Listener = Callable[[Sequence[str]], None]


def erase_turns(
    connection: Connection,
    space: SpaceId,
    turn_ids: Sequence[TurnId],
    before_erasing: Listener,
    *,
    are_expired: bool = False,
) -> int:
    """Erase turns and what was derived from them within the connection's transaction; see ``Store.forget``."""
    turn_keys = turns.keys_of(connection, space, turn_ids)
    if are_expired and not turn_keys:
        return 0
    missing = sorted(set(turn_ids) - set(turn_keys))
    if missing and not are_expired:  # another process may have erased expired ones meanwhile
        raise UnknownTurnError(
            f"space {space!r} has no turn {shortened(missing[0])}, or it was erased before; nothing was erased now"
        )
    of_space = select(func.count()).select_from(tables.turns).where(tables.turns.c.space == space)
    # If nothing is left, the owner is forgotten as well.
    if not are_expired and connection.scalar(of_space) == len(turn_keys):
        return erase_spaces(connection, [space], before_erasing)
    tombstones.put(connection, space, list(turn_keys))
    # It is often made from what was said.
    connection.execute(update(tables.spaces).where(tables.spaces.c.space == space).values(title=None))
    doomed = _doomed(connection, set(turn_keys.values()))
    before_erasing(_texts(connection, space, doomed, set(turn_keys.values())))
    embeddings.drop_in_context(connection, embeddings.followers(connection, space, set(doomed)))
    _reopen_superseded(connection, doomed, turn_keys.keys())
    bridges = _bridges(connection, space, set(doomed), set(turn_keys))
    ids = {row.id for row in rows_in(connection, select(tables.nodes.c.id), tables.nodes.c.key, doomed)}
    _nodes(connection, space, doomed)
    _reactivate(connection, space, MERGED_INTO, ids)
    _reactivate(connection, space, ARCHIVED_BY, set(turn_keys))
    relations = tables.relations
    for names in chunks(sorted(turn_keys)):  # edges that the turns made between nodes that stay
        connection.execute(delete(relations).where(relations.c.space == space, relations.c.turn_id.in_(names)))
    labels.forget_turns(connection, sorted(turn_keys.values()))
    for chunk in chunks(sorted(turn_keys.values())):
        connection.execute(delete(tables.turns).where(tables.turns.c.key.in_(chunk)))
    turns.drop_reasons(connection, space)
    expenses.forget_turns(connection, space, turn_keys.keys())
    if bridges:
        connection.execute(insert(relations), bridges)
    labels.drop_unused(connection, space)
    early = sequence.arrange(connection, space, [])
    if early is not None:  # undated sessions stand after the turns that came before them, which may be forgotten now
        rewind.remove_nodes_of(connection, space, early.turn_id)
    connection.execute(delete(tables.word_statistics).where(tables.word_statistics.c.space == space))
    changes.mark_changed(connection, space)
    return len(doomed)


def _doomed(connection: Connection, turn_keys: AbstractSet[int]) -> list[int]:
    """Keys of the nodes to erase with the turns: their wording may come from them, or no other turn supports them."""
    nodes, sources = tables.nodes.c, tables.provenance.c
    touched: dict[int, Any] = {}
    worded: set[int] = set()
    query = select(nodes.key, nodes.type, nodes.label, nodes.description, sources.worded).join(
        tables.provenance, sources.node_key == nodes.key
    )
    for row in rows_in(connection, query, sources.turn_key, sorted(turn_keys)):
        touched[row.key] = row
        if row.worded:
            worded.add(row.key)
    doomed = {key for key, node in touched.items() if not _stays(connection, node, key in worded, turn_keys)}
    edges = tables.relations.c
    concluded = select(edges.source).where(edges.label == "DERIVED_FROM_FACT")
    # Reflections drawn from an erased fact are erased too.
    return sorted(doomed | {row.source for row in rows_in(connection, concluded, edges.target, sorted(doomed))})


def _stays(connection: Connection, node: Any, is_worded: bool, doomed: AbstractSet[int]) -> bool:
    turns_, sources = tables.turns.c, tables.provenance.c
    query = (
        select(turns_.key, turns_.speaker, turns_.text, turns_.image_caption, sources.worded)
        .join(tables.provenance, sources.turn_key == turns_.key)
        .where(sources.node_key == node.key)
    )
    left = [row for row in connection.execute(query) if row.key not in doomed]
    if node.type not in NAMED_TYPES:  # entities and concepts stay as long as a remaining turn contains their words
        return bool(left) and not is_worded
    if not is_worded and any(row.worded for row in left):
        return True
    name = {*terms(node.label), *terms(node.description)}
    return any(name <= {*terms(f"{row.speaker} {row.text} {row.image_caption or ''}")} for row in left)


def _texts(connection: Connection, space: SpaceId, nodes: Iterable[int], turn_keys: AbstractSet[int]) -> list[str]:
    """What text encoders have read of nodes: their descriptions, also earlier ones; and of turns in context."""
    alone = {text for texts in embeddings.descriptions_of(connection, nodes).values() for text in texts}
    return sorted(alone | embeddings.once_read_together(connection, space, turn_keys))


def _reopen_superseded(connection: Connection, doomed: Sequence[int], forgotten: AbstractSet[TurnId]) -> None:
    """Reopen the facts that doomed facts superseded: each gets the end of validity that it would have without them.

    Where a doomed fact was superseded itself, what superseded it takes its place.
    """
    relations, nodes, versions = tables.relations, tables.nodes, tables.node_versions
    gone = set(doomed)
    _inherit_successors(connection, gone, forgotten)
    successors = select(relations.c.target, relations.c.created_at).where(relations.c.label == SUPERSEDED_BY)
    superseded = select(relations.c.source, relations.c.created_at).where(relations.c.label == SUPERSEDED_BY)
    for closed in list(rows_in(connection, superseded, relations.c.target, sorted(doomed))):
        left = connection.execute(successors.where(relations.c.source == closed.source)).all()
        # Only supersession changes the end of a valid time, so the first version holds the node's own end.
        own_end = (
            select(versions.c.valid_to).where(versions.c.key == closed.source).order_by(versions.c.version).limit(1)
        )
        start = connection.scalar(select(nodes.c.valid_from).where(nodes.c.key == closed.source))
        others = [row.created_at for row in left if row.target not in gone]
        # A fact that was superseded before it was to begin ends when it begins.
        since, *others = (time if start is None else max(time, start) for time in [closed.created_at, *others])
        ends = [connection.scalar(own_end), *others]
        end = min((seconds for seconds in ends if seconds is not None), default=None)
        # A fact whose own end came before it was superseded keeps that end.
        reopened = nodes.c.key == closed.source, nodes.c.valid_to == since
        connection.execute(update(nodes).where(*reopened).values(valid_to=end))
        earlier = versions.c.key == closed.source, versions.c.valid_to == since  # of a fact that was reworded since
        connection.execute(update(versions).where(*earlier).values(valid_to=end))


def _inherit_successors(connection: Connection, doomed: AbstractSet[int], forgotten: AbstractSet[TurnId]) -> None:
    """Let the facts that doomed facts superseded be superseded by the lasting facts that superseded these.

    One that states the same value again, as the attributes of a fact may tell, supersedes nothing.
    """
    relations = tables.relations.c
    edges = select(tables.relations).where(relations.label == SUPERSEDED_BY)
    into = [edge for edge in rows_in(connection, edges, relations.target, sorted(doomed)) if edge.source not in doomed]
    out_of: dict[int, list[Any]] = {}
    for edge in rows_in(connection, edges, relations.source, sorted(doomed | {edge.source for edge in into})):
        out_of.setdefault(edge.source, []).append(edge)
    ends = {key for edges_ in out_of.values() for edge in edges_ for key in (edge.source, edge.target)}
    nodes = rows_in(connection, select(tables.nodes.c.key, tables.nodes.c.attributes), tables.nodes.c.key, sorted(ends))
    value_of = {node.key: node.attributes.get("value") for node in nodes}
    for closed in into:
        held = {edge.target for edge in out_of[closed.source]}
        seen, waiting = {closed.target}, [closed.target]
        while waiting:
            for edge in out_of.get(waiting.pop(), ()):
                if edge.target in doomed and edge.target not in seen:
                    seen.add(edge.target)
                    waiting.append(edge.target)
                elif edge.target not in doomed and edge.target not in held:
                    held.add(edge.target)
                    if states_same(value_of[closed.source], value_of[edge.target]):
                        continue
                    made_by = None if edge.turn_id in forgotten else edge.turn_id  # its edges are erased afterwards
                    inherited = {**edge._mapping, "source": closed.source, "turn_id": made_by}
                    connection.execute(insert(tables.relations).values(**inherited))


def _reactivate(connection: Connection, space: SpaceId, mark: str, gone: AbstractSet[str]) -> None:
    """Reactivate nodes that were archived because of what is gone, which the attribute ``mark`` names.

    The marks are also removed from the nodes' history, since the IDs of topics contain words.
    """
    nodes = tables.nodes.c
    of_space = select(nodes.key).where(nodes.space == space)  # other spaces may have nodes with the same IDs
    back: set[int] = set()
    for table in (tables.nodes, tables.node_versions):
        archived = select(table).where(table.c.key.in_(of_space))
        for row in list(rows_in(connection, archived, table.c.attributes[mark].as_string(), sorted(gone))):
            kept = {name: value for name, value in row.attributes.items() if name not in _ARCHIVING}
            same = [column == getattr(row, column.name) for column in table.primary_key]
            connection.execute(update(table).where(*same).values(attributes=kept, status=NodeStatus.ACTIVE))
            back.add(row.key)
    changes.post(connection, space, sorted(back), "upsert")


def _bridges(
    connection: Connection, space: SpaceId, doomed: AbstractSet[int], forgotten: AbstractSet[TurnId]
) -> list[dict[str, Any]]:
    """NEXT and PRECEDES edges that bridge the gaps left by doomed nodes, from the last node before to those after."""
    relations = tables.relations
    into: dict[tuple[str, int], Any] = {}  # the edge into a node, of which there is at most one for each label
    for chunk in chunks(sorted(doomed)):
        touching = relations.c.source.in_(chunk) | relations.c.target.in_(chunk)
        for row in connection.execute(select(relations).where(relations.c.label.in_(_CHAINS), touching)):
            into[row.label, row.target] = row
    bridges = []
    for (label, target), row in into.items():
        if target in doomed:
            continue
        before, known_from = row, row.created_at
        while before is not None and before.source in doomed:
            before = into.get((label, before.source))
            known_from = known_from if before is None else max(known_from, before.created_at)
        if before is not None and before is not row:
            made_by = None if row.turn_id in forgotten else row.turn_id
            bridge = {"source": before.source, "turn_id": made_by, "created_at": known_from}
            bridges.append({**row._mapping, "space": space, **bridge})
    return bridges


def erase_spaces(connection: Connection, spaces: Sequence[SpaceId], before_erasing: Listener) -> int:
    """Erase spaces and everything in them within the connection's transaction; returns the number of nodes."""
    keys = {
        space: list(connection.scalars(select(tables.nodes.c.key).where(tables.nodes.c.space == space)))
        for space in spaces
    }
    texts: dict[str, None] = {}
    for space, nodes in keys.items():
        turn_keys = set(connection.scalars(select(tables.turns.c.key).where(tables.turns.c.space == space)))
        texts |= dict.fromkeys(_texts(connection, space, nodes, turn_keys))
    before_erasing(list(texts))
    erased = sum(_erase_space(connection, space, nodes) for space, nodes in keys.items())
    remembered.drop_of_spaces(connection, spaces)
    return erased


def _erase_space(connection: Connection, space: SpaceId, keys: Sequence[int]) -> int:
    tombstones.put(connection, space, None)
    _nodes(connection, space, keys)
    labels.drop_unused(connection, space)
    connection.execute(delete(tables.turns).where(tables.turns.c.space == space))
    for table in (tables.changed_spaces, tables.word_statistics):
        connection.execute(delete(table).where(table.c.space == space))
    connection.execute(delete(tables.spent).where(tables.spent.c.space == space))
    connection.execute(delete(tables.spaces).where(tables.spaces.c.space == space))
    return len(keys)


def _nodes(connection: Connection, space: SpaceId, keys: Sequence[int]) -> None:
    """Erase nodes with their relations, earlier versions and embeddings; outbox rows tell every index to drop them.

    An index may still have rows of nodes that were removed to be made again, so it is told even if there are no nodes.
    """
    for chunk in chunks(sorted(keys)):
        connection.execute(delete(tables.nodes).where(tables.nodes.c.key.in_(chunk)))
    changes.post(connection, space, keys or [_NO_NODE], "delete")
