"""What all strategies share: index rows become hits, hits become turns, and a search asks for more hits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from locigraph.kg.schema import searchable_types
from locigraph.kg.types import NodeId, SpaceId, TurnId
from locigraph.retrieval.protocols import Hit, Result, Retriever, VectorMatch


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


def searches(
    retriever: Retriever, query: str, space: SpaceId, *, as_of: datetime | None, top_k: int, growth: int, most: int
) -> Iterator[Result]:
    """Search for ``top_k`` turns, then for ``growth`` times as many, and so on, until no more hits are found.

    There is at least one search, and the caller may end them sooner.

    Args:
        retriever: The strategy.
        query: The question.
        space: The space to search.
        as_of: Time at which the memory is searched; None for now.
        top_k: Number of turns of the first search.
        growth: Factor from one search to the next, > 1.
        most: Largest number of turns to search for.
    """
    before = -1
    while True:
        result = retriever.retrieve(query, space, as_of=as_of, top_k=top_k)
        yield result
        # A strategy that ranks a pool of fixed size finds no more as long as fewer are wanted.
        if top_k >= most or before == len(result.hits) < top_k:
            return
        before, top_k = len(result.hits), min(growth * top_k, most)
