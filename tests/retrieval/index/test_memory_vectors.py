from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from locigraph.kg.types import NodeId, TurnId
from locigraph.retrieval.errors import FilterError
from locigraph.retrieval.index.memory_vectors import MemoryVectors
from locigraph.retrieval.protocols import SearchFilter, VectorMatch


def match(name: str, kind: str = "episode") -> VectorMatch:
    return VectorMatch(NodeId(name), kind, (TurnId(f"of {name}"),), 0.0)


def unit_rows(count: int, seed: int = 0) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


@settings(max_examples=40)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 20))
def test_search_over_rows_added_in_parts_equals_a_sort_of_all_cosines(parts: list[int], top_k: int) -> None:
    memory, total = MemoryVectors(), sum(parts)
    vectors, start = unit_rows(total), 0
    for size in parts:
        rows = [(match(f"n{i:03d}"), 0) for i in range(start, start + size)]
        memory.add("harbor", rows, vectors[start : start + size])
        start += size
    query = unit_rows(1, 7)[0]
    found = memory.search(query, SearchFilter("harbor"), top_k=top_k)
    order = np.argsort(-(vectors @ query), kind="stable")[:top_k]
    assert [m.node_id for m in found] == [f"n{i:03d}" for i in order]
    np.testing.assert_allclose([m.score for m in found], (vectors @ query)[order], rtol=1e-5, atol=1e-6)


@given(st.integers(1, 60), st.sets(st.integers(0, 70)), st.integers(1, 20))
def test_a_search_among_some_nodes_equals_a_sort_of_their_cosines(count: int, some: set[int], top_k: int) -> None:
    memory, vectors, query = MemoryVectors(), unit_rows(count), unit_rows(1, 7)[0]
    memory.add("harbor", [(match(f"n{at:03d}"), 0) for at in range(count)], vectors)
    only = frozenset(NodeId(f"n{at:03d}") for at in some)
    found = memory.search(query, SearchFilter("harbor", only=only), top_k=top_k)
    order = [at for at in np.argsort(-(vectors @ query), kind="stable").tolist() if at in some][:top_k]
    assert [m.node_id for m in found] == [f"n{at:03d}" for at in order]


def test_a_search_of_several_spaces_finds_those_nodes_alone_to_which_it_is_limited() -> None:
    memory = MemoryVectors()
    for space in ("harbor", "meadow"):
        memory.add(space, [(match(f"n{at}"), 0) for at in range(3)], unit_rows(3))
    only = frozenset({NodeId("harbor:n1"), NodeId("meadow:n2")})
    scope = SearchFilter(("harbor", "meadow"), only=only)
    assert {each.node_id for each in memory.search(unit_rows(1)[0], scope, top_k=9)} == only


def test_spaces_types_and_times_are_kept_apart() -> None:
    memory = MemoryVectors()
    rows = [(match("turn"), 10), (match("fact", "knowledge_node"), 20)]
    memory.add("harbor", rows, unit_rows(2))
    memory.add("meadow", [(match("foreign"), 0)], unit_rows(1))

    def names(scope: SearchFilter) -> set[str]:
        return {str(m.node_id) for m in memory.search(unit_rows(1)[0], scope, top_k=9)}

    assert names(SearchFilter("harbor")) == {"turn", "fact"}
    assert names(SearchFilter("harbor", ("episode",))) == {"turn"}
    assert names(SearchFilter("harbor", None, datetime.fromtimestamp(10, UTC))) == {"turn"}
    assert names(SearchFilter("meadow")) == {"foreign"}
    assert names(SearchFilter("nobody")) == set()
    with pytest.raises(FilterError, match="must name its space"):
        names(SearchFilter(""))


def test_a_node_written_again_is_replaced_and_found_once() -> None:
    memory = MemoryVectors()
    memory.add("harbor", [(match("a"), 0), (match("b"), 0)], np.eye(2, 4, dtype=np.float32))
    memory.add("harbor", [(match("a", "reflection"), 0)], np.eye(4, dtype=np.float32)[3:])
    memory.add("harbor", [], np.zeros((0, 4), dtype=np.float32))
    found = memory.search(np.eye(4, dtype=np.float32)[3], SearchFilter("harbor"), top_k=9)
    assert [(m.node_id, m.type, m.score) for m in found] == [("a", "reflection", 1.0), ("b", "episode", 0.0)]


@pytest.mark.parametrize("count", [17, 50, 257])
def test_equal_vectors_have_equal_scores_wherever_they_stand(count: int) -> None:
    memory, (vector, query) = MemoryVectors(), np.random.default_rng(0).normal(size=(2, 384)).astype(np.float32)
    memory.add("s", [(match(f"n{at:03d}"), 0) for at in range(count)], np.tile(vector, (count, 1)))
    found = memory.search(query, SearchFilter("s"), top_k=count)
    assert len({each.score for each in found}) == 1
    assert [each.node_id for each in found] == [f"n{at:03d}" for at in range(count)]


def test_equal_scores_are_sorted_by_id() -> None:
    memory = MemoryVectors()
    memory.add("harbor", [(match("b"), 0), (match("a"), 0)], np.full((2, 4), 0.5, dtype=np.float32))
    found = memory.search(np.ones(4, dtype=np.float32), SearchFilter("harbor"), top_k=1)
    assert [m.node_id for m in found] == ["a"]


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 5))
def test_removed_rows_are_not_found_and_the_others_are(gone: list[int], again: int) -> None:
    memory, vectors = MemoryVectors(), unit_rows(10)
    memory.add("harbor", [(match(f"n{i}"), 0) for i in range(10)], vectors)
    for i in gone:
        memory.remove("harbor", NodeId(f"n{i}"))
    memory.add("harbor", [(match(f"n{again}"), 0)], vectors[again : again + 1])
    left = sorted({*range(10)} - {*gone} | {again})
    query = unit_rows(1, 7)[0]
    found = memory.search(query, SearchFilter("harbor"), top_k=20)
    assert {m.node_id: pytest.approx(m.score, abs=1e-6) for m in found} == {
        f"n{i}": float(vectors[i] @ query) for i in left
    }
    memory.remove("nobody", NodeId("n0"))
