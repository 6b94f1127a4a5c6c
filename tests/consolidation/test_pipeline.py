from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from locigraph.assembly.build_context import HybridContext
from locigraph.consolidation.blueprint import (
    AddNode,
    AddRelation,
    ArchiveNode,
    Blueprint,
    CoinedLabel,
    Mention,
    SupersedeNode,
    Topic,
    UpdateNode,
)
from locigraph.consolidation.errors import ConsolidationError
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.pipeline import Consolidator
from locigraph.consolidation.protocols import Context
from locigraph.kg.errors import UnknownSpaceError
from locigraph.kg.schema import NODE_TYPES, NodeType, searchable_types
from locigraph.kg.store import Store
from locigraph.kg.types import NodeId, NodeStatus, SpaceId, Turn, TurnId, TurnState
from locigraph.retrieval.index.documents import LexicalIndex
from tests.consolidation.interrupted import build
from tests.databases import Place
from tests.fakes import (
    MONDAY,
    OTHER_SPACE,
    SPACE,
    FakeContext,
    FakeEncoder,
    FakeExtractor,
    PlanMaker,
    make_turn,
    make_turns,
    one_fact,
)
from tests.kg.dumps import dump

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(store_at: Place) -> Iterator[Store]:
    with Store(store_at()) as opened:
        yield opened


def consolidate(store: Store, plan: PlanMaker = one_fact, *, context: FakeContext | None = None) -> None:
    Consolidator(store, FakeExtractor(plan), FakeEncoder(), context or FakeContext()).run(SPACE)


def states(store: Store) -> dict[str, int]:
    """Number of turns in each state that some turn is in."""
    return {state.value: count for state, count in store.turn_counts(SPACE).items()}


def edges(store: Store, label: str) -> list[tuple[str, str]]:
    """(description, description) of the edges of a label."""
    texts = {node.id: node.description for node in store.nodes(SPACE, include_archived=True)}
    return sorted((texts[r.source], texts[r.target]) for r in store.relations(SPACE) if r.label == label)


def by_text(store: Store) -> dict[str, NodeId]:
    return {node.description: node.id for node in store.nodes(SPACE, include_archived=True)}


def plans(**by_turn: Blueprint) -> PlanMaker:
    """A plan per turn id; nothing for the rest."""
    return lambda turn, context: by_turn.get(str(turn.turn_id), Blueprint())


def node(ref: str, text: str, *turn_ids: str, kind: str = "knowledge_node") -> AddNode:
    return AddNode(ref, kind, text, tuple(TurnId(t) for t in turn_ids))


# --- the whole run -------------------------------------------------------------------------------------------------


def test_every_turn_becomes_an_episode_and_what_was_planned_for_it(store: Store) -> None:
    store.append_turns(make_turns(["Boats!", "Which?"], ["The red ones."]))
    consolidate(store)
    assert list(by_text(store)) == [
        "Ann: Boats!", "Ann said: Boats!", "Ben: Which?", "Ben said: Which?", "Ann: The red ones.",
        "Ann said: The red ones.",
    ]  # fmt: skip
    assert edges(store, "NEXT") == [("Ann: Boats!", "Ben: Which?")]  # none across sessions
    assert ("Ann said: Boats!", "Ann: Boats!") in edges(store, "DERIVED_FROM")
    assert states(store) == {"done": 3}


def test_every_node_has_the_vector_of_its_description(store: Store) -> None:
    store.append_turns(make_turns(["Boats!", "Which?"]))
    consolidate(store)
    encoder = FakeEncoder()
    snapshot = store.snapshot(SPACE, embedding_model=encoder.model_id)
    np.testing.assert_array_equal(snapshot.embeddings, encoder.encode(snapshot.descriptions))


def test_running_twice_changes_nothing(store: Store, store_at: Place) -> None:
    store.append_turns(make_turns(["Boats!", "Which?"]))
    consolidate(store)
    before = dump(store_at())
    extractor = FakeExtractor()
    Consolidator(store, extractor, FakeEncoder(), FakeContext()).run(SPACE)
    assert extractor.planned == []
    assert dump(store_at()) == before


def test_turns_that_come_later_join_the_graph_of_the_earlier(store: Store) -> None:
    turns = make_turns(["one", "two", "three"])
    store.append_turns(turns[:2])
    consolidate(store)
    store.append_turns(turns)
    consolidate(store)
    assert states(store) == {"done": 3}
    assert edges(store, "NEXT") == [("Ann: one", "Ben: two"), ("Ben: two", "Ann: three")]


