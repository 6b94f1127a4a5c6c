"""Removes the graph of a space and makes its turns pending, so that they are consolidated again in order."""

from __future__ import annotations

import logging

from sqlalchemy import Connection, and_, delete, exists, or_, select, update

from locigraph.kg.schema import MERGED_BY
from locigraph.kg.store import changes, labels, tables
from locigraph.kg.types import SpaceId, TurnId, TurnState

_LOG = logging.getLogger(__name__)
_NODES, _EDGES = tables.nodes.c, tables.relations.c
_OTHER, _SAME = tables.relations.alias("other").c, tables.relations.alias("same").c
# An edge that ``resolve`` copied from a merged entity to the one it was merged into; the merged entity keeps its own.
_IS_MOVED = exists().where(
    and_(_OTHER.source == _EDGES.source, _OTHER.label == _EDGES.label, _OTHER.target == _SAME.source),
    and_(_SAME.label == "SIMILAR_TO", _SAME.target == _EDGES.target),
)
_IS_LINK = and_(_EDGES.turn_id.is_(None), or_(_EDGES.label == "CAUSES", and_(_EDGES.label == "MENTIONS", ~_IS_MOVED)))
# For each command that adds to the graph as a second pass, the condition that finds nodes it made or changed.
_MADE_BY = {
    "classify": _NODES.type.in_(("event_category", "knowledge_category")),
    "reflect": _NODES.type == "reflection",
    "link": _NODES.key.in_(select(_EDGES.source).where(_IS_LINK)),
    "resolve": _NODES.attributes[MERGED_BY].as_string().in_(("spelling", "meaning")),
}


def remove_nodes_of(connection: Connection, space: SpaceId, early: TurnId) -> None:
    """Remove the nodes of a space and make all its turns pending, because ``early`` precedes consolidated turns.

    What a turn changes depends on the turns before it, so consolidating ``early`` alone would not give the right graph.
    Consolidating again does not bring back the results of second passes; a warning in the log names them. No turns are
    erased, so the indexes need not be rebuilt: they drop the rows of nodes that no longer exist.
    """
    nodes, turns = tables.nodes, tables.turns
    lost = [
        name
        for name, is_made in _MADE_BY.items()
        if connection.execute(select(nodes.c.key).where(nodes.c.space == space, is_made).limit(1)).first()
    ]
    if lost:
        _LOG.warning(
            "space %r: its graph is rebuilt, since turn %r comes before consolidated turns; "
            "afterwards run locigraph %s again",
            space, early, " and ".join(lost),
        )  # fmt: skip
    keys = list(connection.scalars(select(nodes.c.key).where(nodes.c.space == space)))
    connection.execute(delete(nodes).where(nodes.c.space == space))
    labels.drop_unused(connection, space)
    connection.execute(update(turns).where(turns.c.space == space).values(state=TurnState.PENDING, error=None))
    changes.post(connection, space, keys, "upsert")
    changes.mark_changed(connection, space)
