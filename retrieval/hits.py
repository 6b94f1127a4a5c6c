"""From hits to turns: the rule by which every strategy is counted."""

from __future__ import annotations

from collections.abc import Iterable

from locigraph.kg.schema import SEARCHABLE_TYPES
from locigraph.kg.types import TurnId
from locigraph.retrieval.protocols import Hit


def turns_of_hits(hits: Iterable[Hit], *, top_k: int) -> list[TurnId]:
    """The turns that a ranking of nodes stands for, best first.

    A hit is replaced in its place by its source turns, in conversation order; turns that were there already are left
    out. Concepts, entities and categories are structure and stand for no turn.

    Args:
        hits: Best first.
        top_k: Number of turns at which to stop.
    """
    found: dict[TurnId, None] = {}
    for hit in hits:
        if hit.type in SEARCHABLE_TYPES:
            for turn_id in hit.turn_ids:
                found.setdefault(turn_id)
                if len(found) == top_k:
                    return list(found)
    return list(found)
