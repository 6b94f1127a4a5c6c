from __future__ import annotations

import dataclasses
import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locigraph.kg.errors import (
    InvalidVectorError,
    OutdatedChangeError,
    StoreError,
    TurnConflictError,
    UnknownNodeError,
    UnknownSpaceError,
    UnknownTurnError,
    UnknownTypeError,
)
from locigraph.kg.store import Store
from locigraph.kg.store.commit import text_digest
from locigraph.kg.store.embeddings import NodeText
from locigraph.kg.types import (
    UNDATED,
    GraphChange,
    NewNode,
    NewRelation,
    Node,
    NodeId,
    NodeStatus,
    NodeUpdate,
    Said,
    SpaceId,
    Turn,
    TurnId,
    TurnState,
    is_name,
)
from tests.databases import Place
from tests.fakes import MONDAY, OTHER_SPACE, SPACE, FakeEncoder, change_of, fact, make_turn, make_turns
from tests.kg.dumps import dump

NAN_VECTOR = np.array([1.0, math.nan], dtype=np.float32)


@pytest.fixture
def store(store_at: Place) -> Iterator[Store]:
    with Store(store_at()) as opened:
        yield opened


def texts_of(nodes: Sequence[Node]) -> list[NodeText]:
    return [NodeText(node.id, node.description, text_digest(node.description)) for node in nodes]


def filled(store: Store, space: SpaceId = SPACE, *, encoder: FakeEncoder | None = None) -> dict[str, NodeId]:
    """Two turns, two episodes and a fact about boats; the ids by ``first``, ``second``, ``fact``."""
    turns = make_turns(["I repair boats.", "Which boats?"], space=space)
    store.append_turns(turns)
    first = store.commit(change_of(turns[0], encoder=encoder))["episode"]
    made = store.commit(
        change_of(
            turns[1],
            nodes=[fact("f", "Ann repairs boats", turns[0], turns[1])],
            relations=[NewRelation(first, "NEXT", "episode"), NewRelation("f", "DERIVED_FROM", first)],
            encoder=encoder,
        )
    )
    return {"first": first, "second": made["episode"], "fact": made["f"]}


# --- turns ---------------------------------------------------------------------------------------------------------


def test_turns_come_back_as_they_were_appended_in_conversation_order(store: Store) -> None:
    turns = make_turns(["one", "two"], ["three"])
    assert store.append_turns(turns[::-1]) == 3
    assert store.turns(SPACE) == list(turns)


def test_appending_the_same_turns_again_adds_nothing(store: Store, store_at: Place) -> None:
    turns = make_turns(["one", "two"])
    store.append_turns(turns)
    before = dump(store_at())
    assert store.append_turns(turns) == 0
    assert dump(store_at()) == before


def test_long_texts_in_conflict_are_shown_where_they_differ(store: Store) -> None:
    held = replace(make_turn(0, "x"), text="word " * 60 + "and then we met at noon.")
    store.append_turns([held])
    with pytest.raises(TurnConflictError, match=r"'[.]{3}.*at noon[.]', not '[.]{3}.*at night[.]'"):
        store.append_turns([replace(held, text="word " * 60 + "and then we met at night.")])


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"text": "other words"}, r"with a different text \('one', not 'other words'\)"),
        ({"speaker": "Cleo"}, "with a different speaker"),
        ({"session_id": "s9"}, "with a different session_id"),
        ({"spoken_at": MONDAY + timedelta(days=1)}, "with a different spoken_at"),
        ({"spoken_at": None}, "with a different spoken_at"),
        ({"image_caption": "a boat"}, "with a different image_caption"),
    ],
)
def test_a_turn_id_with_other_content_is_a_conflict_and_nothing_of_the_batch_is_written(
    store: Store, store_at: Place, changes: dict[str, object], fault: str
) -> None:
    held, new = make_turns(["one", "two"])
    store.append_turns([held])
    before = dump(store_at())
    clash = replace(held, **changes)  # type: ignore[arg-type]  # a test sets one field at a time by name
    with pytest.raises(TurnConflictError, match=rf"space 'harbor': turn 't0' is stored {fault}"):
        store.append_turns([new, replace(make_turn(0, "a new space", space=OTHER_SPACE)), clash])
    assert dump(store_at()) == before


def test_one_batch_may_hold_a_turn_twice_but_not_with_two_contents(store: Store) -> None:
    turn = make_turn(0, "one")
    with pytest.raises(TurnConflictError):
        store.append_turns([turn, replace(turn, text="two")])
    assert store.spaces() == []
    assert store.append_turns([turn, turn]) == 1
    assert store.turns(SPACE) == [turn]


