"""Nodes as ``locigraph show`` prints them: as JSON objects, and as lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Any

from locigraph.kg.counts import Spent, counted
from locigraph.kg.language.tokens import one_line
from locigraph.kg.schema import EPISODE
from locigraph.kg.store import Store
from locigraph.kg.types import Node, NodeId, SpaceId

#: Types that are listed when none are named.
LISTED = ("event_node", "sub_event", "knowledge_node", "reflection")
#: Types by their names in prose.
IN_PROSE = {"turn": EPISODE, "fact": "knowledge_node", "event": "event_node", "topic": "concept"}
_MOST_EDGES = 50


def summary_of(node: Node) -> dict[str, Any]:
    """A node as a JSON object, without its edges."""
    return {
        "id": node.id,
        "type": node.type,
        "text": node.description,
        "valid_from": _day(node.valid_from),
        "valid_to": _day(node.valid_to),
        "turn_ids": list(node.provenance),
    }


def record_of(graph: Store, space: SpaceId, node_id: NodeId, as_of: datetime | None) -> dict[str, Any]:
    """A node as a JSON object, with its earlier versions, source turns and edges, as known at a time.

    Each source turn has the number of tokens that language models have read and written for it, and what they cost.

    Raises:
        UnknownNodeError: If there is no such node.
    """
    node = graph.node(space, node_id, as_of=as_of)
    said = {turn.turn_id: turn.utterance for turn in graph.turns(space)}
    used: defaultdict[str, Spent] = defaultdict(Spent)
    for (turn, _), spent in graph.spent(space).items():
        used[turn] += spent
    edges = graph.relations(space, node=node_id, as_of=as_of)
    others = [edge.target if edge.source == node_id else edge.source for edge in edges]
    texts = {
        other.id: other.description
        for other in graph.nodes(space, ids=list(dict.fromkeys(others)), as_of=as_of, include_archived=True)
    }
    return {
        **summary_of(node),
        "status": str(node.status),
        "known_since": node.created_at.isoformat(),
        "history": [
            {"until": later.update_time.isoformat(), "status": str(earlier.status), **summary_of(earlier)}
            for later, earlier in _history(graph, space, node)
        ],
        "sources": [
            {"turn_id": turn, "text": said[turn], "tokens": used[turn].tokens, "cost": used[turn].cost}
            for turn in node.provenance
            if turn in said
        ],
        "edges": [
            {
                "label": edge.label,
                "direction": "to" if edge.source == node_id else "from",
                "node": other,
                "text": texts.get(other, ""),
            }
            for edge, other in zip(edges, others, strict=True)
        ],
    }


def without_turns(
    found: dict[str, Any],
    gone: AbstractSet[str],
    are_gone: Callable[[Sequence[NodeId]], Collection[NodeId]] = lambda ids: (),
) -> dict[str, Any]:
    """A node as a JSON object without what rests on some turns, such as expired ones.

    Args:
        found: The node, of ``summary_of`` or ``record_of``.
        gone: IDs of the turns.
        are_gone: Tells which of some nodes are left out with the turns.
    """
    left = found | {"turn_ids": [turn for turn in found["turn_ids"] if turn not in gone]}
    if "edges" not in found:
        return left
    hidden = are_gone([NodeId(edge["node"]) for edge in found["edges"]])
    return left | {
        "history": [each for each in found["history"] if gone.isdisjoint(each["turn_ids"])],
        "sources": [each for each in found["sources"] if each["turn_id"] not in gone],
        "edges": [each for each in found["edges"] if each["node"] not in hidden],
    }


def line_of(found: dict[str, Any]) -> str:
    """A node in one line: id, type, text, valid time, source turns."""
    span = "" if found["valid_from"] is None else f"  [{found['valid_from']} to {found['valid_to'] or 'now'}]"
    return one_line(f"{found['id']}  {found['type']}  {found['text']}{span}  turns {', '.join(found['turn_ids'])}")


def lines_of(found: dict[str, Any]) -> list[str]:
    """A node of ``record_of`` as lines, with its history, source turns and edges."""
    lines = [line_of(found), f"  {found['status']}, known since {found['known_since']}"]
    for version in found["history"]:
        lines.append(f"  until {version['until']} ({version['status']}): {version['text']}")
    for source in found["sources"]:
        price = f", cost {source['cost']:.4f}" if source["cost"] else ""
        cost = f" ({source['tokens']:,} tokens{price})" if source["tokens"] else ""
        lines.append(f"  said in {source['turn_id']}{cost}: {source['text']}")
    lines += [
        f"  {edge['label']} {edge['direction']} {edge['node']}: {edge['text']}" for edge in found["edges"][:_MOST_EDGES]
    ]
    lines = [one_line(line) for line in lines]
    left = len(found["edges"]) - _MOST_EDGES
    return [*lines, f"  and {counted(left, 'more edge')} (--json true shows all)"] if left > 0 else lines


def _history(graph: Store, space: SpaceId, node: Node) -> list[tuple[Node, Node]]:
    """Pairs of a version and the one before it, latest first; of several within a second only the last is included."""
    found = []
    while node.update_time > node.created_at:
        earlier = graph.node(space, node.id, as_of=node.update_time - timedelta(seconds=1))
        found.append((node, earlier))
        node = earlier
    return found


def _day(time: datetime | None) -> str | None:
    return None if time is None else time.date().isoformat()
