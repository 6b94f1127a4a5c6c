from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from locigraph.assembly.build_context import HybridContext
from locigraph.consolidation import classification
from locigraph.consolidation.blueprint import Wording
from locigraph.consolidation.cassette import Cassette
from locigraph.consolidation.classification import (
    Classified,
    Classifier,
    LLMNamer,
    _beside_speakers,
    category_types,
    key_terms,
)
from locigraph.consolidation.errors import ConsolidationError
from locigraph.consolidation.llm import ChatClient, Endpoint
from locigraph.consolidation.pipeline import Consolidator
from locigraph.kg.store import Store
from locigraph.kg.types import GraphChange, NewNode, NewRelation, NodeId, NodeStatus, NodeUpdate, Relation
from tests.consolidation.endpoints import NOWHERE
from tests.consolidation.stub_server import Stub, stub_server
from tests.databases import Place
from tests.fakes import MONDAY, SPACE, FakeContext, FakeEncoder, FakeExtractor, change_of, make_turn, make_turns
from tests.fakes_graph import make_snapshot
from tests.kg.dumps import dump

BOATS = ["red boat sails harbor", "blue boat sails harbor", "old boat sails harbor", "green boat leaves harbor"]
SOUP = ["tomato soup needs salt", "carrot soup needs salt", "leek soup needs salt", "onion soup needs pepper"]
ENCODER = FakeEncoder(512)


@pytest.fixture
def store(store_at: Place) -> Iterator[Store]:
    with Store(store_at()) as opened:
        yield opened


def build(store: Store, texts: Sequence[str]) -> None:
    """A fact of each text; the same texts again are passed over."""
    store.append_turns(make_turns(texts))
    Consolidator(store, FakeExtractor(), ENCODER, FakeContext()).run(SPACE)


def held(store: Store) -> dict[str, list[str]]:
    """Texts under each category by its label."""
    nodes = {node.id: node for node in store.nodes(SPACE, include_archived=True)}
    found: dict[str, list[str]] = {}
    for edge in contains(store):
        said = nodes[edge.target].description.split(": ", 1)[1]
        found.setdefault(nodes[edge.source].label, []).append(said)
    return {label: sorted(texts) for label, texts in found.items()}


def contains(store: Store) -> list[Relation]:
    return [edge for edge in store.relations(SPACE) if edge.label == "CONTAINS"]


def classifier(store: Store) -> Classifier:
    return Classifier(store, ENCODER, threshold=0.3)  # "Ann said" is in all texts


def test_the_schema_says_which_nodes_have_categories() -> None:
    assert category_types() == {"event_node": "event_category", "knowledge_node": "knowledge_category"}


def test_nodes_alike_come_under_one_category_of_their_key_terms_and_one_like_nothing_under_none(store: Store) -> None:
    build(store, [*BOATS, *SOUP, "thunder rolls"])
    assert classifier(store).run(SPACE) == Classified(nodes=8, categories=2, waiting=1)
    found = held(store)
    assert sorted(found.values()) == sorted([sorted(BOATS), sorted(SOUP)])
    labels = {label: texts[0] for label, texts in found.items()}
    assert {"boat" in label or "harbor" in label for label, text in labels.items() if "boat" in text} == {True}
    category = store.nodes(SPACE, types=["knowledge_category"])[0]
    assert category.description.startswith("Facts about ")


def test_a_later_node_joins_the_category_it_fits_and_running_again_changes_nothing(
    store: Store, store_at: Place
) -> None:
    build(store, [*BOATS, *SOUP])
    classifier(store).run(SPACE)
    before = store.node_counts(SPACE)["knowledge_category"]
    build(store, [*BOATS, *SOUP, "white boat sails harbor"])
    assert classifier(store).run(SPACE) == Classified(nodes=1)
    assert store.node_counts(SPACE)["knowledge_category"] == before
    assert "white boat sails harbor" in next(texts for texts in held(store).values() if BOATS[0] in texts)
    rows = dump(store_at())
    assert classifier(store).run(SPACE) == Classified()
    assert dump(store_at()) == rows