def test_times_are_kept_as_utc_seconds_whatever_zone_they_came_in(store: Store) -> None:
    # 14:00 at +02:00 is 12:00 UTC; half a second is dropped.
    local = datetime(2024, 1, 1, 14, 0, 0, 500_000, tzinfo=timezone(timedelta(hours=2)))
    store.append_turns([make_turn(0, "hello", spoken_at=local)])
    assert store.turns(SPACE)[0].spoken_at == datetime(2024, 1, 1, 12, tzinfo=UTC)
    assert store.append_turns([make_turn(0, "hello", spoken_at=local)]) == 0


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=12)
IDS = NAMES.filter(is_name)
TIMES = st.none() | st.datetimes(
    min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)
).map(lambda time: time.replace(microsecond=0))


@st.composite
def conversations(draw: st.DrawFn) -> list[Turn]:
    ids = draw(st.lists(IDS, unique=True, max_size=8))
    space = SpaceId(draw(IDS))
    return [
        Turn(
            space, TurnId(turn_id), draw(IDS), draw(IDS), position, draw(IDS), draw(NAMES), draw(TIMES),
            draw(st.none() | NAMES),
        )
        for position, turn_id in enumerate(ids)
    ]  # fmt: skip


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=conversations())
def test_any_turn_survives_the_round_trip(store: Store, turns: list[Turn]) -> None:
    assert store.append_turns(turns) == len(turns)
    if turns:
        held = store.turns(turns[0].space)
        assert [turn.position for turn in held] == list(range(len(turns)))
        assert {replace(turn, position=0) for turn in held} == {replace(turn, position=0) for turn in turns}
        assert store.turns(turns[0].space, state=TurnState.PENDING) == held
        store.forget_spaces([turns[0].space])
        store.restore(turns[0].space)
    assert store.spaces() == []


ATTRIBUTES = st.dictionaries(
    NAMES, st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.integers(-(2**53), 2**53) | st.booleans()
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    label=NAMES,
    description=NAMES.filter(lambda text: bool(text.strip())),
    kind=st.sampled_from(["event_node", "knowledge_node", "entity", "concept", "reflection"]),
    times=st.tuples(TIMES, TIMES),
    attributes=ATTRIBUTES,
)
def test_any_node_survives_the_round_trip(
    store: Store,
    label: str,
    description: str,
    kind: str,
    times: tuple[datetime | None, datetime | None],
    attributes: dict[str, str | int | float | bool | list[str]],
) -> None:
    turn = make_turn(0, "hello")
    vector = np.linspace(0, 1, 7, dtype=np.float32)
    new = NewNode("n", kind, label, description, (turn.turn_id,), *times, attributes, vector)
    store.append_turns([turn])
    ids = store.commit(GraphChange(SPACE, turn.recorded_at, turn.turn_id, (new,), embedding_model="m"))
    node = store.node(SPACE, ids["n"])
    snapshot = store.snapshot(SPACE, embedding_model="m")
    store.forget_spaces([SPACE])
    store.restore(SPACE)
    assert (node.type, node.label, node.description) == (kind, label, description)
    assert (node.valid_from, node.valid_to, dict(node.attributes)) == (*times, attributes)
    assert (node.provenance, node.status, node.created_at) == ((turn.turn_id,), NodeStatus.ACTIVE, MONDAY)
    assert snapshot.descriptions == (description,)
    np.testing.assert_array_equal(snapshot.embeddings, vector[None])


def test_a_failed_turn_keeps_its_reason_until_it_is_retried(store: Store) -> None:
    turns = make_turns(["one", "two"])
    store.append_turns(turns)
    assert store.turn_counts(SPACE) == {TurnState.PENDING: 2}
    store.commit(dataclasses.replace(change_of(turns[0]), failure="no plan"))
    assert store.turn_counts(SPACE) == {TurnState.PENDING: 1, TurnState.FAILED: 1}
    assert [n.description for n in store.nodes(SPACE)] == ["Ann: one"]
    assert [(f.turn_id, f.error) for f in store.failures(SPACE)] == [("t0", "no plan")]
    assert [t.turn_id for t in store.turns(SPACE, state=TurnState.PENDING)] == ["t1"]
    store.retry_turn(SPACE, TurnId("t0"))
    assert store.failures(SPACE) == []
    assert [t.turn_id for t in store.turns(SPACE, state=TurnState.PENDING)] == ["t0", "t1"]


def test_only_a_failed_turn_can_be_retried(store: Store) -> None:
    filled(store)
    with pytest.raises(StoreError, match=r"has no failed turn 't0'"):
        store.retry_turn(SPACE, TurnId("t0"))
    assert len(store.turns(SPACE, state=TurnState.DONE)) == 2


def test_a_turn_is_consolidated_once_even_by_two_builders(store: Store, store_at: Place) -> None:
    turn = make_turn(0, "one")
    store.append_turns([turn])
    store.commit(change_of(turn))
    before = dump(store_at())
    with Store(store_at()) as second, pytest.raises(StoreError, match=r"'t0' is already consolidated"):
        second.commit(change_of(turn))
    assert dump(store_at()) == before


