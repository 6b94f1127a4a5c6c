from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locigraph.kg.errors import UnknownSpaceError
from locigraph.kg.types import SpaceId
from locigraph.retrieval.errors import IndexMismatchError, IndexUnavailableError
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_collection import Collection, CollectionSpec, IndexRow
from locigraph.retrieval.query_generator import SearchQuery
from locigraph.retrieval.strategies.graph_embedding import GraphEmbeddingRetriever
from tests.fakes import MONDAY, SPACE, make_turns
from tests.fakes_graph import Extra, TableQueryEncoder, make_snapshot
from tests.retrieval.texts import texts_of

HELD = make_snapshot(make_turns(["one", "two", "three"]), [Extra("knowledge_node", "a fact", (0,))])
VECTORS = np.asarray([[2, 0], [1, 1], [0, 3], [9, 9]], dtype=np.float32)
TEXTS = texts_of(HELD)
LATER = MONDAY + timedelta(minutes=1)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    with MilvusIndex(str(tmp_path_factory.mktemp("v2") / "index.db")) as index:
        made = index.create("emb", CollectionSpec(2, "IP", "checkpoint-1", "schema"))
        for space in (str(SPACE), "harbor@early"):
            rows = [
                IndexRow(space, int(HELD.keys[i]), HELD.ids[i], str(HELD.types[i]), int(HELD.recorded_at[i]), turns)
                for i, turns in enumerate(HELD.turns_of)
            ]
            made.upsert(rows, VECTORS if space == SPACE else VECTORS[:, ::-1].copy())
        made.flush()
        yield made


def encoder(version: str = "checkpoint-1") -> TableQueryEncoder:
    return TableQueryEncoder(version, {"across": np.asarray([1, 0], dtype=np.float32)})


def ranking(retriever: GraphEmbeddingRetriever, **options: Any) -> list[tuple[str, float]]:
    return [(str(hit.node_id), hit.score) for hit in retriever.retrieve("across", SPACE, **options).hits]


def test_turns_are_ranked_by_inner_product_in_one_search(collection: Collection) -> None:
    retriever = GraphEmbeddingRetriever(collection, encoder(), TEXTS)
    result = retriever.retrieve("across", SPACE)
    assert [(hit.node_id, hit.score) for hit in result.hits] == [("n0", 2.0), ("n1", 1.0), ("n2", 0.0)]
    assert result.hits[0].signals == {"graph": 2.0}
    assert (result.hits[0].turn_ids, result.hits[0].text) == (("t0",), "Ann: one")
    assert ranking(retriever, top_k=1) == [("n0", 2.0)]


def test_a_looked_up_word_is_found_beyond_the_hits_that_were_asked_for(collection: Collection) -> None:
    query = TableQueryEncoder("checkpoint-1", {"three": np.asarray([0.5, 0], dtype=np.float32)})
    retriever = GraphEmbeddingRetriever(collection, query, TEXTS)
    (hit,) = retriever.retrieve("three", SPACE, top_k=1).hits
    assert (hit.node_id, hit.text, hit.score) == ("n2", "Ann: three", 2.0)
    assert hit.signals == {"graph": 0.0, "looked_up": 2.0}


def test_several_queries_are_one_search_for_the_mean_of_the_question_and_of_the_others(collection: Collection) -> None:
    table = {"across": [1, 0], "up": [0, 1], "down": [0, -3]}
    query = TableQueryEncoder("checkpoint-1", {text: np.asarray(v, dtype=np.float32) for text, v in table.items()})
    days: list[date | None] = []

    def queries(question: str, asked_on: date | None) -> list[SearchQuery]:
        days.append(asked_on)
        return [SearchQuery(text) for text in table]

    plain = GraphEmbeddingRetriever(collection, query, TEXTS)
    asked = plain.with_queries(queries, lambda space: MONDAY.date())
    # The vector is ([1, 0] + ([0, 1] + [0, -3]) / 2) / 2 = [.5, -.5]; the turns are [2, 0], [1, 1] and [0, 3].
    assert ranking(asked) == [("n0", 1.0), ("n1", 0.0), ("n2", -1.5)]
    assert ranking(asked, as_of=LATER) == [("n0", 1.0), ("n1", 0.0)]
    assert days == [MONDAY.date(), LATER.date()]
    assert ranking(plain) == [("n0", 2.0), ("n1", 1.0), ("n2", 0.0)]
    alone = plain.with_queries(lambda question, asked_on: [SearchQuery(question)], lambda space: None)
    assert ranking(alone) == ranking(plain)


def test_later_nodes_are_invisible_and_the_query_is_told_the_time(collection: Collection) -> None:
    query = encoder()
    assert [n for n, _ in ranking(GraphEmbeddingRetriever(collection, query, TEXTS), as_of=LATER)] == [
        "n0",
        "n1",
    ]
    assert query.asked == [("across", LATER)]


def test_a_view_of_the_time_is_searched_when_there_is_one(collection: Collection) -> None:
    retriever = GraphEmbeddingRetriever(
        collection,
        encoder(),
        TEXTS,
        view_of=lambda space, as_of: space if as_of is None else f"{space}@early",
    )
    assert ranking(retriever, as_of=LATER) == [("n1", 1.0), ("n0", 0.0)]
    assert ranking(retriever)[0] == ("n0", 2.0)


def test_a_node_that_is_gone_is_passed_over(collection: Collection) -> None:
    retriever = GraphEmbeddingRetriever(
        collection, encoder(), lambda space, ids, as_of: {n: "text" for n in ids if n != "n0"}
    )
    assert [name for name, _ in ranking(retriever)] == ["n1", "n2"]


def test_collection_and_query_encoder_of_different_checkpoints_are_refused(collection: Collection) -> None:
    with pytest.raises(
        IndexMismatchError, match="checkpoint 'checkpoint-1' but the query encoder is of checkpoint 'other'"
    ):
        GraphEmbeddingRetriever(collection, encoder("other"), TEXTS)


def test_an_unknown_space_is_an_error_and_not_an_empty_result(collection: Collection) -> None:
    with pytest.raises(UnknownSpaceError, match="'nobody'"):
        GraphEmbeddingRetriever(collection, encoder(), TEXTS).retrieve("across", SpaceId("nobody"))


def test_an_outage_is_an_error_and_not_an_empty_result(tmp_path: Path) -> None:
    with MilvusIndex(str(tmp_path / "index.db")) as index:
        made = index.create("emb", CollectionSpec(2, "IP", "checkpoint-1", "schema"))
    with pytest.raises(IndexUnavailableError, match="cannot search"):
        GraphEmbeddingRetriever(made, encoder(), TEXTS).retrieve("across", SPACE)
