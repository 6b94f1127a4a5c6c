from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locigraph.kg.errors import UnknownNodeError
from locigraph.kg.store import Store
from locigraph.kg.types import UNDATED, GraphChange, NewNode, NewRelation, NodeId, NodeStatus, NodeUpdate, SpaceId
from tests.databases import Place
from tests.fakes import MONDAY, SPACE, change_of, fact, make_turn, make_turns

LATER = MONDAY + timedelta(hours=1)
SECOND = timedelta(seconds=1)


@pytest.fixture
def store(store_at: Place) -> Iterator[Store]:
    with Store(store_at()) as opened:
        yield opened


def with_fact(store: Store, description: str = "Ann lives in Porto") -> NodeId:
    turn = make_turn(0, description)
    store.append_turns([turn])
    return store.commit(change_of(turn, nodes=[fact("f", description, turn)]))["f"]


def test_a_node_is_unknown_until_the_second_it_is_recorded(store: Store) -> None:
    node_id = with_fact(store)
    assert store.nodes(SPACE, as_of=MONDAY - SECOND) == []
    with pytest.raises(UnknownNodeError):
        store.node(SPACE, node_id, as_of=MONDAY - SECOND)
    assert store.node(SPACE, node_id, as_of=MONDAY).description == "Ann lives in Porto"


def test_an_updated_node_keeps_its_earlier_words_for_earlier_times(store: Store) -> None:
    node_id = with_fact(store)
    update = NodeUpdate(node_id, label="Lisbon", description="Ann lives in Lisbon", attributes={"city": "Lisbon"})
    store.commit(GraphChange(SPACE, LATER, updates=(update,)))
    before, after = store.node(SPACE, node_id, as_of=LATER - SECOND), store.node(SPACE, node_id, as_of=LATER)
    assert (before.description, before.label, before.attributes) == ("Ann lives in Porto", "Ann lives in Porto", {})
    assert (after.description, after.label, after.attributes) == ("Ann lives in Lisbon", "Lisbon", {"city": "Lisbon"})
    assert (before.update_time, after.update_time) == (MONDAY, LATER)
    assert before.created_at == after.created_at == MONDAY
    assert store.node(SPACE, node_id) == after


def test_an_archived_node_is_still_found_at_earlier_times(store: Store) -> None:
    node_id = with_fact(store)
    store.commit(GraphChange(SPACE, LATER, updates=(NodeUpdate(node_id, status=NodeStatus.ARCHIVED),)))
    assert node_id not in [n.id for n in store.nodes(SPACE)]
    assert node_id in [n.id for n in store.nodes(SPACE, include_archived=True)]
    assert node_id in [n.id for n in store.nodes(SPACE, as_of=LATER - SECOND)]
    assert store.node(SPACE, node_id).status is NodeStatus.ARCHIVED


def test_superseding_closes_the_valid_time_links_the_successor_and_keeps_the_past(store: Store) -> None:
    old = with_fact(store)
    turn = make_turn(1, "I moved to Lisbon", spoken_at=LATER)
    store.append_turns([turn])
    change = change_of(
        turn,
        nodes=[fact("new", "Ann lives in Lisbon", turn)],
        updates=[NodeUpdate(old, valid_to=LATER)],
        relations=[NewRelation(old, "SUPERSEDED_BY", "new")],
    )
    new = store.commit(change)["new"]
    assert store.node(SPACE, old).valid_to == LATER
    assert store.node(SPACE, old).status is NodeStatus.ACTIVE
    assert store.node(SPACE, old, as_of=LATER - SECOND).valid_to is None
    assert [(r.source, r.target) for r in store.relations(SPACE) if r.label == "SUPERSEDED_BY"] == [(old, new)]
    assert store.relations(SPACE, as_of=LATER - SECOND) == []


def test_provenance_that_came_later_is_invisible_earlier(store: Store) -> None:
    node_id = with_fact(store)
    turn = make_turn(1, "As I said, Porto.", spoken_at=LATER)
    store.append_turns([turn])
    store.commit(change_of(turn, updates=[NodeUpdate(node_id, add_provenance=(turn.turn_id,))]))
    assert store.node(SPACE, node_id, as_of=MONDAY).provenance == ("t0",)
    assert store.node(SPACE, node_id).provenance == ("t0", "t1")
    assert store.node(SPACE, node_id).update_time == MONDAY  # saying it again is no new version


def test_a_turn_that_was_spoken_later_is_no_source_earlier_even_of_what_a_second_pass_dates_back(store: Store) -> None:
    """As ``resolve`` does: the node that stays gets the turns of a merged one as of the time when that one was new."""
    node_id = with_fact(store)
    turn = make_turn(1, "Porto again.", spoken_at=LATER)
    store.append_turns([turn])
    store.commit(change_of(turn))
    store.commit(GraphChange(SPACE, MONDAY, updates=(NodeUpdate(node_id, add_provenance=(turn.turn_id,)),)))
    assert store.node(SPACE, node_id, as_of=MONDAY).provenance == ("t0",)
    assert store.node(SPACE, node_id).provenance == ("t0", "t1")
    earlier = store.snapshot(SPACE, as_of=MONDAY)
    assert earlier.turns_of[earlier.row_of[node_id]] == ("t0",)


