from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locigraph.consolidation.blueprint import AddNode, Blueprint, Mention
from locigraph.consolidation.cassette import Cassette
from locigraph.consolidation.linking import Linked, Linker
from locigraph.consolidation.llm import ChatClient, Endpoint
from locigraph.consolidation.pipeline import Consolidator
from locigraph.consolidation.protocols import Context
from locigraph.kg.store import Store
from locigraph.kg.types import NodeUpdate, Turn, TurnId
from locigraph.retrieval.index.memory_vectors import MemoryVectors
from locigraph.retrieval.strategies.hybrid import HybridRetriever
from locigraph.retrieval.strategies.turn_signals import TurnSignals
from tests.consolidation.stub_server import Stub, stub_server
from tests.databases import Place
from tests.fakes import MONDAY, SPACE, FakeContext, FakeEncoder, FakeExtractor, change_of, make_turns
from tests.fakes_graph import lexical_of, make_inputs
from tests.kg.dumps import dump

ENCODER = FakeEncoder(64)
Links = set[tuple[str, str]]


@pytest.fixture
def store(store_at: Place) -> Iterator[Store]:
    with Store(store_at()) as opened:
        yield opened


def build(store: Store, *sessions: Sequence[str], named: Sequence[tuple[str, str, str]] = ()) -> None:
    """Turns of Ann and Ben in turn, named t0, t1 and so on.

    Args:
        store: Where they go.
        sessions: What is said.
        named: Turns that the extractor has name an entity: turn, name, kind.
    """

    def plan(turn: Turn, context: Context) -> Blueprint:
        return Blueprint((), tuple(Mention(name, kind) for of, name, kind in named if of == turn.turn_id))

    store.append_turns(make_turns(*sessions))
    Consolidator(store, FakeExtractor(plan), ENCODER, FakeContext()).run(SPACE)


def links(store: Store, label: str, *, as_of: datetime | None = None) -> Links:
    """Both ends of the edges of a label: turns by their ids, other nodes by their labels."""
    shown = {
        node.id: str(node.provenance[0]) if node.type == "episode" else node.label
        for node in store.nodes(SPACE, include_archived=True)
    }
    found = store.relations(SPACE, as_of=as_of)
    return {(shown[edge.source], shown[edge.target]) for edge in found if edge.label == label}


# --- by rules ------------------------------------------------------------------------------------------------


def test_a_memory_with_a_cue_phrase_is_the_effect_of_the_one_before_it_in_the_session(store: Store) -> None:
    build(store, ["I sold the boat", "Because of the leak?", "It became dear"], ["Therefore I walk", "That's why, yes"])
    assert Linker(store).run(SPACE) == Linked(causes=2)
    # Not "became", and not across sessions.
    assert links(store, "CAUSES") == {("t0", "t1"), ("t3", "t4")}


def test_events_follow_each_other_as_turns_do(store: Store) -> None:
    def plan(turn: Turn, context: Context) -> Blueprint:
        return Blueprint((AddNode("n0", "event_node", turn.text, (turn.turn_id,)),))

    store.append_turns(make_turns(["the roof leaked", "hm"], ["we moved due to the rain"]))
    Consolidator(store, FakeExtractor(plan), ENCODER, FakeContext()).run(SPACE)
    assert Linker(store).run(SPACE) == Linked(causes=1)
    assert links(store, "CAUSES") == {("hm", "we moved due to the rain")}


def test_a_name_that_stands_in_a_memory_links_it_to_the_entity(store: Store) -> None:
    build(
        store,
        ["My dog is Rex", "Rex's bone!", "Rexon is a firm", "rex means king", "Lisbon or Porto"],
        named=[("t0", "Rex", "person"), ("t0", "Porto", "location")],
    )
    assert Linker(store).run(SPACE) == Linked(mentions=2)
    assert links(store, "MENTIONS") == {("t0", "Rex"), ("t0", "Porto"), ("t1", "Rex"), ("t4", "Porto")}