def test_a_change_based_on_an_earlier_revision_is_refused_whole(store: Store, store_at: Place) -> None:
    turns = make_turns(["one", "two"])
    store.append_turns(turns)
    read_at = store.revision(SPACE)
    with Store(store_at()) as second:
        second.commit(change_of(turns[0]))
    before = dump(store_at())
    with pytest.raises(OutdatedChangeError, match=rf"revision {read_at + 1}, and the change is based on {read_at}: "):
        store.commit(replace(change_of(turns[1]), revision=read_at))
    assert dump(store_at()) == before
    store.commit(replace(change_of(turns[1]), revision=read_at + 1))
    assert store.turn_counts(SPACE) == {TurnState.DONE: 2}


# --- commit --------------------------------------------------------------------------------------------------------


def test_ids_are_made_of_time_and_label_and_are_numbered_when_taken(store: Store) -> None:
    turns = make_turns(["one", "two"])
    store.append_turns(turns)
    nodes = [replace(fact(ref, "words", turns[0]), label="Crème brûlée, à la carte!") for ref in ("a", "b")]
    ids = store.commit(change_of(turns[0], nodes=nodes))
    assert ids["a"] == "20240101T120000_creme_brulee_a_la_carte"
    assert ids["b"] == "20240101T120000_creme_brulee_a_la_carte_2"
    third = NewNode("c", "concept", "creme brulee a la carte", "words", ())
    ids = store.commit(GraphChange(SPACE, MONDAY, nodes=(third,)))
    assert ids["c"] == "20240101T120000_creme_brulee_a_la_carte_3"


def test_many_nodes_of_one_label_and_one_second_are_numbered_with_few_statements(store: Store) -> None:
    """As in a conversation without times, in a script of which no letter is kept in IDs."""
    turn = make_turn(0, "one", dated=False)
    store.append_turns([turn])
    statements: list[int] = []

    def count(*_: Any) -> None:
        statements[-1] += 1

    ids: list[NodeId] = []
    sa.event.listen(sa.Engine, "before_cursor_execute", count)
    try:
        for number in range(100):
            statements.append(0)
            same = NewNode("n", "knowledge_node", "红船", f"船 {number}", (turn.turn_id,))
            ids += store.commit(GraphChange(SPACE, UNDATED, nodes=(same,))).values()
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", count)
    assert ids == ["19700101T000000_node", *(f"19700101T000000_node_{number}" for number in range(2, 101))]
    assert max(statements) < statements[0] + 20  # not 99 more


def test_a_label_without_letters_still_makes_an_id(store: Store) -> None:
    store.append_turns([make_turn(0, "one")])
    ids = store.commit(GraphChange(SPACE, MONDAY, nodes=(NewNode("n", "concept", "日本", "words", ()),)))
    assert ids["n"] == "20240101T120000_node"


def test_relations_join_new_and_existing_nodes(store: Store) -> None:
    ids = filled(store)
    edges = [(r.source, r.label, r.target) for r in store.relations(SPACE)]
    assert sorted(edges) == sorted([(ids["first"], "NEXT", ids["second"]), (ids["fact"], "DERIVED_FROM", ids["first"])])
    assert [r.label for r in store.relations(SPACE, node=ids["second"])] == ["NEXT"]
    assert store.used_labels(SPACE) == {"NEXT", "DERIVED_FROM"}


def test_an_edge_said_twice_is_one_edge(store: Store) -> None:
    ids = filled(store)
    again = NewRelation(ids["first"], "NEXT", ids["second"], weight=0.5)
    store.commit(GraphChange(SPACE, MONDAY, relations=(again, again)))
    assert [r.weight for r in store.relations(SPACE) if r.label == "NEXT"] == [1.0]


def test_a_coined_relation_can_be_used_and_belongs_to_the_related_family(store: Store) -> None:
    ids = filled(store)
    for said, ends in (("Person to companion.", ("fact", "first")), ("Said again.", ("fact", "second"))):
        edge = NewRelation(ids[ends[0]], "SAILS_WITH", ids[ends[1]])
        store.commit(GraphChange(SPACE, MONDAY, relations=(edge,), coined={"SAILS_WITH": said}))
    label = store.relation_labels(SPACE)["SAILS_WITH"]
    assert (label.kind, label.family, label.description) == ("semantic", "RELATED_TO", "Person to companion.")
    assert "RELATED_TO" in store.snapshot(SPACE).families


@pytest.mark.parametrize("name", ["sails", "", "A-B", "1A", "A" * 65, "A B"])
def test_a_relation_label_must_be_in_capitals(store: Store, name: str) -> None:
    ids = filled(store)
    edge = NewRelation(ids["first"], name, ids["second"])
    with pytest.raises(UnknownTypeError, match="CAPITALS_WITH_UNDERSCORES"):
        store.commit(GraphChange(SPACE, MONDAY, relations=(edge,), coined={name: "words"}))
    assert name not in store.relation_labels(SPACE)