def test_a_memory_that_is_classified_after_each_turn_has_the_categories_of_one_that_is_classified_once(
    store: Store,
) -> None:
    told = [*BOATS, "thunder rolls", *SOUP]
    for number in range(len(told)):
        build(store, told[: number + 1])
        classifier(store).run(SPACE)
    assert sorted(held(store).values()) == sorted([sorted(BOATS), sorted(SOUP)])


def test_a_category_is_not_known_before_what_it_was_made_of_and_goes_with_it(store: Store) -> None:
    build(store, BOATS)
    classifier(store).run(SPACE)
    assert store.nodes(SPACE, types=["knowledge_category"], as_of=MONDAY + timedelta(minutes=2)) == []
    category = store.nodes(SPACE, types=["knowledge_category"], as_of=MONDAY + timedelta(minutes=3))[0]
    assert category.provenance == ("t0", "t1", "t2", "t3")
    store.forget(SPACE, [make_turns(BOATS)[0].turn_id])
    assert store.nodes(SPACE, types=["knowledge_category"]) == []  # its words may be those that were forgotten
    assert classifier(store).run(SPACE) == Classified(nodes=3, categories=1)


def test_archived_nodes_are_left_out(store: Store) -> None:
    build(store, BOATS)
    gone = store.nodes(SPACE, types=["knowledge_node"])[0]
    last = make_turns([*BOATS, "I was wrong"])[4]
    store.append_turns([last])
    store.commit(change_of(last, updates=[NodeUpdate(gone.id, status=NodeStatus.ARCHIVED)], encoder=ENCODER))
    assert classifier(store).run(SPACE).nodes == 3
    assert gone.id not in {edge.target for edge in contains(store)}


@pytest.mark.sqlite
def test_a_model_may_name_categories_and_key_terms_take_its_place_where_it_fails(store: Store, tmp_path: Path) -> None:
    build(store, BOATS)
    with stub_server(Stub(lambda request: {"label": "sailing\nboats", "description": "Boats that sail."})) as stub:
        client = ChatClient(Endpoint(stub.url, "m"), Cassette(tmp_path / "c.sqlite"))
        classifier(store).run(SPACE, LLMNamer(client, SPACE))
    assert list(held(store)) == ["sailing boats"]
    assert "boat sails harbor" in stub.requests[0]["messages"][1]["content"]
    assert client.ledger.by_stage()["category"].calls == 1
    with stub_server(Stub(lambda request: {"name": "boats"})) as stub:
        client = ChatClient(Endpoint(stub.url, "m"), Cassette(tmp_path / "d.sqlite"))
        assert LLMNamer(client, SPACE)("knowledge_node", BOATS, [*BOATS, *SOUP]) == key_terms(
            "knowledge_node", BOATS, [*BOATS, *SOUP]
        )


def test_what_an_earlier_version_filed_as_like_nothing_joins_a_category_when_alike_ones_come(store: Store) -> None:
    build(store, [BOATS[0], "thunder rolls"])
    text = "Facts that are like no others."
    rest = NewNode("r", "knowledge_category", "other facts", text, (), embedding=ENCODER.encode([text])[0])
    store.commit(
        GraphChange(
            SPACE,
            MONDAY + timedelta(hours=1),
            nodes=(rest,),
            relations=tuple(
                NewRelation("r", "CONTAINS", fact.id) for fact in store.nodes(SPACE, types=["knowledge_node"])
            ),
            embedding_model=ENCODER.model_id,
        )
    )
    build(store, [BOATS[0], "thunder rolls", *BOATS[1:]])
    assert classifier(store).run(SPACE) == Classified(nodes=4, categories=1, waiting=1)
    assert sorted(BOATS) in held(store).values()


