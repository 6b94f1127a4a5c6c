"""v2: one ANN search over graph embeddings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime

from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.errors import IndexMismatchError
from locigraph.retrieval.index.milvus import Collection
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, QueryEncoder, Result, SearchScope, Timing

#: The graph has moved what facts and events know into the vectors of their turns, so turns alone are searched.
DEFAULT_TYPES = ("episode",)


class GraphEmbeddingRetriever:
    """v2: the question is encoded into the graph's vector space and one search does the rest.

    Args:
        collection: Graph embeddings, written by a refresh.
        encoder: Query encoder of the same checkpoint.
        describe: Text of a node, for display; raises ``UnknownSpaceError`` for an unknown tenant.
        types: Node types to search.
        view_of: Name under which the collection holds a space as of a time. None: the space itself, whose embeddings
            are of the present graph, with later nodes filtered out.

    Raises:
        IndexMismatchError: If collection and query encoder are of different checkpoints.
    """

    name = "v2"

    def __init__(
        self,
        collection: Collection,
        encoder: QueryEncoder,
        describe: Callable[[SpaceId, NodeId], str | None],
        *,
        types: Sequence[str] = DEFAULT_TYPES,
        view_of: Callable[[SpaceId, datetime | None], str] | None = None,
    ) -> None:
        if collection.spec.version != encoder.version:
            raise IndexMismatchError(
                f"collection {collection.name!r} was written with checkpoint {collection.spec.version!r} but the query "
                f"encoder is of {encoder.version!r}; run locigraph refresh with that checkpoint"
            )
        self._collection = collection
        self._encoder = encoder
        self._describe = describe
        self._types = tuple(types)
        self._view_of = view_of

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """The best nodes for a query; see ``Retriever``. Signal: ``graph`` (inner product)."""
        self._describe(space, NodeId(""))  # refuses a tenant that does not exist; loads texts before the clock starts
        started = time.perf_counter()
        vector = self._encoder.encode_query(query, asked_at=as_of)
        encoded = time.perf_counter()
        view = space if self._view_of is None else self._view_of(space, as_of)
        matches = self._collection.search(vector, SearchScope(view, self._types, as_of), top_k=top_k)
        hits = [
            Hit(match.node_id, match.type, text, match.turn_ids, match.score, {"graph": match.score})
            for match in matches
            if (text := self._describe(space, match.node_id)) is not None
        ]
        ended = time.perf_counter()
        return Result(tuple(hits), Timing(1e3 * (encoded - started), 1e3 * (ended - encoded)))