def test_later_turns_of_the_space_and_no_others_are_offered_the_labels_that_one_has_coined(store: Store) -> None:
    coined = (CoinedLabel("SAILS_TO", "From a boat to where it sails."),)
    plan = Blueprint((node("a", "A boat.", "t0"), node("b", "Porto.", "t0"), AddRelation("a", "SAILS_TO", "b")))
    offered: dict[str, list[str]] = {}

    def sailing(turn: Turn, context: Context) -> Blueprint:
        offered[f"{turn.space} {turn.turn_id}"] = [f"{label.name}: {label.description}" for label in context.labels]
        return replace(plan, coined=coined) if turn.turn_id == "t0" and turn.space == SPACE else Blueprint()

    store.append_turns([*make_turns(["one", "two"]), *make_turns(["one"], space=OTHER_SPACE)])
    consolidate(store, sailing)
    store.append_turns(make_turns(["one", "two", "three"]))
    consolidate(store, sailing)  # which reads the space anew
    Consolidator(store, FakeExtractor(sailing), FakeEncoder(), FakeContext()).run(OTHER_SPACE)
    said = ["SAILS_TO: From a boat to where it sails."]
    assert offered == {f"{SPACE} t0": [], f"{SPACE} t1": said, f"{SPACE} t2": said, f"{OTHER_SPACE} t0": []}


def test_an_unknown_space_is_an_error_and_leaves_no_claim(store: Store) -> None:
    with pytest.raises(UnknownSpaceError):
        consolidate(store)
    assert store.setting(f"extractor/{SPACE}") is None


def test_two_extractors_must_not_build_one_graph(store: Store, store_at: Place) -> None:
    store.append_turns([make_turn(0, "one")])
    consolidate(store)
    before = dump(store_at())
    second = FakeExtractor(name="other")
    with pytest.raises(ConsolidationError, match=r"space 'harbor' was built by 'fake', not 'other'"):
        Consolidator(store, second, FakeEncoder(), FakeContext()).run(SPACE)
    assert dump(store_at()) == before


@pytest.mark.long
def test_killing_the_process_at_any_statement_and_running_again_gives_the_uninterrupted_graph(tmp_path: Path) -> None:
    build(tmp_path / "whole.sqlite")
    for statement in (110, 160):  # inside the transactions of different turns
        command = [
            sys.executable,
            "-m",
            "tests.consolidation.interrupted",
            str(tmp_path / "cut.sqlite"),
            str(statement),
        ]
        assert subprocess.run(command, cwd=ROOT, check=False).returncode == -9
        with Store(tmp_path / "cut.sqlite") as store:
            assert 0 < len(store.turns(SPACE, state=TurnState.DONE)) < 10
            assert len(store.turns(SPACE)) == 10  # no acknowledged turn is lost
    build(tmp_path / "cut.sqlite")
    assert dump(tmp_path / "cut.sqlite") == dump(tmp_path / "whole.sqlite")


@pytest.fixture
def feeling() -> Iterator[str]:
    """A node type of the user's own, in the table for the time of a test."""
    NODE_TYPES.add(NodeType("feeling", None, "A mood.", "knowledge_node", searchable=True, plannable=True))
    yield "feeling"
    NODE_TYPES.remove("feeling")


