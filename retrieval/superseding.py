"""Marks what was replaced later, and ranks what has replaced it above it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from locigraph.kg.types import NodeId, Said, SpaceId
from locigraph.retrieval.protocols import DEFAULT_TOP_K, MOST_FOUND, Hit, Result, Retriever
from locigraph.retrieval.wrapping import WrappingRetriever

_FURTHER = 2


class Replaceable(Protocol):
    """What is known of a node beside its text."""

    @property
    def said(self) -> Sequence[Said]:
        """The turns whose words it contains."""

    @property
    def replaced_by(self) -> Sequence[Said]:
        """The turns that later replaced what it says, or some of it."""

    @property
    def replaced_at(self) -> datetime | None:
        """When that was learnt; None if nothing has replaced it."""


class SupersedingRetriever(WrappingRetriever):
    """A strategy whose hits say what has replaced them, and come after it.

    The replacement takes the place of what it has replaced, which moves one place down; no hit is left out. Twice as
    many hits are looked at as are asked for, so that a replacement that was found later moves up, too.

    Args:
        retriever: The strategy.
        known: Reads what is known of nodes; a deleted node is left out.
        current_first: Whether what was replaced comes after what has replaced it; otherwise it keeps its rank.
    """

    def __init__(
        self,
        retriever: Retriever,
        known: Callable[[SpaceId, Sequence[NodeId]], Mapping[NodeId, Replaceable]],
        *,
        current_first: bool = True,
    ) -> None:
        super().__init__(retriever)
        self._known = known
        self._current_first = current_first

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """See ``Retriever``; what was replaced only after ``as_of`` is as if nothing had replaced it."""
        wanted = max(top_k, min(_FURTHER * top_k, MOST_FOUND)) if self._current_first else top_k
        found = self._retriever.retrieve(query, space, as_of=as_of, top_k=wanted)
        known = self._known(space, [hit.node_id for hit in found.hits])
        replaced = {node: each for node, each in known.items() if is_replaced(each, as_of)}
        hits = current_first(found.hits, known, replaced) if self._current_first and replaced else found.hits
        marked = (_marked(hit, replaced[hit.node_id]) if hit.node_id in replaced else hit for hit in hits[:top_k])
        return Result(tuple(marked), found.timing)


def is_replaced(node: Replaceable, as_of: datetime | None) -> bool:
    """Whether something had replaced what a node says, as far as was known at a time (None: now)."""
    return node.replaced_at is not None and (as_of is None or node.replaced_at <= as_of)


def _marked(hit: Hit, node: Replaceable) -> Hit:
    until = None if node.replaced_at is None else node.replaced_at.date()
    return replace(hit, until=until, superseded_by=tuple(said.turn_id for said in node.replaced_by))


def current_first(
    hits: Sequence[Hit], known: Mapping[NodeId, Replaceable], replaced: Mapping[NodeId, Replaceable]
) -> list[Hit]:
    """Hits in their order, but each that was replaced after the best hit that has replaced it.

    Of several, a hit of its own type is preferred. A hit that moves takes the score of the place that it takes.

    Args:
        hits: Hits, best first.
        known: What is known of their nodes.
        replaced: Those of these that were replaced.
    """
    ranked = [*hits]
    moved = set[NodeId]()  # each moves at most once, since turns may replace parts of each other
    place = 0
    while place < len(ranked):
        node = replaced.get(ranked[place].node_id)
        newer = None if node is None else _replacement(ranked, place, node, known, moved)
        if newer is None:
            place += 1
        else:  # looked at next, since it may have been replaced, too
            moved.add(ranked[newer].node_id)
            ranked.insert(place, ranked.pop(newer))
    return [hit if hit is first else replace(hit, score=first.score) for hit, first in zip(ranked, hits, strict=True)]


def _replacement(
    ranked: Sequence[Hit],
    place: int,
    node: Replaceable,
    known: Mapping[NodeId, Replaceable],
    moved: Collection[NodeId],
) -> int | None:
    """The place of the best later hit that says what replaced a node, and has not moved; None if there is none."""
    places = [
        later
        for later in range(place + 1, len(ranked))
        if ranked[later].node_id not in moved
        and (other := known.get(ranked[later].node_id)) is not None
        and any(said in node.replaced_by for said in other.said)
        and not any(said in other.said for said in node.said)
    ]
    return min(places, key=lambda later: (ranked[later].type != ranked[place].type, later), default=None)