TURN = make_turn(2, "three")
GOOD = fact("good", "Ann has a good node that must not stay", TURN)
VECTOR = np.ones(2, dtype=np.float32)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (change_of(TURN, nodes=[GOOD], updates=[NodeUpdate(NodeId("ghost"))]), UnknownNodeError, "'ghost'"),
        (change_of(TURN, nodes=[GOOD], updates=[NodeUpdate(NodeId("good"))]), UnknownNodeError, "'good'"),
        (change_of(TURN, nodes=[GOOD], relations=[NewRelation("good", "NEXT", "ghost")]), UnknownNodeError, "'ghost'"),
        (change_of(TURN, nodes=[GOOD], relations=[NewRelation("ghost", "NEXT", "good")]), UnknownNodeError, "'ghost'"),
        (
            change_of(TURN, nodes=[GOOD], relations=[NewRelation("good", "NEXTT", "episode")]),
            UnknownTypeError,
            "relation label 'NEXTT' is not in the schema; nearest is 'NEXT'",
        ),
        (
            change_of(TURN, nodes=[GOOD, replace(GOOD, ref="b", type="knowledge_nod")]),
            UnknownTypeError,
            "node type 'knowledge_nod' is not in the schema; nearest is 'knowledge_node'",
        ),
        (
            change_of(TURN, nodes=[GOOD], relations=[NewRelation("good", "CAUSES", "episode", weight=math.nan)]),
            StoreError,
            "weight nan",
        ),
        (
            change_of(TURN, nodes=[GOOD, replace(GOOD, ref="b", provenance=(TurnId("t99"),))]),
            UnknownTurnError,
            "provenance names turn 't99'",
        ),
        (change_of(TURN, nodes=[GOOD, replace(GOOD, ref="b", description="  ")]), StoreError, "empty description"),
        (change_of(TURN, nodes=[GOOD, GOOD]), StoreError, "share the temporary id 'good'"),
        (change_of(TURN, nodes=[replace(GOOD, embedding=VECTOR)]), StoreError, "must name embedding_model"),
        (
            replace(change_of(TURN, nodes=[replace(GOOD, embedding=NAN_VECTOR)]), embedding_model="m"),
            InvalidVectorError,
            "1 NaN or infinite values",
        ),
        (
            replace(change_of(TURN, nodes=[replace(GOOD, embedding=VECTOR[None])]), embedding_model="m"),
            InvalidVectorError,
            r"shape \(1, 2\)",
        ),
        (
            replace(change_of(TURN, nodes=[replace(GOOD, embedding=VECTOR)]), embedding_model="fake-bow"),
            InvalidVectorError,
            r"shape \(2,\) .* expected \(32,\)",
        ),
        (replace(change_of(TURN, nodes=[GOOD]), turn_id=TurnId("t98")), StoreError, "has no turn 't98'"),
        (replace(change_of(TURN, nodes=[GOOD]), space=SpaceId("harbour")), UnknownSpaceError, "nearest is 'harbor'"),
    ],
)
def test_a_refused_change_leaves_every_table_as_it_was(
    store: Store, store_at: Place, change: GraphChange, error: type[Exception], message: str
) -> None:
    filled(store, encoder=FakeEncoder())
    store.append_turns([TURN])
    before = dump(store_at())
    with pytest.raises(error, match=message):
        store.commit(change)
    assert dump(store_at()) == before


# --- spaces --------------------------------------------------------------------------------------------------------


def test_why_a_turn_failed_is_forgotten_with_any_turn_of_its_space_since_it_may_quote_it(store: Store) -> None:
    filled(store)
    store.append_turns(make_turns(["Mine."], space=OTHER_SPACE))
    later = replace(make_turn(5, "And this?"), turn_id=TurnId("t5"))
    store.append_turns([later])
    store.commit(GraphChange(SPACE, MONDAY, TurnId("t5"), failure="mention 'the canoe is red' is too long"))
    store.commit(GraphChange(OTHER_SPACE, MONDAY, TurnId("t0"), failure="no plan"))
    store.forget(SPACE, [TurnId("t0")])
    (failure,) = store.failures(SPACE)
    assert "canoe" not in failure.error
    assert "retry the turn" in failure.error
    assert [each.error for each in store.failures(OTHER_SPACE)] == ["no plan"]


def test_no_method_shows_a_space_what_belongs_to_another(store: Store) -> None:
    encoder = FakeEncoder()
    mine = filled(store, encoder=encoder)
    turns = make_turns(["I grow roses.", "Red ones?", "Pending secret."], space=OTHER_SPACE)
    store.append_turns(turns)
    theirs = store.commit(
        change_of(turns[0], nodes=[fact("roses", "Ann grows secret roses", turns[0])], encoder=encoder)
    )
    store.commit(change_of(turns[1], relations=[NewRelation(theirs["episode"], "NEXT", "episode")], encoder=encoder))
    store.commit(GraphChange(OTHER_SPACE, MONDAY, TurnId("t2"), failure="secret reason"))
    other_keys = store.snapshot(OTHER_SPACE).keys.tolist()
    secret = theirs["roses"]

    assert {n.id for n in store.nodes(SPACE, include_archived=True)} == set(mine.values())
    assert store.nodes(SPACE, ids=[secret]) == []
    with pytest.raises(UnknownNodeError):
        store.node(SPACE, secret)
    assert all(turn.space == SPACE for turn in store.turns(SPACE))
    assert store.turns(SPACE, state=TurnState.DONE) == store.turns(SPACE)
    assert store.failures(SPACE) == []
    assert store.turn_counts(SPACE) == {TurnState.DONE: 2}
    assert len(store.relations(SPACE)) == 2
    snapshot = store.snapshot(SPACE, embedding_model=encoder.model_id)
    assert set(snapshot.ids) == set(mine.values())
    assert not any("rose" in text for text in snapshot.descriptions)
    assert len(snapshot.source) == 2
    assert snapshot.turn_ids == ("t0", "t1")
    assert store.vectors_by_key(SPACE, other_keys, encoder.model_id)[0] == []
    assert store.turns_of_nodes(SPACE, other_keys) == {}
    assert store.unembedded(SPACE, "another model") == texts_of(store.nodes(SPACE))


