"""v2: one ANN search over graph embeddings, and a bonus for what has a looked-up word."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Self

import numpy as np

from locigraph.kg.schema import EPISODE
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.asking_time import asking_time
from locigraph.retrieval.errors import IndexMismatchError
from locigraph.retrieval.looked_up import LookedUp
from locigraph.retrieval.protocols import (
    DEFAULT_TOP_K,
    GraphVectors,
    NodeTexts,
    QueryEncoder,
    Result,
    Retriever,
    SearchFilter,
)
from locigraph.retrieval.query_generator import LastDay, QueryGenerator
from locigraph.retrieval.stopwatch import Stopwatch

#: The graph network puts the content of facts and events into the vectors of their turns, so only turns are searched.
_TYPES = (EPISODE,)


class GraphEmbeddingRetriever(Retriever):
    """v2: encodes the question into the vector space of the graph embeddings and runs one vector search.

    Args:
        collection: Graph embeddings, such as a refresh writes.
        encoder: Query encoder of the same checkpoint.
        texts: Reads the texts of the hits.
        view_of: Returns the name under which the collection holds a space as of a time, or the names of several spaces
            that are searched together. None: the collection holds each space under its own name, with embeddings of the
            present graph, and nodes recorded after ``as_of`` are filtered out.

    Raises:
        IndexMismatchError: If the collection and the query encoder belong to different checkpoints.
    """

    name = "v2"

    def __init__(
        self,
        collection: GraphVectors,
        encoder: QueryEncoder,
        texts: NodeTexts,
        *,
        view_of: Callable[[SpaceId, datetime | None], str | tuple[str, ...]] | None = None,
    ) -> None:
        if collection.version != encoder.version:
            raise IndexMismatchError(
                f"collection {collection.name!r} was written with checkpoint {collection.version!r} but the query "
                f"encoder is of checkpoint {encoder.version!r}; run locigraph refresh with checkpoint "
                f"{encoder.version!r}"
            )
        self._collection = collection
        self._encoder = encoder
        self._texts = texts
        self._view_of = view_of
        self._queries: tuple[QueryGenerator, LastDay] | None = None

    def asked_from(self, day_of: LastDay) -> Self:
        """See ``Retriever``; without it relative dates are ignored."""
        return self._changed(_day_of=day_of)

    def limited_to(self, only: Callable[[str | None], frozenset[NodeId]]) -> Self:
        """See ``Retriever``: the index searches among these alone."""
        return self._changed(_only=only(EPISODE))

    def with_queries(self, queries: QueryGenerator, last_day: LastDay) -> Self:
        """The same retriever, searching with the average of the question's vector and its other queries' mean vector.

        Scores are inner products, so one search gives each turn the same average of its scores for the single queries.

        Args:
            queries: Generates the queries of a question, the question itself first.
            last_day: Reads the day from which a question without ``as_of`` is asked.
        """
        return self._changed(_queries=(queries, last_day))

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """The best nodes for a query; see ``Retriever``. Signals: ``graph`` (inner product), ``looked_up`` (bonus)."""
        others: list[str] = []
        if self._queries is not None:
            generate, last_day = self._queries
            others = [each.text for each in generate(query, last_day(space) if as_of is None else as_of.date())][1:]
        watch = Stopwatch()
        asked_at = asking_time(query, space, as_of=as_of, day_of=self._day_of)
        vector = self._encoder.encode_query(query, asked_at=asked_at)
        if others:
            more = [self._encoder.encode_query(text, asked_at=asked_at) for text in others]
            vector = (vector + np.mean(more, axis=0)) / 2
        watch.encoded()
        view = space if self._view_of is None else self._view_of(space, as_of)
        looked_up = LookedUp.by(query)
        wanted = max(top_k, looked_up.depth)
        matches = self._collection.search(vector, SearchFilter(view, _TYPES, as_of, self._only), top_k=wanted)
        timing = watch.timing()
        # Called even when nothing was found, since an unknown space is an error and not an empty result.
        texts = self._texts(space, [match.node_id for match in matches], as_of)
        return Result(looked_up.first(matches, texts, signal="graph", top_k=top_k), timing)
