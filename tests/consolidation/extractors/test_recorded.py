from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from locigraph.assembly.build_context import HybridContext
from locigraph.consolidation.blueprint import AddNode, ContextNode, UpdateNode
from locigraph.consolidation.errors import ConsolidationError
from locigraph.consolidation.extractors.recorded import RecordedExtractor
from locigraph.consolidation.pipeline import Consolidator
from locigraph.consolidation.protocols import Context
from locigraph.kg.corpora import Conversation, Extractions, RecordedEvent, RecordedItem
from locigraph.kg.store import Store
from locigraph.kg.types import NodeId, Turn, TurnId
from tests.fakes import FakeContext, FakeEncoder, make_conversation

T0, T1, T2 = TurnId("t0"), TurnId("t1"), TurnId("t2")
NOTHING = Context((), ())


def conversation(**parts: object) -> Conversation:
    return make_conversation(
        ["I sail old boats.", "Nice weather!", "We bought bread."],
        extractions=Extractions(**parts),  # type: ignore[arg-type]  # tests pass what they test
    )


def added(source: Conversation, turn: Turn, context: Context = NOTHING) -> list[AddNode]:
    plan = RecordedExtractor([source]).plan(turn, context)
    return [operation for operation in plan.operations if isinstance(operation, AddNode)]


def test_a_fact_is_added_at_the_last_of_its_turns() -> None:
    source = conversation(facts=(RecordedItem("Ann sails", (T2, T0)),))
    assert [added(source, turn) == [] for turn in source.turns] == [True, True, False]
    (operation,) = added(source, source.turns[2])
    assert (operation.type, operation.draft, set(operation.turn_ids)) == ("knowledge_node", "Ann sails", {T0, T2})


def test_an_event_is_pinned_to_the_turn_that_holds_half_of_its_words() -> None:
    # Stems: ann, sail, old, boat. The first turn holds all four.
    source = conversation(events=(RecordedEvent("Ann sails old boats", (T0, T1, T2), date(2024, 1, 1), None),))
    (operation,) = added(source, source.turns[0])
    assert operation.turn_ids == (T0,)
    assert operation.days == (date(2024, 1, 1), date(2024, 1, 1))


def test_an_event_that_no_turn_holds_keeps_all_its_turns() -> None:
    source = conversation(events=(RecordedEvent("Someone visited Lisbon", (T0, T1), None, None),))
    (operation,) = added(source, source.turns[1])
    assert (operation.turn_ids, operation.days) == ((T0, T1), None)


def test_an_end_before_its_beginning_is_no_end() -> None:
    event = RecordedEvent("Ann sails old boats", (T0,), date(2024, 1, 5), date(2024, 1, 1))
    source = conversation(events=(event,))
    assert added(source, source.turns[0])[0].days == (date(2024, 1, 5), date(2024, 1, 5))


def test_a_fact_that_the_graph_holds_word_for_word_is_said_again() -> None:
    source = conversation(facts=(RecordedItem("Ann sailed yesterday", (T0,)),))
    shown = ContextNode(NodeId("held"), "knowledge_node", "Ann sailed yesterday (31 December 2023)")
    plan = RecordedExtractor([source]).plan(source.turns[0], Context((shown,), ()))
    assert plan.operations == (UpdateNode(NodeId("held"), turn_ids=(T0,)),)


def test_an_event_in_the_words_of_a_fact_is_an_event() -> None:
    source = conversation(events=(RecordedEvent("Ann sails old boats", (T0,), None, None),))
    shown = ContextNode(NodeId("held"), "knowledge_node", "Ann sails old boats")
    (operation,) = added(source, source.turns[0], Context((shown,), ()))
    assert operation.type == "event_node"


def test_all_turns_of_a_fact_that_is_recorded_again_are_its_sources(tmp_path: Path) -> None:
    facts = (RecordedItem("Ann sails", (T0,)), RecordedItem("Ann sails", (T1, T2)))
    source = conversation(facts=facts)
    with Store(tmp_path / "graph.sqlite") as store:
        store.append_turns(source.turns)
        encoder = FakeEncoder()
        Consolidator(store, RecordedExtractor([source]), encoder, HybridContext(store, encoder)).run(source.space)
        (fact,) = store.nodes(source.space, types=["knowledge_node"])
        assert {*fact.provenance} == {T0, T1, T2}
        assert sum(edge.label == "DERIVED_FROM" for edge in store.relations(source.space)) == 3


def test_a_further_turn_of_a_fact_that_is_recorded_again_may_be_forgotten(tmp_path: Path) -> None:
    facts = (RecordedItem("Ann sails", (T0,)), RecordedItem("Ann sails", (T1, T2)))
    source = conversation(facts=facts)
    with Store(tmp_path / "graph.sqlite") as store:
        store.append_turns(source.turns)
        store.forget(source.space, [T1])
        encoder = FakeEncoder()
        Consolidator(store, RecordedExtractor([source]), encoder, HybridContext(store, encoder)).run(source.space)
        (fact,) = store.nodes(source.space, types=["knowledge_node"])
        assert {*fact.provenance} == {T0, T2}


def test_a_turn_may_be_the_last_of_all_facts_of_its_session(tmp_path: Path) -> None:
    source = conversation(facts=tuple(RecordedItem(f"Fact {number}", (T0, T2)) for number in range(99)))
    with Store(tmp_path / "graph.sqlite") as store:
        store.append_turns(source.turns)
        Consolidator(store, RecordedExtractor([source]), FakeEncoder(), FakeContext()).run(source.space)
        assert store.failures(source.space) == []
        assert store.node_counts(source.space)["knowledge_node"] == 99


def test_names_become_mentions_and_times_do_not() -> None:
    entities = (RecordedItem("Ann", (T0,), "Who"), RecordedItem("Monday", (T0,), "When"))
    source = conversation(entities=entities, topics=(RecordedItem("sailing of old boats", (T0, T1)),))
    plan = RecordedExtractor([source]).plan(source.turns[0], NOTHING)
    assert [(m.name, m.kind) for m in plan.mentions] == [("Ann", "person")]
    assert [(t.label, t.description) for t in plan.topics] == [("sailing old boats", "sailing of old boats")]


def test_the_expected_texts_are_those_that_will_be_embedded() -> None:
    source = conversation(facts=(RecordedItem("Ann sailed yesterday", (T0,)),), entities=(RecordedItem("Ann", (T0,)),))
    extractor = RecordedExtractor([source])
    assert extractor.expected_texts(source.turns) == ["Ann sailed yesterday (31 December 2023)", "Ann"]
    plan = extractor.plan(source.turns[0], NOTHING)
    assert extractor.write(source.turns[0], plan, NOTHING)["n0"].description == "Ann sailed yesterday"


def test_a_conversation_without_extractions_is_refused_by_name() -> None:
    with pytest.raises(ConsolidationError, match=r"conversation 'harbor' has no recorded extractions; use --cons"):
        RecordedExtractor([conversation()])