def test_nodes_behind_a_batch_like_no_others_are_looked_at_and_all_that_wait_are_counted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classification, "_BATCH", 3)
    alone = ["thunder rolls", "snow falls", "hail"]
    build(store, [*alone, *BOATS, "red kite", "calm sea"])
    # The first three boats are one batch; the fourth joins them.
    assert classifier(store).run(SPACE) == Classified(nodes=4, categories=1, waiting=5)
    assert sorted(held(store).values()) == [sorted(BOATS)]


def test_nodes_that_wait_are_looked_at_again_when_later_ones_made_a_category(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classification, "_BATCH", 3)
    build(store, ["green boat leaves harbor", "thunder rolls", "snow falls", *BOATS[:3]])
    assert classifier(store).run(SPACE) == Classified(nodes=4, categories=1, waiting=2)
    assert sorted(BOATS) in held(store).values()


def test_key_terms_are_frequent_in_the_cluster_and_rare_elsewhere() -> None:
    everything = ["Ann said: soup salt", "Ann said: soup pepper", "Ann said: boats", "Ann said: rain", "Ann said: wind"]
    named = key_terms("event_node", everything[:2], everything)
    assert named == Wording("soup pepper salt", "Events about soup, pepper, salt, such as: Ann said: soup salt")


def test_a_threshold_that_no_cosine_meets_is_refused(store: Store) -> None:
    with pytest.raises(ConsolidationError, match=r"threshold is 1\.5"):
        Classifier(store, ENCODER, threshold=1.5)


def test_it_is_stopped_between_batches(store: Store) -> None:
    build(store, BOATS)
    assert classifier(store).run(SPACE, is_stopped=lambda: True) == Classified()


def test_a_build_and_a_classification_may_run_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    texts = [f"{text} {word}" for word in ("today", "again", "once", "twice", "soon") for text in (*BOATS, *SOUP)]
    with Store(path) as writer, Store(path) as beside:
        writer.append_turns(make_turns(texts))
        faults: list[BaseException] = []

        def consolidate() -> None:
            try:
                context = HybridContext(writer, ENCODER)
                Consolidator(writer, FakeExtractor(), ENCODER, context).run(SPACE)
            except BaseException as error:
                faults.append(error)

        building = threading.Thread(target=consolidate)
        building.start()
        runs = 0
        while building.is_alive():
            classifier(beside).run(SPACE)
            runs += 1
        building.join()
        classifier(beside).run(SPACE)
        assert faults == []
        assert runs > 0
        facts = {node.id for node in beside.nodes(SPACE, types=["knowledge_node"])}
        under = Counter(edge.target for edge in contains(beside))
        assert len(facts) == len(texts)
        assert under == Counter(dict.fromkeys(facts, 1))


@pytest.mark.sqlite
def test_the_namer_is_not_asked_where_nothing_is_new(store: Store, tmp_path: Path) -> None:
    build(store, BOATS)
    classifier(store).run(SPACE)
    client = ChatClient(Endpoint(NOWHERE, "m", deadline_s=0), Cassette(tmp_path / "c.sqlite"))
    build(store, [*BOATS, "white boat sails harbor"])
    assert classifier(store).run(SPACE, LLMNamer(client, SPACE)) == Classified(nodes=1)
    assert all(NodeId(edge.source) for edge in contains(store))


def test_what_a_speaker_s_nodes_have_in_common_is_taken_away() -> None:
    vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], dtype=np.float32)
    turns = [replace(make_turn(number, "x"), speaker=name) for number, name in enumerate(["Ann", "Ben", "Eve"])]
    found = _beside_speakers(replace(make_snapshot(turns), embeddings=vectors), np.arange(3))
    assert found == pytest.approx(vectors, abs=1e-6)  # the mean of one node has the direction of that node
    alone = make_snapshot([replace(turn, speaker="Ann") for turn in turns[:2]])
    found = _beside_speakers(replace(alone, embeddings=vectors[:2]), np.arange(2))
    far = np.array([11, -1]) / math.sqrt(122)  # (1, 0) minus a twelfth of (1, 1)
    assert found == pytest.approx(np.array([far, far[::-1]]), abs=1e-6)