def test_facts_are_linked_to_the_names_in_them(store: Store) -> None:
    build(store, ["Rex"], named=[("t0", "Rex", "person")])

    def plan(turn: Turn, context: Context) -> Blueprint:
        return Blueprint((AddNode("n0", "knowledge_node", "Ann walks Rex daily", (turn.turn_id,)),))

    store.append_turns(make_turns(["Rex", "I walk him daily"]))
    Consolidator(store, FakeExtractor(plan), ENCODER, FakeContext()).run(SPACE)
    assert Linker(store).run(SPACE) == Linked(mentions=1)
    assert ("Ann walks Rex daily", "Rex") in links(store, "MENTIONS")


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("We", "person", "We are off"),  # a stop word
        ("Taking care", "other", "Taking care of it"),  # of no kind that has names
        ("Ann", "person", "Ann and Ben"),  # a speaker
        ("Benny", "person", "Benny left"),  # holds a speaker's name, but is another
        ("Be", "person", "Be off"),
        ("kids", "person", "kids play"),  # no capital
        ("Ben's", "person", "Ben's here"),  # nothing but a speaker's name
    ],
)
def test_pronouns_nouns_and_speakers_have_no_links_by_name(store: Store, name: str, kind: str, text: str) -> None:
    build(store, ["hello", text], named=[("t0", name, kind)])
    expected = Linked(mentions=1) if name == "Benny" else Linked()
    assert Linker(store).run(SPACE) == expected


def test_a_second_run_changes_nothing(store: Store, store_at: Place) -> None:
    build(store, ["My dog is Rex", "So that Rex barks"], named=[("t0", "Rex", "person")])
    assert Linker(store).run(SPACE) == Linked(1, 1)
    rows, revision = dump(store_at()), store.revision(SPACE)
    assert Linker(store).run(SPACE) == Linked()
    assert dump(store_at()) == rows
    assert store.revision(SPACE) == revision


def test_a_link_is_known_when_both_of_its_ends_are(store: Store) -> None:
    build(store, ["Rex?", "because Rex", "ok"], named=[("t2", "Rex", "person")])
    Linker(store).run(SPACE)
    minute = [MONDAY + timedelta(minutes=number) for number in range(3)]
    assert [links(store, "CAUSES", as_of=time) for time in minute] == [set(), {("t0", "t1")}, {("t0", "t1")}]
    assert [len(links(store, "MENTIONS", as_of=time)) for time in minute] == [0, 0, 3]


def test_a_link_is_not_known_before_the_words_that_make_it(store: Store) -> None:
    build(store, ["My dog is Rex", "he barks"], named=[("t0", "Rex", "person")])
    later = make_turns(["My dog is Rex", "he barks", "Rex barks, I mean"])[2]
    store.append_turns([later])
    barks = next(node for node in store.nodes(SPACE) if node.provenance == ("t1",))
    store.commit(change_of(later, updates=[NodeUpdate(barks.id, description="Ben: Rex barks")]))
    Linker(store).run(SPACE)
    assert ("t1", "Rex") not in links(store, "MENTIONS", as_of=MONDAY + timedelta(minutes=1))
    assert ("t1", "Rex") in links(store, "MENTIONS", as_of=MONDAY + timedelta(minutes=2))


def test_links_go_with_a_forgotten_turn(store: Store) -> None:
    build(store, ["My dog is Rex", "because Rex barks", "fine"], named=[("t0", "Rex", "person")])
    Linker(store).run(SPACE)
    store.forget(SPACE, [TurnId("t1")])
    assert links(store, "CAUSES") == set()
    assert links(store, "MENTIONS") == {("t0", "Rex")}
    assert Linker(store).run(SPACE) == Linked()
    assert store.faults() == []


