"""What every engine of the vector index must do: Milvus Lite and a Milvus server, in the same tests.

Tests of the server are marked ``servers``; ``make servers`` starts one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from locigraph.kg.errors import InvalidVectorError
from locigraph.kg.types import NodeId, TurnId
from locigraph.retrieval.errors import FilterError, IndexMismatchError, IndexUnavailableError
from locigraph.retrieval.index import milvus_collection
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_collection import Collection, CollectionSpec, IndexRow
from locigraph.retrieval.protocols import SearchFilter
from tests.retrieval.index.conftest import Engine
from tests.retrieval.index.rows import DIM, ROWS, SPEC, exact, random_vectors, row


@pytest.fixture(scope="module")
def index(engine: Engine) -> Iterator[MilvusIndex]:
    with engine.opened("shared") as made:
        yield made


@pytest.fixture(scope="module")
def shared(index: MilvusIndex) -> Collection:
    """Rows 0-59 of harbor, recorded at second 10 x row, every third a fact; the same vectors again in meadow."""
    collection = index.create("shared", SPEC)
    kinds = ["knowledge_node" if key % 3 == 0 else "episode" for key in range(ROWS)]
    for space, first in (("harbor", 0), ("meadow", 1000)):
        rows = [replace(row(first + i, space, kind=kinds[i]), recorded_at=10 * i) for i in range(ROWS)]
        collection.upsert(rows, random_vectors(ROWS))
    collection.flush()
    return collection


@pytest.fixture
def empty(index: MilvusIndex, request: pytest.FixtureRequest) -> Iterator[Collection]:
    name = "c_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in request.node.name)
    yield index.create(name, SPEC)
    index.drop(name)


def test_search_equals_exact_search_best_first(shared: Collection) -> None:
    for seed in range(5):
        query = random_vectors(1, 100 + seed)[0]
        scores = exact(query, random_vectors(ROWS), "COSINE")
        found = shared.search(query, SearchFilter("harbor"), top_k=10)
        best = np.argsort(-scores)[:10]
        assert [match.node_id for match in found] == [f"n{i:03d}" for i in best]
        np.testing.assert_allclose([match.score for match in found], scores[best], atol=1e-5)


def test_a_match_carries_type_and_source_turns(shared: Collection) -> None:
    (match,) = shared.search(random_vectors(ROWS)[6], SearchFilter("harbor"), top_k=1)
    assert (match.node_id, match.type, match.turn_ids) == ("n006", "knowledge_node", ("t6", "t,0"))


def test_no_room_is_set_aside_for_more_than_a_server_would_return(shared: Collection) -> None:
    found = shared.search(random_vectors(1)[0], SearchFilter("harbor"), top_k=10**12)  # terabytes, if it were asked for
    assert len(found) == ROWS


def test_a_search_sees_its_own_space_only(shared: Collection) -> None:
    query = random_vectors(1, 5)[0]
    harbor = shared.search(query, SearchFilter("harbor"), top_k=2 * ROWS)
    meadow = shared.search(query, SearchFilter("meadow"), top_k=2 * ROWS)
    assert {match.node_id for match in harbor} == {f"n{i:03d}" for i in range(ROWS)}
    assert {match.node_id for match in meadow} == {f"n{i:03d}" for i in range(1000, 1000 + ROWS)}
    assert shared.search(query, SearchFilter("nobody"), top_k=5) == []
    with pytest.raises(FilterError, match="must name its space"):
        shared.search(query, SearchFilter(""), top_k=5)


def test_a_search_sees_the_asked_types_only(shared: Collection) -> None:
    found = shared.search(random_vectors(1)[0], SearchFilter("harbor", ("knowledge_node",)), top_k=ROWS)
    assert {match.node_id for match in found} == {f"n{i:03d}" for i in range(0, ROWS, 3)}


def test_nothing_recorded_after_as_of_is_found(shared: Collection) -> None:
    scope = SearchFilter("harbor", None, datetime(1970, 1, 1, 0, 3, 20, tzinfo=UTC))
    found = shared.search(random_vectors(1)[0], scope, top_k=ROWS)
    # 3 min 20 s is second 200, when row 20 was recorded.
    assert {match.node_id for match in found} == {f"n{i:03d}" for i in range(21)}


def test_the_collections_own_description_is_never_a_row(shared: Collection) -> None:
    assert shared.count() == 2 * ROWS
    assert shared.count("harbor") == ROWS
    assert shared.counts() == {"harbor": ROWS, "meadow": ROWS}
    assert shared.node_keys("harbor") == list(range(ROWS))


def test_stored_vectors_are_read_back(shared: Collection) -> None:
    held = shared.vectors("harbor", [3, 59, 1003])
    assert sorted(held) == [3, 59]
    np.testing.assert_array_equal(held[59], random_vectors(ROWS)[59])


@pytest.mark.parametrize("metric", ["COSINE", "IP"])
@pytest.mark.parametrize("kind", ["FLAT", "HNSW"])
def test_both_metrics_and_index_types_rank_like_numpy(index: MilvusIndex, metric: Any, kind: Any) -> None:
    collection = index.create(f"{metric}_{kind}", CollectionSpec(DIM, metric, "model", "schema", kind))
    vectors = random_vectors(200) * np.linspace(0.1, 3, 200, dtype=np.float32)[:, None]
    collection.upsert([row(i) for i in range(200)], vectors)
    collection.flush()
    query = random_vectors(1, 9)[0]
    scores = exact(query, vectors, metric)
    found = collection.search(query, SearchFilter("harbor"), top_k=5)
    assert [match.node_id for match in found] == [f"n{i:03d}" for i in np.argsort(-scores)[:5]]
    np.testing.assert_allclose([match.score for match in found], np.sort(scores)[::-1][:5], rtol=1e-4)
    index.drop(collection.name)


def test_rows_are_found_before_a_flush(empty: Collection) -> None:
    empty.upsert([row(1)], random_vectors(1))
    assert len(empty.search(random_vectors(1)[0], SearchFilter("harbor"), top_k=3)) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broken_vector_is_refused_and_nothing_is_written(empty: Collection, value: float) -> None:
    vectors = random_vectors(3)
    vectors[1, 2] = value
    with pytest.raises(InvalidVectorError, match=r"node 'n001' holds NaN or infinity \(1 such rows\)"):
        empty.upsert([row(i) for i in range(3)], vectors)
    assert empty.count() == 0


def test_vectors_of_another_width_are_refused_and_nothing_is_written(empty: Collection) -> None:
    with pytest.raises(InvalidVectorError, match=r"shape \(2, 8\), got \(2, 5\)"):
        empty.upsert([row(0), row(1)], np.ones((2, 5), dtype=np.float32))
    with pytest.raises(InvalidVectorError, match=r"shape \(2, 8\), got \(3, 8\)"):
        empty.upsert([row(0), row(1)], random_vectors(3))
    assert empty.count() == 0


def test_a_query_that_is_no_finite_vector_of_the_width_is_refused(shared: Collection) -> None:
    for query in (np.ones(5, dtype=np.float32), np.full(DIM, np.nan, dtype=np.float32)):
        with pytest.raises(InvalidVectorError, match="8 finite numbers"):
            shared.search(query, SearchFilter("harbor"), top_k=3)


def test_writing_a_row_again_replaces_it(empty: Collection) -> None:
    vectors = random_vectors(4)
    for _ in range(2):
        empty.upsert([row(i) for i in range(3)], vectors[:3])
    empty.upsert([row(1, kind="reflection")], vectors[3:])
    empty.flush()
    assert empty.count() == 3
    (match,) = empty.search(vectors[3], SearchFilter("harbor"), top_k=1)
    assert (match.node_id, match.type) == ("n001", "reflection")
    assert match.score == pytest.approx(1, abs=1e-5)


def test_more_rows_than_a_batch_are_all_written_and_listed(empty: Collection) -> None:
    empty.upsert([row(i) for i in range(1201)], random_vectors(1201))
    empty.flush()
    assert empty.node_keys("harbor") == list(range(1201))
    assert len(empty.vectors("harbor", list(range(1201)))) == 1201


def test_deleting_takes_the_named_nodes_of_the_space_only(empty: Collection) -> None:
    empty.upsert([row(1), row(2), row(1, "meadow"), row(1, "harbor@60")], random_vectors(4))
    empty.delete_nodes("harbor", [1, 77])
    assert (empty.node_keys("harbor"), empty.node_keys("meadow"), empty.node_keys("harbor@60")) == ([2], [1], [1])


def test_a_spaces_name_cannot_delete_or_read_the_rows_of_another(empty: Collection) -> None:
    empty.upsert([row(1), row(2)], random_vectors(2))
    hostile = "x'] or pk in ['harbor/1', '"
    empty.delete_nodes(hostile, [2])
    assert empty.node_keys("harbor") == [1, 2]
    assert empty.vectors(hostile, [1, 2]) == {}


HOSTILE = ['"', 'z" or pk != "', 'a" or space != "', "self", "locigraph:self", "\\", "a/1", "%", "{}", "harbor@60"]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_out_of_a_filter_not_even_through_the_iterators_cursor(
    empty: Collection, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus_collection, "BATCH", 10)
    count = 25  # the iterator's third batch
    empty.upsert([row(i, name) for i in range(count)], random_vectors(count))
    empty.upsert([row(9_000 + i, "victim") for i in range(5)], random_vectors(5))
    assert empty.node_keys(name) == list(range(count))
    assert {each.space for each in empty.rows(name).values()} == {name}
    assert sorted(empty.counts()) == sorted([name, "victim"])
    assert (empty.count(name), empty.count("victim"), empty.count()) == (count, 5, count + 5)
    found = empty.search(random_vectors(1)[0], SearchFilter(name), top_k=5)
    assert len(found) == 5
    assert {match.node_id for match in found} <= {NodeId(f"n{i:03d}") for i in range(count)}
    assert set(empty.vectors(name, [0, 9_000])) == {0}
    empty.delete_nodes(name, [*range(count), 9_000])
    assert (empty.count(name), empty.count("victim")) == (0, 5)


def test_structure_that_thousands_of_turns_mention_can_be_indexed(empty: Collection) -> None:
    turns = tuple(TurnId(f"conversation-12:session-7:{i}") for i in range(5000))
    busy = IndexRow("harbor", 1, NodeId("ann"), "entity", 0, turns)
    empty.upsert([busy], random_vectors(1))
    (match,) = empty.search(random_vectors(1)[0], SearchFilter("harbor"), top_k=1)
    assert match.turn_ids == ()  # structure stands for no turn


def test_require_names_what_differs(shared: Collection) -> None:
    shared.require(version="model", schema="schema")
    for expected, message in (
        ({"version": "other", "schema": "schema"}, "version 'model' but 'other'"),
        ({"version": "model", "schema": "new"}, "schema 'schema' but 'new'"),
    ):
        with pytest.raises(IndexMismatchError, match=message):
            shared.require(**expected)


@pytest.mark.parametrize(("field", "value"), [("index", "IVF_FLATT"), ("metric", "L2"), ("index", "AUTOINDEX")])
def test_only_allowed_index_types_and_metrics_are_made(index: MilvusIndex, field: str, value: Any) -> None:
    spec = replace(SPEC, **{field: value})
    with pytest.raises(IndexMismatchError, match="is not supported; use FLAT or HNSW with COSINE or IP"):
        index.create("refused", spec)
    assert not index.has("refused")


def test_a_missing_collection_is_an_error_that_says_what_to_run(index: MilvusIndex) -> None:
    with pytest.raises(IndexMismatchError, match="holds no collection 'absent'; run locigraph build"):
        index.open("absent")
    assert not index.has("absent")
    index.drop("absent")


def test_an_alias_flips_from_one_collection_to_the_next(index: MilvusIndex) -> None:
    for name in ("old", "new"):
        collection = index.create(name, replace(SPEC, version=name))
        collection.upsert([row(1)], random_vectors(1))
    assert index.alias_target("live") is None
    index.point("live", "old")
    assert (index.alias_target("live"), index.open("live").spec.version) == ("old", "old")
    index.point("live", "new")
    index.point("live", "new")
    assert (index.alias_target("live"), index.open("live").spec.version) == ("new", "new")
    assert "live" not in index.collections()


def test_an_alias_of_a_dropped_collection_can_point_at_another(index: MilvusIndex) -> None:
    for name in ("first", "second"):
        index.create(name, SPEC).upsert([row(1)], random_vectors(1))
    index.point("shown", "first")
    index.drop("first")
    assert not index.has("shown")
    index.point("shown", "second")
    assert index.alias_target("shown") == "second"


def test_dropping_an_alias_does_not_drop_what_it_points_at(index: MilvusIndex) -> None:
    index.create("precious", SPEC).upsert([row(1)], random_vectors(1))
    index.point("guard", "precious")
    index.drop("guard")
    assert index.open("guard").count() == 1


def test_making_a_collection_again_empties_it(index: MilvusIndex) -> None:
    index.create("again", SPEC).upsert([row(1)], random_vectors(1))
    assert index.create("again", SPEC).count() == 0


def test_a_dropped_collection_is_an_outage_for_who_still_holds_it(index: MilvusIndex) -> None:
    collection = index.create("gone", SPEC)
    index.drop("gone")
    with pytest.raises(IndexUnavailableError, match="cannot search"):
        collection.search(random_vectors(1)[0], SearchFilter("harbor"), top_k=1)


class Cut(BaseException):
    """What nothing in between may catch."""


def test_a_cut_at_any_call_while_a_collection_is_made_leaves_none_or_a_whole_one(engine: Engine) -> None:
    cuts = 0
    with engine.opened("cut") as index:
        guarded = index._client.guarded
        while True:
            calls = 0

            def cutting(what: str, action: Any) -> Any:
                def call(*arguments: Any, **options: Any) -> Any:
                    nonlocal calls
                    calls += 1
                    if calls == cuts + 1:  # noqa: B023
                        raise Cut
                    return guarded(what, action)(*arguments, **options)

                return call

            index._client.guarded = cutting  # type: ignore[method-assign]
            try:
                index.create("nodes", SPEC)
                break
            except Cut:
                cuts += 1
            finally:
                index._client.guarded = guarded  # type: ignore[method-assign]
            if index.has("nodes"):
                assert index.open("nodes").count() == 0
            assert index.open_or_create("nodes", SPEC).count() == 0
            assert index.collections() == ["nodes"]
    assert cuts >= 6


def test_a_collection_opened_again_knows_what_it_holds(engine: Engine) -> None:
    spec = CollectionSpec(DIM, "IP", "checkpoint-1", "schema", "HNSW")
    with engine.opened("again") as first:
        collection = first.create("nodes", spec)
        collection.upsert([row(i) for i in range(20)], random_vectors(20))
        collection.flush()
    with engine.opened("again") as second:
        opened = second.open("nodes")
        assert opened.spec == spec
        scores = exact(random_vectors(1, 3)[0], random_vectors(20), "IP")
        found = opened.search(random_vectors(1, 3)[0], SearchFilter("harbor"), top_k=4)
        assert [match.node_id for match in found] == [f"n{i:03d}" for i in np.argsort(-scores)[:4]]


def test_a_closed_connection_is_an_outage_and_not_an_empty_result(engine: Engine) -> None:
    index = engine.opened("closed")
    collection = index.create("nodes", SPEC)
    collection.upsert([row(1)], random_vectors(1))
    index.close()
    for action in (
        lambda: collection.search(random_vectors(1)[0], SearchFilter("harbor"), top_k=1),
        collection.count,
        lambda: collection.node_keys("harbor"),
        lambda: collection.vectors("harbor", [1]),
        lambda: collection.upsert([row(2)], random_vectors(1)),
        lambda: collection.delete_nodes("harbor", [1]),
        lambda: collection.rows("harbor"),
        index.collections,
        lambda: index.open("nodes"),
    ):
        with pytest.raises(IndexUnavailableError, match=r"index .* cannot "):
            action()


@pytest.mark.long
def test_an_approximate_index_finds_what_an_exact_one_finds(index: MilvusIndex) -> None:
    vectors, shares = random_vectors(6_000, seed=4), []
    rows = [row(i, ("harbor", "meadow", "cove")[i % 3]) for i in range(6_000)]
    collection = index.create("approximate", CollectionSpec(DIM, "COSINE", "model", "schema", "HNSW"))
    collection.upsert(rows, vectors, are_new=True)
    collection.flush()
    for query in random_vectors(20, seed=5):
        scores = exact(query, vectors[::3], "COSINE")  # of harbor
        wanted = {f"n{3 * place:03d}" for place in np.argsort(-scores)[:10]}
        found = collection.search(query, SearchFilter("harbor"), top_k=10)
        shares.append(len(wanted & {match.node_id for match in found}) / 10)
    index.drop("approximate")
    assert sum(shares) / len(shares) >= 0.99