def test_no_method_lets_a_space_change_what_belongs_to_another(store: Store, store_at: Place) -> None:
    filled(store)
    turns = make_turns(["I grow roses.", "Red ones?", "Three."], space=OTHER_SPACE)
    store.append_turns(turns)
    secret = store.commit(change_of(turns[0], nodes=[fact("roses", "Ann grows roses", turns[0])]))["roses"]
    before = dump(store_at())
    with pytest.raises(UnknownNodeError):
        store.commit(GraphChange(SPACE, MONDAY, updates=(NodeUpdate(secret, status=NodeStatus.ARCHIVED),)))
    with pytest.raises(UnknownNodeError):
        store.commit(GraphChange(SPACE, MONDAY, relations=(NewRelation(secret, "NEXT", secret),)))
    store.put_embeddings(SPACE, "m", [NodeText(secret, "", "")], np.ones((1, 2), dtype=np.float32))  # as if erased
    with pytest.raises(StoreError, match="provenance names turn 't2'"):
        store.commit(GraphChange(SPACE, MONDAY, nodes=(NewNode("n", "concept", "a", "b", (TurnId("t2"),)),)))
    with pytest.raises(StoreError):
        store.forget(SPACE, [TurnId("t2")])
    with pytest.raises(StoreError):
        store.commit(GraphChange(SPACE, MONDAY, TurnId("t2"), failure="mischief"))
    assert dump(store_at()) == before


def test_two_spaces_may_use_the_same_turn_and_node_ids(store: Store) -> None:
    mine, theirs = filled(store, SPACE), filled(store, OTHER_SPACE)
    assert mine == theirs
    store.commit(GraphChange(SPACE, MONDAY, updates=(NodeUpdate(mine["fact"], label="changed"),)))
    assert store.node(OTHER_SPACE, mine["fact"]).label == "Ann repairs boats"
    store.forget_spaces([SPACE])
    assert len(store.nodes(OTHER_SPACE)) == 3
    assert len(store.relations(OTHER_SPACE)) == 2


def test_reading_an_unknown_space_is_an_error_and_never_an_empty_result(store: Store) -> None:
    filled(store)
    ghost = SpaceId("ghost")
    for read in (
        store.turns, store.failures, store.nodes, store.relations, store.snapshot,
        lambda space: store.forget_spaces([space]), lambda space: store.forget(space, []),
        lambda space: store.unembedded(space, "m"), lambda space: store.node(space, NodeId("x")),
    ):  # fmt: skip
        with pytest.raises(UnknownSpaceError, match="space 'ghost' is not in the store"):
            read(ghost)


@pytest.mark.parametrize(
    "call",
    [
        lambda store, name: store.forget(SPACE, [TurnId(name)]),
        lambda store, name: store.node(SPACE, NodeId(name)),
        lambda store, name: store.retry_turn(SPACE, TurnId(name)),
        lambda store, name: store.revision(SpaceId(name)),
        lambda store, name: store.has_forgotten_of(SpaceId(name)),
    ],
)
def test_a_name_with_a_lone_surrogate_is_a_store_error(store: Store, call: Callable[[Store, str], object]) -> None:
    filled(store)
    with pytest.raises(StoreError, match=r"'bo\\ud800at' has a lone surrogate, so it names nothing here"):
        call(store, "bo\ud800at")


# --- embeddings, outbox, settings ----------------------------------------------------------------------------------


def test_missing_embeddings_are_listed_until_they_are_written(store: Store) -> None:
    ids = filled(store)
    encoder = FakeEncoder()
    missing = store.unembedded(SPACE, encoder.model_id)
    assert [each.node_id for each in missing] == [ids["first"], ids["second"], ids["fact"]]
    vectors = encoder.encode([each.text for each in missing])
    store.put_embeddings(SPACE, encoder.model_id, missing, vectors)
    assert store.unembedded(SPACE, encoder.model_id) == []
    np.testing.assert_array_equal(store.snapshot(SPACE, embedding_model=encoder.model_id).embeddings, vectors)
    store.commit(GraphChange(SPACE, MONDAY, updates=(NodeUpdate(ids["fact"], description="new words"),)))
    assert store.unembedded(SPACE, encoder.model_id) == texts_of([store.node(SPACE, ids["fact"])])


