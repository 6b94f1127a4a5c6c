"""Conversions that all strategies share: index rows to hits, and hits to turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from locigraph.kg.schema import searchable_types
from locigraph.kg.types import NodeId, TurnId
from locigraph.retrieval.protocols import Hit, VectorMatch


def hits_of_matches(matches: Sequence[VectorMatch], texts: Mapping[NodeId, str], *, signal: str) -> tuple[Hit, ...]:
    """Hits of a vector search, in the same order.

    Args:
        matches: What the search found.
        texts: Text by node ID. A match without a text is left out: its node was forgotten or archived after the index
            row was written.
        signal: Name under which the hits report the similarity.
    """
    return tuple(
        Hit(match.node_id, match.type, texts[match.node_id], match.turn_ids, match.score, {signal: match.score})
        for match in matches
        if match.node_id in texts
    )


def turns_of_hits(hits: Iterable[Hit], *, top_k: int) -> list[TurnId]:
    """The source turns of a ranking of nodes, best first; every strategy is scored by these.

    Each hit is replaced by its source turns, in conversation order; a turn that is already listed is not repeated.
    Concepts, entities and categories only give structure to the graph and stand for no turn.

    Args:
        hits: Ranking of nodes, best first.
        top_k: Largest number of turns to return.
    """
    searchable = searchable_types()
    turns: dict[TurnId, None] = {}
    for hit in hits:
        if hit.type in searchable:
            for turn_id in hit.turn_ids:
                turns.setdefault(turn_id)
                if len(turns) == top_k:
                    return list(turns)
    return list(turns)