def test_a_node_type_added_by_one_row_is_planned_shown_committed_and_searched(feeling: str, tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def plan(turn: Turn, context: Context) -> Blueprint:
        seen.append([f"{shown.type}: {shown.description}" for shown in context.nodes])
        return Blueprint((node("f", f"Ann is glad of {turn.text}", turn.turn_id, kind=feeling),))

    with Store(tmp_path / "own.sqlite") as store:
        context = HybridContext(store, FakeEncoder())
        store.append_turns(make_turns(["red boats", "boats"]))
        Consolidator(store, FakeExtractor(plan), FakeEncoder(), context).run(SPACE)
        assert states(store) == {"done": 2}
        assert seen == [[], ["feeling: Ann is glad of red boats"]]
        assert store.node_counts(SPACE)[feeling] == 2
        lexical = LexicalIndex(lambda space, as_of: store.snapshot(space, as_of=as_of), types=searchable_types())
        assert feeling in {held.type for held, _ in lexical.search("glad", SPACE, top_k=5)}


# --- failures ------------------------------------------------------------------------------------------------------


def refusing(*turn_ids: str) -> PlanMaker:
    def plan(turn: Turn, context: Context) -> Blueprint:
        if turn.turn_id in turn_ids:
            raise ConsolidationError(f"cannot plan {turn.turn_id}")
        return one_fact(turn, context)

    return plan


def test_a_failing_turn_keeps_its_reason_and_the_others_go_on(store: Store) -> None:
    store.append_turns(make_turns(["one", "two", "three"]))
    consolidate(store, refusing("t1"))
    assert states(store) == {"done": 2, "failed": 1}
    assert [(f.turn_id, f.error) for f in store.failures(SPACE)] == [("t1", "cannot plan t1")]
    assert [t.text for t in store.turns(SPACE)] == ["one", "two", "three"]
    assert not any("Ben said" in text for text in by_text(store))
    assert edges(store, "NEXT") == [("Ann: one", "Ben: two"), ("Ben: two", "Ann: three")]
    consolidate(store, refusing())
    assert states(store) == {"done": 2, "failed": 1}  # only retry takes it up again


def test_a_failing_turn_is_found_by_its_own_words_and_a_second_failure_changes_nothing(store: Store) -> None:
    store.append_turns(make_turns(["one", "two"]))
    consolidate(store, refusing("t1"))
    before = store.snapshot(SPACE, embedding_model=FakeEncoder().model_id)
    assert [n.description for n in store.nodes(SPACE, types=["episode"])] == ["Ann: one", "Ben: two"]
    store.retry_turn(SPACE, TurnId("t1"))
    consolidate(store, refusing("t1"))
    assert store.snapshot(SPACE, embedding_model=FakeEncoder().model_id).fingerprint == before.fingerprint
    assert [(f.turn_id, f.error) for f in store.failures(SPACE)] == [("t1", "cannot plan t1")]


def test_rules_take_a_speaker_with_the_longest_name_that_a_turn_may_have(store: Store) -> None:
    turn = replace(make_turn(0, "I bought a red racing bicycle."), speaker="A" * 240)
    store.append_turns([turn])
    Consolidator(store, RuleExtractor(), FakeEncoder(), FakeContext()).run(SPACE)
    assert states(store) == {"done": 1}


def test_retry_mends_a_failed_turn_and_closes_the_chain(store: Store) -> None:
    store.append_turns(make_turns(["one", "two", "three"]))
    consolidate(store, refusing("t1"))
    store.retry_turn(SPACE, TurnId("t1"))
    consolidate(store)
    assert states(store) == {"done": 3}
    assert edges(store, "NEXT") == [("Ann: one", "Ben: two"), ("Ben: two", "Ann: three")]
    early = store.snapshot(SPACE, as_of=MONDAY + timedelta(minutes=1))
    assert early.turn_ids == ("t0", "t1")
    assert len(early.source) == 3  # NEXT and twice DERIVED_FROM; the edge to the third turn is not known yet


def test_the_events_of_a_retried_turn_come_between_those_before_and_after_it(store: Store) -> None:
    store.append_turns(make_turns(["one", "two", "three"]))

    def event(turn: Turn, context: Context) -> Blueprint:
        return Blueprint((node("e", f"event {turn.text}", turn.turn_id, kind="event_node"),))

    def failing(turn: Turn, context: Context) -> Blueprint:
        refusing("t1")(turn, context)
        return event(turn, context)

    consolidate(store, failing)
    store.retry_turn(SPACE, TurnId("t1"))
    Consolidator(store, FakeExtractor(event), FakeEncoder(), FakeContext()).run(SPACE)
    assert edges(store, "PRECEDES") == [("event one", "event two"), ("event two", "event three")]


@pytest.mark.long
@pytest.mark.sqlite
@given(st.lists(st.integers(0, 2), min_size=2, max_size=6), st.data())
@settings(max_examples=10)
def test_events_are_in_one_order_whatever_turns_were_tried_again(counts: list[int], data: st.DataObject) -> None:
    """Turns tell of so many events each; some fail, and are tried again in any order."""
    turns = make_turns([f"say {place}" for place in range(len(counts))])
    failed = data.draw(st.lists(st.sampled_from([turn.turn_id for turn in turns]), unique=True))

    def events(turn: Turn, context: Context) -> Blueprint:
        told = range(counts[int(turn.turn_id[1:])])
        return Blueprint(
            tuple(node(f"e{n}", f"event {turn.turn_id} {n}", turn.turn_id, kind="event_node") for n in told)
        )

    def failing(turn: Turn, context: Context) -> Blueprint:
        for each in failed:
            refusing(each)(turn, context)
        return events(turn, context)

    with (
        TemporaryDirectory() as folder,
        Store(Path(folder, "whole.sqlite")) as whole,
        Store(Path(folder, "mended.sqlite")) as mended,
    ):
        for store in (whole, mended):
            store.append_turns(turns)
        Consolidator(whole, FakeExtractor(events), FakeEncoder(), FakeContext()).run(SPACE)
        Consolidator(mended, FakeExtractor(failing), FakeEncoder(), FakeContext()).run(SPACE)
        for turn in failed:
            mended.retry_turn(SPACE, turn)
            Consolidator(mended, FakeExtractor(events), FakeEncoder(), FakeContext()).run(SPACE)
        assert edges(mended, "PRECEDES") == edges(whole, "PRECEDES")


def test_a_retried_turn_cannot_end_what_was_said_after_it_and_is_ended_by_it(store: Store) -> None:
    said = make_turns([f"I live in {city} with my two cats." for city in ("Boston", "Denver", "Austin")])
    store.append_turns([replace(turn, speaker="Ann") for turn in said])
    rules = RuleExtractor()

    def failing(turn: Turn, context: Context) -> Blueprint:
        refusing("t1")(turn, context)
        return mended(turn, context)

    def mended(turn: Turn, context: Context) -> Blueprint:
        return rules.plan(turn, context)

    for plan in (failing, mended):
        context = HybridContext(store, FakeEncoder())
        Consolidator(store, FakeExtractor(plan), FakeEncoder(), context).run(SPACE)
        for failure in store.failures(SPACE):
            store.retry_turn(SPACE, failure.turn_id)
    assert store.failures(SPACE) == []
    facts = {node.provenance[0]: node for node in store.nodes(SPACE, types=["knowledge_node"])}
    assert edges(store, "SUPERSEDED_BY") == sorted(
        (facts[TurnId(one)].description, facts[TurnId(other)].description)
        for one, other in (("t0", "t1"), ("t1", "t2"))
    )
    assert [facts[turn.turn_id].valid_to for turn in said] == [said[1].recorded_at, said[2].recorded_at, None]


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (Blueprint((node("n", "a fact", "t0", kind="fact"),)), "type 'fact'; expected one of"),
        (Blueprint((UpdateNode(NodeId("ghost")),)), r"^operation 0 \(UpdateNode\): id 'ghost' was not shown$"),
        (Blueprint((node("n", "   ", "t0"),)), "expected 1 to"),
    ],
)
def test_a_plan_or_words_that_break_a_rule_fail_the_turn(plan: Blueprint, told: str, store: Store) -> None:
    store.append_turns([make_turn(0, "one")])
    extractor = FakeExtractor(plans(t0=plan))
    Consolidator(store, extractor, FakeEncoder(), FakeContext()).run(SPACE)
    assert extractor.planned == ["t0"]
    assert re.search(told, store.failures(SPACE)[0].error)
    assert [node.type for node in store.nodes(SPACE)] == ["episode"]