def test_a_vector_of_words_that_were_changed_meanwhile_is_not_taken_for_one_of_the_new_words(store: Store) -> None:
    ids = filled(store)
    encoder = FakeEncoder()
    read = store.unembedded(SPACE, encoder.model_id)
    store.commit(
        GraphChange(SPACE, MONDAY + timedelta(days=1), updates=(NodeUpdate(ids["fact"], description="new words"),))
    )
    store.put_embeddings(SPACE, encoder.model_id, read, encoder.encode([each.text for each in read]))
    assert store.unembedded(SPACE, encoder.model_id) == texts_of([store.node(SPACE, ids["fact"])])
    before = store.snapshot(SPACE, as_of=MONDAY, embedding_model=encoder.model_id)  # the earlier words have theirs
    np.testing.assert_array_equal(before.embeddings, encoder.encode(before.descriptions))


def test_a_model_that_comes_after_nodes_were_reworded_embeds_their_earlier_words_too(store: Store) -> None:
    ids = filled(store, encoder=FakeEncoder())
    boats = store.node(SPACE, ids["fact"])
    reworded = [NodeUpdate(boats.id, description=words) for words in ("new words", "newer")]
    for days, change in enumerate([reworded[0], NodeUpdate(boats.id, label="n"), reworded[1]], start=1):
        store.commit(GraphChange(SPACE, MONDAY + timedelta(days=days), updates=(change,)))
    late = FakeEncoder(model_id="late")
    missing = store.unembedded(SPACE, "late")
    assert [each.text for each in missing if each.node_id == boats.id] == ["newer", boats.description, "new words"]
    assert len(missing) == 5  # and the two episodes
    store.put_embeddings(SPACE, "late", missing, late.encode([each.text for each in missing]))
    for checks_vectors in (False, True):
        assert store.unembedded(SPACE, "late", checks_vectors=checks_vectors) == []
    for days in range(5):
        known = store.snapshot(SPACE, as_of=MONDAY + timedelta(days=days), embedding_model="late")
        np.testing.assert_array_equal(known.embeddings, late.encode(known.descriptions))


def test_bad_embeddings_are_refused_and_nothing_is_written(store: Store, store_at: Place) -> None:
    ids = filled(store, encoder=FakeEncoder(dim=2))
    before = dump(store_at())
    both = texts_of([store.node(SPACE, ids["first"]), store.node(SPACE, ids["fact"])])
    for vectors, error in (
        (np.ones((1, 2), dtype=np.float32), InvalidVectorError),
        (np.ones(2, dtype=np.float32), InvalidVectorError),
        (np.stack([VECTOR, NAN_VECTOR]), InvalidVectorError),
        (np.ones((2, 3), dtype=np.float32), InvalidVectorError),
    ):
        with pytest.raises(error):
            store.put_embeddings(SPACE, "fake-bow", both, vectors)
    with pytest.raises(InvalidVectorError):
        store.put_embeddings(SPACE, "a new model", both, np.ones((2, 0), dtype=np.float32))
    store.put_embeddings(SPACE, "fake-bow", [NodeText(NodeId("ghost"), "", "")], np.ones((1, 2), dtype=np.float32))
    assert dump(store_at()) == before


@pytest.mark.sqlite
@pytest.mark.parametrize("damaged", [b"\x00\x00\xc0\x7f" * 16, b"\x00" * 60, b"\x00" * 61, b""])
def test_a_damaged_vector_is_refused_and_counts_as_none_until_it_is_made_anew(
    damaged: bytes, store: Store, tmp_path: Path
) -> None:
    encoder = FakeEncoder(16)
    ids = filled(store, encoder=encoder)
    sound = store.snapshot(SPACE, embedding_model=encoder.model_id)
    key = sound.keys.tolist()[-1]
    with closing(sqlite3.connect(tmp_path / "graph.sqlite")) as connection, connection:
        connection.execute("UPDATE embeddings SET vector = ? WHERE node_key = ?", (damaged, key))
    for read in (
        lambda: store.snapshot(SPACE, embedding_model=encoder.model_id),
        lambda: store.vectors_by_key(SPACE, [key], encoder.model_id),
    ):
        with pytest.raises(InvalidVectorError, match="run locigraph build with"):
            read()
    assert store.unembedded(SPACE, encoder.model_id) == []
    lacking = store.unembedded(SPACE, encoder.model_id, checks_vectors=True)
    assert [each.node_id for each in lacking] == [ids["fact"]]
    store.put_embeddings(SPACE, encoder.model_id, lacking, encoder.encode([each.text for each in lacking]))
    again = store.snapshot(SPACE, embedding_model=encoder.model_id)
    np.testing.assert_array_equal(again.embeddings, sound.embeddings)


