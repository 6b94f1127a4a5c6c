"""What language models change in a graph keeps its history, and leaves every index where it should."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from locigraph.assembly.build_context import HybridContext
from locigraph.consolidation.cassette import Cassette
from locigraph.consolidation.extractors.language_model import LLMExtractor
from locigraph.consolidation.llm import ChatClient, Endpoint
from locigraph.consolidation.pipeline import Consolidator
from locigraph.kg.store import Store
from locigraph.kg.types import Node, NodeStatus, TurnId
from locigraph.retrieval.index.descriptions import DescriptionIndexer
from locigraph.retrieval.index.documents import LexicalIndex
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.strategies.hybrid import HybridRetriever
from tests.consolidation.stub_server import Stub, extracted, stub_server
from tests.fakes import MONDAY, SPACE, FakeEncoder, make_turns

ENCODER = FakeEncoder(512)
#: One turn a week: a fact, and then what becomes of it.
SAID = ["I live in Porto by the river.", "I moved to Lisbon last week.", "I never lived in Lisbon, that was a joke."]
REWORDED = "Ann lives in Porto near the old bridge."


def week(number: int) -> datetime:
    """The moment of a turn."""
    return MONDAY + timedelta(days=7 * number)


def architect(request: dict[str, Any]) -> Any:
    """Adds a fact at the first turn, supersedes it at the second, and archives its successor at the third."""
    reply = extracted(request)
    document = json.loads(request["messages"][1]["content"])
    known = {each["text"]: each["id"] for each in document.get("known_nodes", [])}
    if "plan" in document:
        return reply
    told = document["turn"]["said"]
    for text, node_id in known.items():
        if "moved to Lisbon" in told and "Porto" in text:
            reply["supersede"] = [{"id": node_id, "successor": "n1"}]
        if "joke" in told and "moved to Lisbon" in text:
            reply |= {"add": [], "archive": [node_id]}
        if "bridge" in told and "Porto" in text:
            reply |= {"add": [], "update": [{"id": node_id, "draft": REWORDED}]}
    return reply


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "graph.sqlite") as opened:
        yield opened


def build(store: Store, folder: Path, texts: list[str]) -> None:
    store.append_turns(make_turns(*([text] for text in texts)))
    with stub_server(Stub(architect)) as stub:
        client = ChatClient(Endpoint(stub.url, "m"), Cassette(folder / "c.sqlite"))
        context = HybridContext(store, ENCODER)
        Consolidator(store, LLMExtractor(client, client), ENCODER, context).run(SPACE)
    assert store.failures(SPACE) == []


def fact_of(store: Store, words: str, as_of: datetime | None = None) -> Node:
    nodes = store.nodes(SPACE, types=["knowledge_node"], as_of=as_of, include_archived=True)
    return next(node for node in nodes if words in node.description)


def test_a_contradicting_fact_closes_the_earlier_one_when_the_architect_says_so(store: Store, tmp_path: Path) -> None:
    build(store, tmp_path, SAID[:2])
    porto, lisbon = fact_of(store, "Porto"), fact_of(store, "moved to Lisbon")
    assert (porto.valid_to, lisbon.valid_to) == (week(1), None)
    assert porto.status == NodeStatus.ACTIVE
    assert fact_of(store, "Porto", week(0)).valid_to is None
    ends = [(e.source, e.target) for e in store.relations(SPACE) if e.label == "SUPERSEDED_BY"]
    assert ends == [(porto.id, lisbon.id)]


def test_a_contradicting_fact_closes_nothing_of_itself(store: Store, tmp_path: Path) -> None:
    build(store, tmp_path, [SAID[0], "I left Porto and live in Faro now."])
    assert {node.valid_to for node in store.nodes(SPACE, types=["knowledge_node"])} == {None}


def test_a_reworded_fact_keeps_its_earlier_words_for_earlier_times(store: Store, tmp_path: Path) -> None:
    build(store, tmp_path, [SAID[0], "My house in Porto is near the old bridge."])
    node = fact_of(store, "bridge")
    assert (node.description, node.provenance) == (REWORDED, ("t0", "t1"))
    before = store.node(SPACE, node.id, as_of=week(0))
    assert (before.description, before.provenance) == (f"Ann said: {SAID[0]}", ("t0",))


def test_an_archived_fact_leaves_every_index_and_comes_back_by_the_time_before(store: Store, tmp_path: Path) -> None:
    build(store, tmp_path, SAID)
    gone = fact_of(store, "moved to Lisbon")
    assert gone.status == NodeStatus.ARCHIVED
    assert store.node(SPACE, gone.id, as_of=week(1)).status == NodeStatus.ACTIVE
    with MilvusIndex(str(tmp_path / "index.db")) as index:
        indexer = DescriptionIndexer(store, index, ENCODER.model_id)
        indexer.drain()
        indexer.require_complete([SPACE])
        held = {row.node_id for row in indexer.collection().rows(SPACE).values()}
        assert fact_of(store, "Porto").id in held
        assert gone.id not in held
        words = LexicalIndex(lambda space, as_of: store.snapshot(space, as_of=as_of))
        v1 = HybridRetriever(words, indexer.collection(), ENCODER)
        now, then = (v1.retrieve(gone.description, SPACE, as_of=time).hits for time in (None, week(1)))
    assert gone.id not in {hit.node_id for hit in now}
    assert gone.id in {hit.node_id for hit in then}
    assert not [hit for hit in then if "joke" in hit.text]


def test_forgetting_the_turn_that_archived_a_fact_brings_it_back_for_every_time(store: Store, tmp_path: Path) -> None:
    build(store, tmp_path, [*SAID, "I like tea."])
    gone = fact_of(store, "moved to Lisbon")
    assert (gone.status, gone.attributes["archived_by"]) == (NodeStatus.ARCHIVED, "t2")
    store.forget(SPACE, [TurnId("t2")])
    with MilvusIndex(str(tmp_path / "index.db")) as index:
        indexer = DescriptionIndexer(store, index, ENCODER.model_id)
        indexer.drain()
        indexer.require_complete([SPACE])
        assert gone.id in {row.node_id for row in indexer.collection().rows(SPACE).values()}
    for as_of in (None, week(1), week(2), week(3)):
        node = store.node(SPACE, gone.id, as_of=as_of)
        assert (node.status, "archived_by" in node.attributes) == (NodeStatus.ACTIVE, False)