@pytest.mark.parametrize(
    "plan",
    [
        Blueprint((node("n", "a fact", "t0", "t99"),)),
        Blueprint(mentions=(Mention("  ", "person"),)),
        Blueprint(topics=(Topic("old boats", ""),)),
    ],
)
def test_a_plan_that_no_store_would_take_fails_its_turn_and_not_the_run(store: Store, plan: Blueprint) -> None:
    store.append_turns(make_turns(["one", "two"]))
    consolidate(store, plans(t0=plan))
    assert states(store) == {"failed": 1, "done": 1}


class _NaNEncoder(FakeEncoder):
    def encode(self, texts: Sequence[str], *, progress: str | None = None) -> NDArray[np.float32]:
        return np.full((len(texts), self.dim), np.nan, dtype=np.float32)


def test_an_encoder_that_makes_nan_stops_the_run_and_writes_no_node(store: Store) -> None:
    from locigraph.kg.errors import InvalidVectorError

    store.append_turns([make_turn(0, "one")])
    with pytest.raises(InvalidVectorError):
        Consolidator(store, FakeExtractor(), _NaNEncoder(), FakeContext()).run(SPACE)
    assert store.nodes(SPACE) == []
    assert len(store.turns(SPACE, state=TurnState.PENDING)) == 1


# --- operations ----------------------------------------------------------------------------------------------------