def test_writing_no_embeddings_changes_nothing(store: Store, store_at: Place) -> None:
    filled(store)
    before = dump(store_at())
    store.put_embeddings(SPACE, "m", [], np.zeros((0, 4), dtype=np.float32))
    assert dump(store_at()) == before


def test_the_indexer_gets_nodes_with_the_vector_of_their_present_text(store: Store) -> None:
    encoder = FakeEncoder()
    ids = filled(store, encoder=encoder)
    keys = store.snapshot(SPACE).keys.tolist()
    store.commit(GraphChange(SPACE, MONDAY, updates=(NodeUpdate(ids["first"], description="not embedded yet"),)))
    with pytest.raises(InvalidVectorError, match="run locigraph build"):
        store.vectors_by_key(SPACE, keys, encoder.model_id)
    nodes, found, vectors = store.vectors_by_key(SPACE, [*keys[1:], 999], encoder.model_id)
    assert [node.id for node in nodes] == [ids["second"], ids["fact"]]
    assert found == keys[1:]
    np.testing.assert_array_equal(vectors, encoder.encode([node.description for node in nodes]))
    assert store.turns_of_nodes(SPACE, keys) == {keys[0]: ("t0",), keys[1]: ("t1",), keys[2]: ("t0", "t1")}


def test_every_change_of_a_node_tells_the_indexes_in_order(store: Store) -> None:
    ids = filled(store)
    first, second, fact_key = store.snapshot(SPACE).keys.tolist()

    def rows() -> list[tuple[str, int, str]]:
        return [(row.space, row.node_key, row.action) for row in store.read_outbox(limit=100)]

    assert rows() == [(SPACE, key, "upsert") for key in (first, second, fact_key)]
    store.acknowledge_outbox(store.read_outbox(limit=100))
    assert rows() == []
    store.commit(GraphChange(SPACE, MONDAY, updates=(NodeUpdate(ids["fact"], label="x"),)))
    store.put_embeddings(SPACE, "m", texts_of([store.node(SPACE, ids["first"])]), np.ones((1, 2), dtype=np.float32))
    store.forget(SPACE, [TurnId("t1")])
    assert rows()[:2] == [(SPACE, fact_key, "upsert"), (SPACE, first, "upsert")]
    assert sorted(rows()[2:]) == [(SPACE, second, "delete"), (SPACE, fact_key, "delete")]


def test_acknowledging_part_of_the_outbox_keeps_the_rest(store: Store) -> None:
    filled(store)
    rows = store.read_outbox(limit=2)
    assert len(rows) == 2
    store.acknowledge_outbox(rows[:1])
    assert [row.seq for row in store.read_outbox(limit=100)] == [rows[1].seq, rows[1].seq + 1]


def test_further_provenance_concerns_no_index(store: Store) -> None:
    turns = make_turns(["one", "two"])
    store.append_turns(turns)
    nodes = [fact("f", "a fact", turns[0]), fact("e", "Ann", turns[0], kind="entity")]
    ids = store.commit(change_of(turns[0], nodes=nodes))
    store.acknowledge_outbox(store.read_outbox(limit=100))
    said_again = [NodeUpdate(ids[ref], add_provenance=(turns[1].turn_id,)) for ref in ("f", "e")]
    store.commit(change_of(turns[1], updates=said_again))
    (episode,) = (node for node in store.nodes(SPACE, types=["episode"]) if node.provenance == ("t1",))
    snapshot = store.snapshot(SPACE)
    told = [row.node_key for row in store.read_outbox(limit=100)]
    assert told == [snapshot.keys[snapshot.row_of[episode.id]]]
    assert store.node(SPACE, ids["f"]).provenance == ("t0", "t1")
    assert store.node(SPACE, ids["e"]).provenance == ("t0", "t1")


def test_a_node_holds_the_words_of_those_who_gave_them_and_not_of_those_who_repeat_them(store: Store) -> None:
    first, second = make_turns(["I repair boats.", "I do."])
    turns = first, replace(second, speaker="Eve")
    store.append_turns(turns)
    made = store.commit(change_of(turns[0], nodes=[fact("f", "Ann repairs boats", turns[0])]))["f"]
    repeats = NodeUpdate(made, add_provenance=(turns[1].turn_id,))
    store.commit(replace(change_of(turns[1]), updates=(repeats,)))
    assert store.origins_of(SPACE, [made, NodeId("absent")]) == {
        made: (Said(turns[0].turn_id, turns[0].session_id, turns[0].speaker, turns[0].spoken_at),)
    }
    assert store.origins_of(OTHER_SPACE, [made]) == {}
    assert store.speakers(SPACE) == sorted({turns[0].speaker, "Eve"})


def test_a_setting_is_remembered_and_written_over(store: Store) -> None:
    assert store.setting("colour") is None
    store.remember({"colour": "red"})
    store.remember({"colour": "blue"})
    assert store.setting("colour") == "blue"


def test_the_store_holds_the_relation_labels(store: Store) -> None:
    assert store.relation_labels(SPACE)["NEXT"].kind == "structural"


# --- opening -------------------------------------------------------------------------------------------------------