def test_that_links_are_lost_is_said_where_a_space_is_made_anew(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    turns = make_turns(["first", "I sold it", "because it leaked"])
    store.append_turns(turns[1:])
    Consolidator(store, FakeExtractor(), ENCODER, FakeContext()).run(SPACE)
    Linker(store).run(SPACE)
    store.append_turns(turns)
    assert "run locigraph link again" in caplog.text


def test_v1_v2_and_the_fusion_read_none_of_these_links(store: Store) -> None:
    build(store, ["My dog is Rex", "because Rex barks"], named=[("t0", "Rex", "person")])
    before = store.snapshot(SPACE, embedding_model=ENCODER.model_id)
    assert Linker(store).run(SPACE) == Linked(1, 1)
    after = store.snapshot(SPACE, embedding_model=ENCODER.model_id)
    assert len(after.source) == len(before.source) + 2

    question = "Why does Rex bark?"
    vector = ENCODER.encode([question])[0]
    found = []
    for seen in (before, after):
        vectors = MemoryVectors()
        vectors.add_snapshot(seen)
        v1 = HybridRetriever(lexical_of(seen), vectors, ENCODER)
        found.append([(hit.node_id, hit.score) for hit in v1.retrieve(question, SPACE).hits])
    assert found[0] == found[1]
    assert np.array_equal(TurnSignals(before).of(question, vector), TurnSignals(after).of(question, vector))
    inputs = [make_inputs(seen) for seen in (before, after)]
    for field in fields(inputs[0]):
        np.testing.assert_array_equal(getattr(inputs[0], field.name), getattr(inputs[1], field.name), field.name)


# --- by a language model -------------------------------------------------------------------------------------


@contextmanager
def asked(tmp_path: Path, answer: Callable[[dict[str, Any]], Any]) -> Iterator[tuple[ChatClient, list[dict[str, Any]]]]:
    """A client of a model that answers a request's document, and all requests that came, with their documents."""
    requests: list[dict[str, Any]] = []

    def reply(request: dict[str, Any]) -> Any:
        requests.append({**request, "document": json.loads(request["messages"][1]["content"])})
        return answer(requests[-1]["document"])

    with stub_server(Stub(reply)) as stub:
        yield ChatClient(Endpoint(stub.url, "m"), Cassette(tmp_path / "c.sqlite")), requests


def of_pronouns(document: dict[str, Any]) -> Any:
    """Who barks is the first entity, and barks wake who speaks next."""
    ids, entities = [each["id"] for each in document["memories"]], document["entities"]
    barking = [number for number, each in enumerate(document["memories"]) if "barks" in each["text"]]
    return {
        "causes": [{"cause": ids[n], "effect": woken} for n in barking for woken in ids[n + 1 : n + 2]],
        "mentions": [{"memory": ids[n], "entity": each["id"]} for n in barking for each in entities[:1]],
    }


def test_a_model_links_what_no_rule_does_and_is_asked_once_about_each_memory(store: Store, tmp_path: Path) -> None:
    build(store, ["My dog is Rex", "hm", "he barks", "I am awake", "sorry"], named=[("t0", "Rex", "person")])
    with asked(tmp_path, of_pronouns) as (client, requests):
        assert Linker(store).run(SPACE, client) == Linked(1, 1)
        assert len(requests) == 5
        assert Linker(store).run(SPACE, client) == Linked()
        assert len(requests) == 5
    assert links(store, "CAUSES") == {("t2", "t3")}
    assert links(store, "MENTIONS") == {("t0", "Rex"), ("t2", "Rex")}
    first = requests[0]["document"]  # two steps around t0
    assert [each["text"] for each in first["memories"]] == ["Ann: My dog is Rex", "Ben: hm", "Ann: he barks"]
    assert first["entities"] == [{"id": "e1", "name": "Rex"}]
    form = requests[0]["response_format"]["json_schema"]["schema"]["properties"]
    assert form["causes"]["items"]["properties"]["cause"]["enum"] == ["m1", "m2", "m3"]
    assert form["mentions"]["items"]["properties"]["entity"]["enum"] == ["e1"]
    assert client.ledger.by_stage()["links"].calls == 5


def test_no_mentions_are_asked_for_where_nothing_is_named(store: Store, tmp_path: Path) -> None:
    build(store, ["hello", "hi"])
    with asked(tmp_path, lambda document: {"causes": []}) as (client, requests):
        assert Linker(store).run(SPACE, client) == Linked()
    assert list(requests[0]["response_format"]["json_schema"]["schema"]["properties"]) == ["causes"]


def test_memories_wait_while_turns_are_pending_that_may_come_after_them(store: Store, tmp_path: Path) -> None:
    build(store, ["hello", "hi"])
    store.append_turns(make_turns(["hello", "hi", "more to come"]))
    with asked(tmp_path, of_pronouns) as (client, requests):
        assert Linker(store).run(SPACE, client) == Linked()
    assert requests == []


def test_turns_that_came_later_are_asked_about_with_those_before(store: Store, tmp_path: Path) -> None:
    build(store, ["My dog is Rex", "hm"], named=[("t0", "Rex", "person")])
    with asked(tmp_path, of_pronouns) as (client, requests):
        Linker(store).run(SPACE, client)
        build(store, ["My dog is Rex", "hm", "well"])
        assert Linker(store).run(SPACE, client) == Linked()
    # The first two turns are shown the same, which the cassette answers the second time.
    assert [len(each["document"]["memories"]) for each in requests] == [2, 3]


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "links_",
    [
        {"causes": [{"cause": "m1", "effect": "m9"}], "mentions": []},
        {"causes": [{"cause": "m1", "effect": "m1"}], "mentions": []},
        {"causes": [{"cause": "m1", "effect": "e1"}], "mentions": []},
        {"causes": [], "mentions": [{"memory": "m1", "entity": "e2"}]},
        {"causes": [], "mentions": [{"memory": "e1", "entity": "m1"}]},
        {"causes": [{"cause": "m1", "effect": "m2"}] * 9, "mentions": []},
    ],
)
def test_a_reply_that_names_what_was_not_shown_or_too_much_is_told_so_once_and_then_passed_over(
    store: Store, tmp_path: Path, links_: dict[str, Any]
) -> None:
    build(store, ["My dog is Rex", "hm"], named=[("t0", "Rex", "person")])
    with asked(tmp_path, lambda document: links_) as (client, requests):
        assert Linker(store).run(SPACE, client) == Linked(useless=2)
        assert Linker(store).run(SPACE, client) == Linked()
    assert len(requests) == 4
    assert list((tmp_path / "c.failed").iterdir())
    with asked(tmp_path / "again", lambda document: {"causes": [], "mentions": []}) as (client, requests):
        assert Linker(store).run(SPACE, client, retry_failed=True) == Linked()
        assert Linker(store).run(SPACE, client, retry_failed=True) == Linked()
    assert len(requests) == 1  # both memories are shown with each other
    assert links(store, "CAUSES") == set()
    assert links(store, "MENTIONS") == {("t0", "Rex")}


def test_a_run_that_is_stopped_goes_on_with_the_next_memory(store: Store, tmp_path: Path) -> None:
    build(store, ["My dog is Rex", "hm", "he barks", "I am awake", "sorry"], named=[("t0", "Rex", "person")])
    with asked(tmp_path, of_pronouns) as (client, requests):
        Linker(store).run(SPACE, client, is_stopped=lambda: len(requests) >= 2)
        assert len(requests) == 2
        Linker(store).run(SPACE, client)
    assert len(requests) == 5
    assert links(store, "CAUSES") == {("t2", "t3")}


def test_a_model_is_shown_the_entities_that_memories_nearby_name(store: Store, tmp_path: Path) -> None:
    build(
        store, ["My dog is Rex", "hm", "well", "so", "my cat is Tom"],
        named=[("t0", "Rex", "person"), ("t4", "Tom", "person")],
    )  # fmt: skip
    with asked(tmp_path, lambda document: {"causes": [], "mentions": []}) as (client, requests):
        Linker(store).run(SPACE, client)
    named = [[each["name"] for each in request["document"]["entities"]] for request in requests]
    assert (named[0], named[2], named[-1]) == (["Rex"], ["Rex", "Tom"], ["Tom"])
