from __future__ import annotations

import numpy as np

from locigraph.kg.types import SpaceId
from locigraph.retrieval.index.hot_spaces import HotSearch, HotSpaces
from locigraph.retrieval.index.memory_vectors import MemoryVectors
from locigraph.retrieval.protocols import SearchFilter, VectorMatch
from tests.fakes import make_turns
from tests.fakes_graph import make_snapshot

DIM = 16
SPACES = [SpaceId(f"space{i}") for i in range(3)]


def put(hot: HotSpaces, space: SpaceId, turns: int) -> None:
    snapshot = make_snapshot(make_turns([f"turn {i}" for i in range(turns)], space=space))
    hot.put(space, snapshot, np.arange(turns), np.eye(turns, DIM, dtype=np.float32))


class Elsewhere:
    name, version = "collection", "1"

    def search(self, vector: np.ndarray, scope: SearchFilter, *, top_k: int) -> list[VectorMatch]:
        return []


def test_the_least_recently_used_space_makes_room() -> None:
    size = MemoryVectors.bytes_of(8, DIM)
    hot = HotSpaces(most=2 * size)
    for space in SPACES[:2]:
        put(hot, space, 8)
    assert not hot.has_room(8, DIM)
    assert hot.holds(SPACES[:1])  # used after the second
    put(hot, SPACES[2], 8)
    assert [space in hot for space in SPACES] == [True, False, True]
    put(hot, SPACES[1], 40)  # larger than everything
    assert [space in hot for space in SPACES] == [False, False, False]


def test_a_search_in_memory_needs_all_spaces_there() -> None:
    hot = HotSpaces()
    put(hot, SPACES[0], 3)
    search, query = HotSearch(Elsewhere(), hot), np.eye(1, DIM, 2, dtype=np.float32)[0]
    (found,) = search.search(query, SearchFilter(SPACES[0]), top_k=1)
    assert found.turn_ids == ("t2",)
    assert search.search(query, SearchFilter((SPACES[0], SPACES[1])), top_k=1) == []
    put(hot, SPACES[1], 2)
    assert len(search.search(query, SearchFilter((SPACES[0], SPACES[1])), top_k=9)) == 5
    hot.keep_only([SPACES[1]])
    assert search.search(query, SearchFilter(SPACES[0]), top_k=1) == []