def test_a_store_is_opened_again_with_all_it_held(store: Store, store_at: Place) -> None:
    filled(store)
    before = dump(store_at())
    with Store(store_at()) as again:
        assert [turn.text for turn in again.turns(SPACE)] == ["I repair boats.", "Which boats?"]
    assert dump(store_at()) == before


def test_a_store_in_memory_works_through_the_rows(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    with Store("sqlite://") as memory, Store(tmp_path / "file.sqlite") as file:
        filled(memory, encoder=encoder)
        filled(file, encoder=encoder)
        rows = memory.snapshot(SPACE, embedding_model=encoder.model_id)
        columns = file.snapshot(SPACE, embedding_model=encoder.model_id)
    assert rows.fingerprint == columns.fingerprint
    assert rows.turns_of == columns.turns_of


def test_a_path_that_cannot_hold_a_store_is_a_store_error(tmp_path: Path) -> None:
    junk = tmp_path / "junk.sqlite"
    junk.write_bytes(b"no database at all, but long enough " * 99)
    for path in (junk, tmp_path, junk / "below.sqlite", "nonsense://x"):
        with pytest.raises(StoreError):
            Store(path)
    assert junk.read_bytes().startswith(b"no database")


@pytest.mark.sqlite
def test_a_store_that_another_process_writes_to_opens_and_a_lock_that_stays_is_a_store_error(
    store: Store, tmp_path: Path, store_at: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / "graph.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with Store(store_at()) as second:
            assert second.spaces() == []
            with second._engine.connect() as connection:  # pooled: the next one waits as long
                connection.exec_driver_sql("PRAGMA busy_timeout=10")
            with pytest.raises(StoreError, match="database is locked; another process has been writing"):
                second.append_turns(make_turns(["one"]))
        other.execute("ROLLBACK")
    assert store.append_turns(make_turns(["one"])) == 1


@pytest.mark.sqlite
def test_a_forgetting_whose_old_pages_a_reader_keeps_says_so_until_the_reader_has_ended(
    store: Store, tmp_path: Path
) -> None:
    ids = filled(store)
    with closing(sqlite3.connect(tmp_path / "graph.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM turns").fetchall()
        with store._engine.connect() as connection:  # pooled: the next one waits as long
            connection.exec_driver_sql("PRAGMA busy_timeout=10")
        with pytest.raises(StoreError, match="erased, but old pages remain in the file's log until its other readers"):
            store.forget(SPACE, [TurnId("t1")])
        assert ids["second"] not in {node.id for node in store.nodes(SPACE)}
        reader.execute("COMMIT")
    store.empty_log()
    assert (tmp_path / "graph.sqlite-wal").stat().st_size == 0


def test_a_foreign_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "foreign.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE turns (x)")
    connection.close()
    before = dump(path)
    with pytest.raises(StoreError, match="another application and was left unchanged; name another file"):
        Store(path)
    assert dump(path) == before


#: Names that look empty, and of which no description could be made.
BLANK = (" ", "\u00a0", "\u3000", "\u0085")


def test_names_that_no_index_could_hold_are_refused(store: Store) -> None:
    (turn,) = make_turns(["Hello"])
    bad = [dataclasses.replace(turn, space=SpaceId("x" * 241)), dataclasses.replace(turn, turn_id=TurnId("a\x1fb"))]
    for each in (*bad, *(dataclasses.replace(turn, speaker=name) for name in ("", *BLANK))):
        with pytest.raises(StoreError, match="expected 1 to 240 bytes without control characters, not blank"):
            store.append_turns([each])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("speaker", "A" * 200_000),
        ("session_id", ""),
        ("conversation_id", "a\nb"),
        ("text", "x" * 1_000_001),
        ("text", "half \ud800"),
        ("image_caption", "nul \x00"),
        ("position", 10**30),
        ("spoken_at", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))),
        ("spoken_at", datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12)))),
        ("spoken_at", datetime(999, 12, 31)),
    ],
)
def test_a_turn_that_could_not_be_kept_is_refused_at_the_door_with_all_that_came_with_it(
    store: Store, field: str, value: object
) -> None:
    sound, poison = make_turns(["one", "two"])
    changes: dict[str, Any] = {field: value}
    with pytest.raises(StoreError, match=rf"turn 't1': {field} is .* expected .* nothing was written"):
        store.append_turns([sound, replace(poison, **changes)])
    assert store.spaces() == []


@pytest.mark.parametrize("spoken_at", [datetime(1000, 1, 1, tzinfo=UTC), datetime(2999, 12, 31, 23, 59, tzinfo=UTC)])
def test_the_first_and_last_times_of_the_range_are_kept(store: Store, spoken_at: datetime) -> None:
    turn = make_turn(0, "This month we sail.", spoken_at=spoken_at)
    store.append_turns([turn])
    store.commit(change_of(turn))
    assert store.turns(SPACE) == [turn]
    assert store.node(SPACE, store.nodes(SPACE)[0].id).created_at == spoken_at