def test_two_updates_in_one_second_leave_the_last_and_the_one_before_both(store: Store) -> None:
    node_id = with_fact(store)
    for text in ("first", "second"):
        store.commit(GraphChange(SPACE, LATER, updates=(NodeUpdate(node_id, description=text),)))
    assert store.node(SPACE, node_id, as_of=LATER).description == "second"
    assert store.node(SPACE, node_id, as_of=LATER - SECOND).description == "Ann lives in Porto"


def test_an_update_that_comes_late_does_not_rewrite_history(store: Store) -> None:
    node_id = with_fact(store)
    store.commit(GraphChange(SPACE, LATER, updates=(NodeUpdate(node_id, description="known at one"),)))
    early = MONDAY + timedelta(minutes=30)
    store.commit(GraphChange(SPACE, early, updates=(NodeUpdate(node_id, description="told too late"),)))
    assert store.node(SPACE, node_id, as_of=early).description == "Ann lives in Porto"
    assert store.node(SPACE, node_id, as_of=LATER).description == "told too late"
    assert store.node(SPACE, node_id).update_time == LATER


def test_a_time_without_zone_is_read_as_utc(store: Store) -> None:
    with_fact(store)
    assert len(store.nodes(SPACE, as_of=datetime(2024, 1, 1, 12))) == 2
    assert store.nodes(SPACE, as_of=datetime(2024, 1, 1, 11, 59, 59)) == []


def test_what_has_no_date_is_known_at_any_time(store: Store) -> None:
    turn = make_turn(0, "hello", dated=False)
    store.append_turns([turn])
    store.commit(change_of(turn))
    assert len(store.nodes(SPACE, as_of=UNDATED)) == 1
    assert store.snapshot(SPACE, as_of=UNDATED).turn_ids == ("t0",)


def test_an_edge_is_never_known_before_both_its_ends(store: Store) -> None:
    # The turn of 12:00 fails and is consolidated after the one of 12:01.
    turns = make_turns(["one", "two"])
    store.append_turns(turns)
    second = store.commit(change_of(turns[1]))["episode"]
    first = store.commit(change_of(turns[0], relations=[NewRelation("episode", "NEXT", second)]))["episode"]
    assert [n.id for n in store.nodes(SPACE, as_of=MONDAY)] == [first]
    assert store.relations(SPACE, as_of=MONDAY) == []
    snapshot = store.snapshot(SPACE, as_of=MONDAY)
    assert (snapshot.num_nodes, len(snapshot.source)) == (1, 0)
    assert [(r.source, r.target) for r in store.relations(SPACE, as_of=turns[1].spoken_at)] == [(first, second)]


OPERATIONS = st.lists(
    st.tuples(
        st.integers(0, 20),  # minute
        st.sampled_from(["add", "update", "archive"]),
        st.integers(0, 9),  # which node
    ),
    max_size=10,
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS)
def test_the_past_reads_as_if_the_later_had_not_happened(store: Store, operations: list[tuple[int, str, int]]) -> None:
    """Oracle: after every step in order of time the present is copied; as_of must give each copy back."""
    turn = make_turn(0, "hello", space=SpaceId("oracle"), dated=False)
    store.append_turns([turn])
    made: list[NodeId] = []
    copies: dict[datetime, list[tuple[str, str, NodeStatus, datetime]]] = {}
    for number, (minute, kind, which) in enumerate(sorted(operations)):
        now = MONDAY + timedelta(minutes=minute)
        if kind == "add" or not made:
            node = NewNode("n", "knowledge_node", f"node {number}", f"text {number}", (turn.turn_id,))
            made.append(store.commit(GraphChange(turn.space, now, nodes=(node,)))["n"])
        else:
            change = NodeUpdate(made[which % len(made)], description=f"text {number}")
            if kind == "archive":
                change = replace(change, description=None, status=NodeStatus.ARCHIVED)
            store.commit(GraphChange(turn.space, now, updates=(change,)))
        copies[now] = [
            (n.id, n.description, n.status, n.update_time) for n in store.nodes(turn.space, include_archived=True)
        ]
    for time, copy in copies.items():
        found = store.nodes(turn.space, as_of=time, include_archived=True)
        assert [(n.id, n.description, n.status, n.update_time) for n in found] == copy
        snapshot = store.snapshot(turn.space, as_of=time)
        assert list(snapshot.descriptions) == [text for _, text, _, _ in copy]
        assert snapshot.active.tolist() == [status is NodeStatus.ACTIVE for _, _, status, _ in copy]
    store.forget_spaces([turn.space])
    store.restore(turn.space)
