"""Marks what was replaced later, and ranks what has replaced it above it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from locigraph.kg.types import NodeId, Replacement, Said, SpaceId
from locigraph.retrieval.protocols import DEFAULT_TOP_K, MOST_FOUND, Hit, Result, Retriever
from locigraph.retrieval.wrapping import WrappingRetriever

_FURTHER = 2


class Replaceable(Protocol):
    """What is known of a node beside its text."""

    @property
    def replaced(self) -> Sequence[Replacement]:
        """What has replaced it, in the order in which that was learnt."""


class SupersedingRetriever(WrappingRetriever):
    """A strategy whose hits say what has replaced them, and come after it.

    The replacement, if it is found as well, takes the place of what it has replaced, which moves one place down. Twice
    as many hits are looked at as are asked for, so that a replacement that was found later moves up, too.

    Args:
        retriever: The strategy.
        known: Reads what is known of nodes; a deleted node is left out.
        current_first: Whether what was replaced comes after what has replaced it; otherwise it keeps its rank.
        admits: Whether a turn may be shown as the source of nodes of a type, since it has not expired and satisfies the
            conditions of the search.
    """

    def __init__(
        self,
        retriever: Retriever,
        known: Callable[[SpaceId, Sequence[NodeId]], Mapping[NodeId, Replaceable]],
        *,
        current_first: bool = True,
        admits: Callable[[Said, str], bool] = lambda said, node_type: True,
    ) -> None:
        super().__init__(retriever)
        self._known = known
        self._current_first = current_first
        self._admits = admits

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """See ``Retriever``; what was replaced only after ``as_of`` is as if nothing had replaced it."""
        wanted = max(top_k, min(_FURTHER * top_k, MOST_FOUND)) if self._current_first else top_k
        found = self._retriever.retrieve(query, space, as_of=as_of, top_k=wanted)
        known = self._known(space, [hit.node_id for hit in found.hits])
        replaced = {
            hit.node_id: holding
            for hit in found.hits
            if hit.node_id in known and (holding := self._holding(known[hit.node_id], hit.type, as_of))
        }
        hits = current_first(found.hits, replaced) if self._current_first and replaced else found.hits
        marked = (_marked(hit, replaced.get(hit.node_id, ())) for hit in hits[:top_k])
        return Result(tuple(marked), found.timing)

    def _holding(self, known: Replaceable, node_type: str, as_of: datetime | None) -> list[Replacement]:
        """What has replaced a node by a time, of what may be shown."""
        return [
            each
            for each in known.replaced
            if (as_of is None or each.at <= as_of) and self._admits(each.said, node_type)
        ]


def _marked(hit: Hit, by: Sequence[Replacement]) -> Hit:
    if not by:
        return hit
    return replace(hit, until=by[0].day, superseded_by=tuple(dict.fromkeys(each.said.turn_id for each in by)))


def current_first(hits: Sequence[Hit], replaced: Mapping[NodeId, Sequence[Replacement]]) -> list[Hit]:
    """Hits in their order, but each that was replaced right after the last hit that has replaced it, if there is one.

    Of a new fact and the turn that says it, the one of the same type is preferred. A hit that moves takes score and
    confidence of the place that it takes.

    Args:
        hits: Hits, best first.
        replaced: What has replaced their nodes, oldest first; nodes that hold are left out.
    """
    hit_of = {hit.node_id: hit for hit in hits}
    ranked: dict[NodeId, Hit] = {}
    for hit in hits:
        chain: dict[NodeId, Hit] = {}
        newer: Hit | None = hit
        # Turns may replace parts of each other, so a chain may come back to where it began.
        while newer is not None and newer.node_id not in ranked and newer.node_id not in chain:
            chain[newer.node_id] = newer
            newer = _replacement(newer, replaced, hit_of)
        ranked.update(reversed(chain.items()))
    return [
        hit if hit is first else replace(hit, score=first.score, confidence=first.confidence)
        for hit, first in zip(ranked.values(), hits, strict=True)
    ]


def _replacement(
    hit: Hit, replaced: Mapping[NodeId, Sequence[Replacement]], hit_of: Mapping[NodeId, Hit]
) -> Hit | None:
    """The hit that has replaced another one last; None if it is not among the hits."""
    for by in reversed(replaced.get(hit.node_id, ())):
        found = [hit_of[node] for node in by.nodes if node in hit_of]
        if found:
            return next((each for each in found if each.type == hit.type), found[0])
    return None