def test_dates_are_resolved_in_code_against_the_day_of_the_turn(store: Store) -> None:
    store.append_turns([make_turn(0, "x")])
    plan = Blueprint(
        (node("f", "Ann sails since last week", "t0"), node("e", "Ann fell yesterday", "t0", kind="event_node"))
    )
    consolidate(store, plans(t0=plan))
    found = {n.type: n for n in store.nodes(SPACE)}
    # 1 January 2024 is a Monday.
    assert found["event_node"].description == "Ann fell yesterday (31 December 2023)"
    assert found["event_node"].valid_from == datetime(2023, 12, 31, tzinfo=UTC)
    assert found["event_node"].valid_to == datetime(2023, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert found["knowledge_node"].description == "Ann sails since last week (25 December 2023 to 31 December 2023)"
    assert found["knowledge_node"].valid_from == datetime(2023, 12, 25, tzinfo=UTC)
    assert found["knowledge_node"].valid_to is None  # a fact that began on a day goes on


def test_days_that_an_architect_gives_are_taken_as_they_are(store: Store) -> None:
    store.append_turns([make_turn(0, "x")])
    given = replace(node("e", "Ann fell yesterday", "t0", kind="event_node"), days=(date(2020, 1, 1), date(2020, 1, 2)))
    consolidate(store, plans(t0=Blueprint((given,))))
    assert "Ann fell yesterday (1 January 2020 to 2 January 2020)" in by_text(store)


def test_a_fact_said_again_gains_a_source_and_an_edge_but_no_version(store: Store, store_at: Place) -> None:
    store.append_turns(make_turns(["one", "two"]))

    def plan(turn: Turn, context: Context) -> Blueprint:
        known = tuple(UpdateNode(shown.id) for shown in context.nodes)
        return Blueprint(known or (node("f", "a fact", turn.turn_id),))

    consolidate(store, plan)
    (found,) = store.nodes(SPACE, types=["knowledge_node"])
    assert found.provenance == ("t0", "t1")
    assert edges(store, "DERIVED_FROM") == [("a fact", "Ann: one"), ("a fact", "Ben: two")]
    assert dump(store_at())["node_versions"] == []


def test_a_fact_said_differently_gets_new_words_and_their_vector(store: Store) -> None:
    store.append_turns(make_turns(["one", "two"]))

    def plan(turn: Turn, context: Context) -> Blueprint:
        known = tuple(UpdateNode(shown.id, "new words") for shown in context.nodes)
        return Blueprint(known or (node("f", "old words", turn.turn_id),))

    consolidate(store, plan)
    encoder = FakeEncoder()
    for time, words in ((MONDAY, "old words"), (None, "new words")):
        snapshot = store.snapshot(SPACE, as_of=time, embedding_model=encoder.model_id)
        row = snapshot.types.tolist().index("knowledge_node")
        assert snapshot.descriptions[row] == words
        np.testing.assert_array_equal(snapshot.embeddings[row], encoder.encode([words])[0])


def test_a_superseded_fact_is_closed_once_and_keeps_its_end(store: Store) -> None:
    store.append_turns(make_turns(["Porto"], ["Lisbon"], ["Faro"]))

    def plan(turn: Turn, context: Context) -> Blueprint:
        return Blueprint(
            (node("n", f"Ann lives in {turn.text}", turn.turn_id), *(SupersedeNode(c.id, "n") for c in context.nodes))
        )

    consolidate(store, plan)
    ends = {n.description: n.valid_to for n in store.nodes(SPACE, types=["knowledge_node"])}
    assert ends == {
        "Ann lives in Porto": MONDAY + timedelta(days=7),  # when Lisbon was told, not when Faro was
        "Ann lives in Lisbon": MONDAY + timedelta(days=14),
        "Ann lives in Faro": None,
    }
    assert ("Ann lives in Porto", "Ann lives in Lisbon") in edges(store, "SUPERSEDED_BY")


@pytest.mark.parametrize(
    ("forgotten", "left"),
    [
        (["t1"], {"Porto": 14, "Faro": None}),
        (["t2"], {"Porto": 7, "Lisbon": None}),
        (["t1", "t2"], {"Porto": None}),
        (["t0"], {"Lisbon": 14, "Faro": None}),
    ],
)
def test_where_the_middle_of_a_chain_is_forgotten_its_successor_supersedes_what_came_before(
    store: Store, forgotten: list[TurnId], left: dict[str, int | None]
) -> None:
    store.append_turns(make_turns(["Porto"], ["Lisbon"], ["Faro"]))

    def plan(turn: Turn, context: Context) -> Blueprint:
        known = [each.id for each in context.nodes if each.superseded_at is None]
        return Blueprint(
            (node("n", f"Ann lives in {turn.text}", turn.turn_id), *(SupersedeNode(each, "n") for each in known))
        )

    consolidate(store, plan)
    store.forget(SPACE, forgotten)
    found = {n.description.split()[-1]: n.valid_to for n in store.nodes(SPACE, types=["knowledge_node"])}
    assert found == {place: None if days is None else MONDAY + timedelta(days=days) for place, days in left.items()}
    named = [tuple(text.split()[-1] for text in edge) for edge in edges(store, "SUPERSEDED_BY")]
    assert named == [*pairwise(left)]


def test_a_later_fact_of_the_same_value_does_not_inherit_what_a_forgotten_one_superseded(store: Store) -> None:
    store.append_turns(make_turns(["800 euros"], ["950"], ["800 euros again"]))

    def plan(turn: Turn, context: Context) -> Blueprint:
        known = [each.id for each in context.nodes if each.superseded_at is None]
        fact = AddNode(
            "n", "knowledge_node", f"rent {turn.text}", (turn.turn_id,), attributes={"slot": "rent", "value": turn.text}
        )
        return Blueprint((fact, *(SupersedeNode(each, "n") for each in known)))

    consolidate(store, plan)
    store.forget(SPACE, [TurnId("t1")])
    assert {n.description: n.valid_to for n in store.nodes(SPACE, types=["knowledge_node"])} == {
        "rent 800 euros": None,
        "rent 800 euros again": None,
    }


def test_forgetting_what_superseded_a_fact_reopens_it_though_times_run_backwards(store: Store) -> None:
    late, second = make_turns(["Porto", "Lisbon"])
    early = replace(second, spoken_at=MONDAY - timedelta(days=7))
    store.append_turns([late, early])

    def plan(turn: Turn, context: Context) -> Blueprint:
        return Blueprint(
            (node("n", f"Ann lives in {turn.text}", turn.turn_id), *(SupersedeNode(c.id, "n") for c in context.nodes))
        )

    consolidate(store, plan)
    ends = {n.description: n.valid_to for n in store.nodes(SPACE, types=["knowledge_node"])}
    assert ends == {"Ann lives in Porto": late.recorded_at, "Ann lives in Lisbon": None}
    store.forget(SPACE, [early.turn_id])
    assert [n.valid_to for n in store.nodes(SPACE, types=["knowledge_node"])] == [None]


def test_what_is_superseded_before_its_time_does_not_end_before_it_begins_and_an_event_keeps_its_date(
    store: Store,
) -> None:
    turns = make_turns(["the show on 20 June 2024"], ["the show on 27 June 2024"])
    store.append_turns(turns)

    def plan(turn: Turn, context: Context) -> Blueprint:
        added = (
            AddNode("fact", "knowledge_node", f"Ann will open {turn.text}", (turn.turn_id,)),
            AddNode("event", "event_node", f"Ann opens {turn.text}", (turn.turn_id,)),
        )
        successor = {"knowledge_node": "fact", "event_node": "event"}
        return Blueprint((*added, *(SupersedeNode(known.id, successor[known.type]) for known in context.nodes)))

    def times(node_type: str) -> list[tuple[date | None, date | None]]:
        found = store.nodes(SPACE, types=[node_type])
        return [(n.valid_from and n.valid_from.date(), n.valid_to and n.valid_to.date()) for n in found]

    consolidate(store, plan)
    assert len(edges(store, "SUPERSEDED_BY")) == 2
    first, second = date(2024, 6, 20), date(2024, 6, 27)
    assert times("knowledge_node") == [(first, first), (second, None)]
    assert times("event_node") == [(first, first), (second, second)]
    store.forget(SPACE, [turns[1].turn_id])
    assert times("knowledge_node") == [(first, None)]
    assert times("event_node") == [(first, first)]


@pytest.mark.sqlite
def test_an_architect_sees_which_facts_are_superseded_and_since_when_they_hold_in_one_run_or_several(
    store: Store, tmp_path: Path
) -> None:
    turns = make_turns(["Porto"], ["Lisbon"], ["Faro"])
    seen: list[list[tuple[str, date | None, datetime | None]]] = []

    def plan(turn: Turn, context: Context) -> Blueprint:
        shown = sorted(context.nodes, key=lambda each: each.id)
        seen.append([(each.description, each.first_day, each.superseded_at) for each in shown])
        fact = node("n", f"Ann lives in {turn.text}", turn.turn_id)
        return Blueprint((fact, *(SupersedeNode(each.id, "n") for each in shown if each.superseded_at is None)))

    def run(into: Store) -> None:
        encoder = FakeEncoder()
        Consolidator(into, FakeExtractor(plan), encoder, HybridContext(into, encoder)).run(SPACE)

    store.append_turns(turns)
    run(store)
    assert seen[2] == [
        ("Ann lives in Porto", MONDAY.date(), turns[1].recorded_at),
        ("Ann lives in Lisbon", turns[1].recorded_at.date(), None),
    ]
    with Store(tmp_path / "by parts.sqlite") as other:
        for count in (1, 2, 3):
            other.append_turns(turns[:count])
            run(other)
    assert seen[3:] == seen[:3]


def test_an_archived_node_leaves_the_search_but_not_the_store(store: Store) -> None:
    store.append_turns(make_turns(["one", "two"]))

    def plan(turn: Turn, context: Context) -> Blueprint:
        known = tuple(ArchiveNode(shown.id) for shown in context.nodes)
        return Blueprint(known or (node("f", "a fact", turn.turn_id),))

    consolidate(store, plan)
    assert store.nodes(SPACE, types=["knowledge_node"]) == []
    assert store.node(SPACE, by_text(store)["a fact"]).status is NodeStatus.ARCHIVED


def test_later_turns_see_a_fact_as_it_was_reworded_and_not_once_it_is_archived(store: Store) -> None:
    store.append_turns(make_turns(["tea", "tea again", "tea still", "tea ever"]))
    seen: list[list[str]] = []

    def plan(turn: Turn, context: Context) -> Blueprint:
        seen.append([shown.description for shown in context.nodes])
        if turn.turn_id == "t0":
            return Blueprint((node("f", "Ann likes tea", turn.turn_id),))
        if turn.turn_id == "t1":
            return Blueprint((UpdateNode(context.nodes[0].id, "Ann hates tea"),))
        return Blueprint(tuple(ArchiveNode(shown.id) for shown in context.nodes))

    encoder = FakeEncoder()
    context = HybridContext(store, encoder)
    Consolidator(store, FakeExtractor(plan), encoder, context).run(SPACE)
    assert seen == [[], ["Ann likes tea"], ["Ann hates tea"], []]


@pytest.mark.parametrize(
    ("first", "reworded", "stored", "day"),
    [
        # Both turns are spoken on other days than the one on which "last Saturday" was said.
        (
            "sold last Saturday",
            "sold to Tom last Saturday (29 April 2023)",
            "sold to Tom last Saturday (29 April 2023)",
            29,
        ),
        ("sold last Saturday", "sold to Tom last Saturday", "sold to Tom last Saturday (29 April 2023)", 29),
        ("exam on 28 April", "exam on 30 April", "exam on 30 April (30 April 2023)", 30),
    ],
)
def test_a_reworded_event_keeps_its_days_unless_the_words_name_others(
    store: Store, first: str, reworded: str, stored: str, day: int
) -> None:
    said = (datetime(2023, 5, day, tzinfo=UTC) for day in (1, 15))
    store.append_turns([replace(turn, spoken_at=at) for turn, at in zip(make_turns(["a", "b"]), said, strict=True)])

    def plan(turn: Turn, context: Context) -> Blueprint:
        if turn.turn_id == "t0":
            return Blueprint((node("f", first, turn.turn_id, kind="event_node"),))
        return Blueprint((UpdateNode(context.nodes[0].id, reworded),))

    encoder = FakeEncoder()
    Consolidator(store, FakeExtractor(plan), encoder, HybridContext(store, encoder)).run(SPACE)
    (event,) = store.nodes(SPACE, types=["event_node"])
    assert event.description == stored
    assert event.valid_from == datetime(2023, 4, day, tzinfo=UTC)
    assert event.valid_to is not None
    assert event.valid_to.date() == date(2023, 4, day)


def test_a_fact_whose_day_is_corrected_holds_from_the_right_day(store: Store) -> None:
    store.append_turns(make_turns(["a", "b"]))

    def plan(turn: Turn, context: Context) -> Blueprint:
        if turn.turn_id == "t0":
            return Blueprint((node("f", "Ann moved to Porto on 3 May 2019", turn.turn_id),))
        return Blueprint((UpdateNode(context.nodes[0].id, "Ann moved to Porto on 3 May 2021"),))

    encoder = FakeEncoder()
    Consolidator(store, FakeExtractor(plan), encoder, HybridContext(store, encoder)).run(SPACE)
    (fact,) = store.nodes(SPACE, types=["knowledge_node"])
    assert (fact.valid_from, fact.valid_to) == (datetime(2021, 5, 3, tzinfo=UTC), None)


def test_relations_of_a_plan_join_its_nodes(store: Store) -> None:
    store.append_turns([make_turn(0, "one")])
    plan = Blueprint((node("a", "storm", "t0"), node("b", "flood", "t0"), AddRelation("a", "CAUSES", "b")))
    consolidate(store, plans(t0=plan))
    assert edges(store, "CAUSES") == [("storm", "flood")]


def test_two_spellings_of_a_name_are_one_entity_within_a_turn_and_across_turns(store: Store) -> None:
    store.append_turns(make_turns(["one", "two"]))
    plan = plans(
        t0=Blueprint(mentions=(Mention("Blue Harbour", "location"), Mention("the Blue Harbour", "location"))),
        t1=Blueprint(mentions=(Mention("blue harbour's", "location"),)),
    )
    consolidate(store, plan)
    (entity,) = store.nodes(SPACE, types=["entity"])
    assert entity.provenance == ("t0", "t1")
    assert edges(store, "MENTIONS") == [("Ann: one", "Blue Harbour"), ("Ben: two", "Blue Harbour")]


def test_a_fact_mentions_whom_it_names_and_not_whose_name_is_part_of_a_word(store: Store) -> None:
    store.append_turns([make_turn(0, "x")])
    operations = (node("a", "ann likes boats", "t0"), node("b", "a trip was planned", "t0"))
    consolidate(store, plans(t0=Blueprint(operations, mentions=(Mention("Ann", "person"),))))
    assert edges(store, "MENTIONS") == [("Ann: x", "Ann"), ("ann likes boats", "Ann")]


def test_topics_of_the_same_meaning_become_one_concept(store: Store) -> None:
    store.append_turns(make_turns(["one", "two", "three"]))
    plan = plans(
        t0=Blueprint((node("f", "a fact", "t0"),), topics=(Topic("old boats", "old boats"),)),
        t1=Blueprint(topics=(Topic("Old Boat", "old boat"), Topic("boats old", "old boats"))),
        t2=Blueprint(topics=(Topic("things", "generic"), Topic("red bicycles", "red bicycles"))),
    )
    consolidate(store, plan)
    concepts = store.nodes(SPACE, types=["concept"])
    assert [(c.label, c.provenance) for c in concepts] == [("old_boats", ("t0", "t1")), ("red_bicycles", ("t2",))]
    assert edges(store, "ABOUT_CONCEPT") == [("a fact", "old boats")]
    assert ("Ben: two", "old boats") in edges(store, "HAS_CONCEPT")


def test_the_architect_sees_the_turns_just_before_it_in_its_session(store: Store) -> None:
    store.append_turns(make_turns(["a"], ["b", "c", "d", "e", "f", "g"]))
    seen: dict[str, list[str]] = {}

    def plan(turn: Turn, context: Context) -> Blueprint:
        seen[turn.text] = [t.text for t in context.recent]
        return Blueprint()

    consolidate(store, plan)
    assert seen["b"] == []
    assert seen["c"] == ["b"]
    assert seen["g"] == ["c", "d", "e", "f"]


def test_rules_never_touch_another_space(store: Store) -> None:
    other = SpaceId("meadow")
    store.append_turns([*make_turns(["I live in Porto with Carla."]), *make_turns(["I live in Porto."], space=other)])
    encoder, context = FakeEncoder(), FakeContext()
    Consolidator(store, RuleExtractor(), encoder, context).run(SPACE)
    assert store.nodes(other) == []
    Consolidator(store, RuleExtractor(), encoder, context).run(other)
    assert all(n.provenance == ("t0",) for space in (SPACE, other) for n in store.nodes(space))


@pytest.mark.parametrize("is_retried", [False, True])
def test_forgetting_a_turn_leaves_the_events_before_and_after_it_in_one_chain(store: Store, is_retried: bool) -> None:
    store.append_turns(make_turns(["one", "two", "three", "four"]))
    counts = {"t0": 1, "t1": 2, "t2": 1, "t3": 2}

    def events(turn: Turn, context: Context) -> Blueprint:
        told = range(counts[turn.turn_id])
        return Blueprint(tuple(node(f"e{n}", f"{turn.text} {n}", turn.turn_id, kind="event_node") for n in told))

    def failing(turn: Turn, context: Context) -> Blueprint:
        if is_retried:
            refusing("t1")(turn, context)
        return events(turn, context)

    consolidate(store, failing)
    if is_retried:
        store.retry_turn(SPACE, TurnId("t1"))
        consolidate(store, events)
    store.forget(SPACE, [TurnId("t1")])
    assert edges(store, "PRECEDES") == [("one 0", "three 0"), ("three 0", "four 0"), ("three 0", "four 1")]
    store.forget(SPACE, [TurnId("t0")])
    assert edges(store, "PRECEDES") == [("three 0", "four 0"), ("three 0", "four 1")]
