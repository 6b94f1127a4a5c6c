"""Searches of a collection on a server, with a client that answers as Milvus 2.3.5 does."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from locigraph.retrieval.index.milvus_collection import CollectionSpec
from locigraph.retrieval.index.milvus_server_collection import ServerCollection
from locigraph.retrieval.protocols import MOST_FOUND, SearchFilter

NODES = 40_000


class Server:
    """A collection in which the nearest node has its old row beside the new one."""

    def search(self, name: str, *, limit: int, search_params: dict[str, Any], **_: Any) -> list[list[dict[str, Any]]]:
        assert limit <= MOST_FOUND, "topk is invalid, it should be in range [1, 16384]"
        assert limit <= search_params.get("params", {}).get("ef", limit), "ef should be larger than k"
        nodes = [0, *range(NODES)][:limit]
        return [
            [
                {
                    "id": f"{node:048d}{place:016x}",
                    "distance": 1 - node * 1e-6,
                    "entity": {"space": "a", "node_key": node, "node_id": f"n{node}", "type": "episode", "turns": ""},
                }
                for place, node in enumerate(nodes)
            ]
        ]


@pytest.mark.parametrize("kind", ["FLAT", "HNSW"])
@pytest.mark.parametrize("top_k", [50, 1_000, MOST_FOUND])
def test_a_search_that_meets_a_row_being_replaced_stays_within_the_server_s_limits(
    kind: Literal["FLAT", "HNSW"], top_k: int
) -> None:
    collection = ServerCollection(Server(), "graph", CollectionSpec(4, "IP", "v", "s", kind))
    found = collection.search(np.ones(4, dtype=np.float32), SearchFilter("a"), top_k=top_k)
    assert [match.node_id for match in found] == [f"n{node}" for node in range(min(top_k, MOST_FOUND - 1))]
