"""``locigraph show``: the facts of a space and their history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from locigraph.kg.name_list import Names, names_in

if TYPE_CHECKING:
    from locigraph.kg.types import NodeId


def show(
    *,
    space: str,
    store: str = "data/graph.sqlite",
    node: str | None = None,
    types: Names | None = None,
    as_of: str | None = None,
    json: bool = False,
) -> None:
    """Show the facts and events of a space; with ``node``, one of them with its history, source turns and edges.

    Args:
        space: Name or title of the space, which locigraph spaces lists; it may also come first, as in ``locigraph show
            harbor``.
        store: The graph.
        node: ID of a node, as the list shows it.
        types: Types of the nodes to list; null for facts, events and reflections. The short names turn, fact, event and
            topic are accepted too. All types: <node types>.
        as_of: Show only what was known at this time (ISO 8601); null for now.
        json: Whether to print JSON, one object for each node, instead of lines.
    """
    from datetime import UTC, datetime
    from json import dumps
    from sys import stderr

    from locigraph.assembly.opening import existing_store, partial_memory, space_of
    from locigraph.assembly.options import time_of
    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.registry import UnknownNameError
    from locigraph.kg.schema import NODE_TYPES
    from locigraph.kg.types import NodeId, SpaceId
    from locigraph.scripts.console import node_lines
    from locigraph.scripts.console.terminal import printable

    time, owner = time_of(as_of), SpaceId(space_of(space, store) or space)
    named = names_in(types or ()) or node_lines.LISTED
    wanted = [node_lines.IN_PROSE.get(name, name) for name in named]
    for name in wanted:
        if name not in NODE_TYPES:
            raise UnknownNameError("node type", name, [*node_lines.IN_PROSE, *NODE_TYPES])
    with existing_store(store) as graph:
        gone = {*graph.expired(datetime.now(UTC), [owner]).get(owner, ())}

        def are_expired(ids: Sequence[NodeId]) -> set[NodeId]:
            said = graph.origins_of(owner, ids) if gone else {}
            return {each for each in ids if any(turn.turn_id in gone for turn in said.get(each, ()))}

        if node is not None:
            if are_expired([NodeId(node)]):
                raise LocigraphError(f"space {owner!r}: node {node!r} has expired and will be erased; show another")
            found = node_lines.without_turns(node_lines.record_of(graph, owner, NodeId(node), time), gone, are_expired)
            print(dumps(found) if json else printable("\n".join(node_lines.lines_of(found))))
            return
        held = graph.nodes(owner, types=wanted, as_of=time)
        expired = are_expired([each.id for each in held])
        nodes = [each for each in held if each.id not in expired]
        notes = partial_memory(graph, graph.standings([owner]))
    for each in nodes:
        found = node_lines.without_turns(node_lines.summary_of(each), gone)
        print(dumps(found) if json else printable(node_lines.line_of(found)))
    if not nodes and not json:
        print("no nodes of these types are known")
    if notes:
        print(printable("\n".join(notes)), file=stderr if json else None)  # JSON holds nodes alone
