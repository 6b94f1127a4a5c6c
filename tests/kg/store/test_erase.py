from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from locigraph.kg.counts import Spent
from locigraph.kg.errors import StoreError, UnknownSpaceError
from locigraph.kg.store import Store
from locigraph.kg.types import GraphChange, NewRelation, NodeId, NodeUpdate, SpaceId, TurnId
from tests.databases import Place
from tests.fakes import MONDAY, OTHER_SPACE, SPACE, FakeEncoder, change_of, fact, make_turns
from tests.kg.dumps import dump, shared_labels


@pytest.fixture
def store(store_at: Place) -> Iterator[Store]:
    with Store(store_at()) as opened:
        yield opened


def planted(store: Store, space: SpaceId = SPACE) -> dict[str, NodeId]:
    """Three turns. ``shared`` came from t0 and t1, ``kept`` from t2, ``ann`` and ``boats`` from t0 and t2."""
    encoder = FakeEncoder()
    turns = make_turns(["My secret is Porto.", "A secret!", "I like boats."], space=space)
    store.append_turns(turns)
    ids: dict[str, NodeId] = {}
    first = [
        fact("ann", "Ann", turns[0], turns[2], kind="entity"),
        fact("boats", "boats", turns[0], turns[2], kind="concept"),
        fact("porto", "Porto", turns[0], kind="entity"),
        fact("shared", "Ann has a secret", turns[0], turns[1]),
    ]
    links = [NewRelation("shared", "MENTIONS", "ann"), NewRelation("episode", "MENTIONS", "porto")]
    made = store.commit(change_of(turns[0], nodes=first, relations=links, encoder=encoder))
    ids.update({("t0" if ref == "episode" else ref): node_id for ref, node_id in made.items()})
    ids["t1"] = store.commit(change_of(turns[1], encoder=encoder))["episode"]
    last = [fact("kept", "Ann likes boats", turns[2])]
    links = [NewRelation("kept", "MENTIONS", ids["ann"]), NewRelation(ids["t1"], "NEXT", "episode")]
    made = store.commit(change_of(turns[2], nodes=last, relations=links, encoder=encoder))
    ids["t2"], ids["kept"] = made["episode"], made["kept"]
    store.commit(GraphChange(space, MONDAY, updates=(NodeUpdate(ids["shared"], description="Ann keeps a secret"),)))
    return ids


def test_forgetting_a_turn_takes_all_that_was_drawn_from_it_and_nothing_else(store: Store, store_at: Place) -> None:
    ids = planted(store)
    assert store.forget(SPACE, [TurnId("t0")]) == 3  # its episode, the shared fact, and Porto
    assert {n.id for n in store.nodes(SPACE)} == {ids[name] for name in ("ann", "boats", "t1", "kept", "t2")}
    assert [t.turn_id for t in store.turns(SPACE)] == ["t1", "t2"]
    assert store.node(SPACE, ids["ann"]).provenance == ("t2",)
    assert {(r.source, r.label, r.target) for r in store.relations(SPACE)} == {
        (ids["kept"], "MENTIONS", ids["ann"]),
        (ids["t1"], "NEXT", ids["t2"]),
    }
    tables = dump(store_at())
    assert len(tables["embeddings"]) == 5
    assert tables["node_versions"] == []
    assert not any("ecret" in str(row) and "My" in str(row) for rows in tables.values() for row in rows)
    assert "Porto" not in str(tables)


def test_forgetting_every_turn_leaves_no_node_edge_version_or_vector(store: Store, store_at: Place) -> None:
    planted(store)
    assert store.forget(SPACE, [TurnId("t0"), TurnId("t1"), TurnId("t2")]) == 8
    tables = dump(store_at())
    for name in ("turns", "nodes", "node_versions", "relations", "embeddings", "provenance"):
        assert tables[name] == [], name


def test_the_indexes_hear_of_every_node_that_is_forgotten(store: Store) -> None:
    ids = planted(store)
    snapshot = store.snapshot(SPACE)
    gone = sorted(snapshot.keys[snapshot.row_of[ids[name]]] for name in ("t0", "porto", "shared"))
    store.acknowledge_outbox(store.read_outbox(limit=100))
    store.forget(SPACE, [TurnId("t0")])
    assert sorted((row.node_key, row.action) for row in store.read_outbox(limit=100)) == [(k, "delete") for k in gone]


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_indexes_hear_of_a_forgetting_while_the_nodes_are_yet_to_be_made_again(
    is_whole: bool, store: Store
) -> None:
    planted(store)
    late = dataclasses.replace(make_turns(["An older remark"])[0], turn_id=TurnId("older"))
    store.append_turns([dataclasses.replace(late, spoken_at=MONDAY - timedelta(days=9), session_id="older")])
    assert store.nodes(SPACE) == []
    store.acknowledge_outbox(store.read_outbox(limit=100))
    assert not store.has_forgotten()
    if is_whole:
        store.forget_spaces([SPACE])
    else:
        store.forget(SPACE, [TurnId("t0")])
    assert store.has_forgotten()


def test_an_edge_over_a_forgotten_turn_is_known_once_both_of_its_ends_are(store: Store) -> None:
    dated, *undated = make_turns(["One", "Two", "Three"])
    turns = [dated, *(dataclasses.replace(turn, spoken_at=None) for turn in undated)]
    store.append_turns(turns)
    ids: list[NodeId] = []
    for turn in turns:
        links = [NewRelation(ids[-1], "NEXT", "episode")] if ids else []
        ids.append(store.commit(change_of(turn, relations=links))["episode"])
    store.forget(SPACE, [undated[0].turn_id])
    before = store.snapshot(SPACE, as_of=MONDAY - timedelta(days=1))
    assert len(before.source) == 0
    assert list(store.snapshot(SPACE).relations) == ["NEXT"]


def test_an_edge_that_a_forgotten_turn_drew_between_nodes_that_stay_goes_too(store: Store) -> None:
    turns = make_turns(["one", "two", "three"])
    store.append_turns(turns)
    a = store.commit(change_of(turns[0], nodes=[fact("a", "the storm", turns[0])]))["a"]
    b = store.commit(change_of(turns[1], nodes=[fact("b", "the flood", turns[1])]))["b"]
    store.commit(change_of(turns[2], relations=[NewRelation(a, "CAUSES", b)]))
    store.forget(SPACE, [TurnId("t2")])
    assert {a, b} <= {n.id for n in store.nodes(SPACE)}
    assert store.relations(SPACE) == []


def test_a_space_that_is_named_twice_is_forgotten_and_counted_once(store: Store) -> None:
    planted(store)
    nodes = len(store.nodes(SPACE))
    assert nodes
    assert store.forget_spaces([SPACE, SPACE]) == nodes


def test_a_key_that_was_forgotten_is_never_given_again(store: Store) -> None:
    planted(store)
    highest = int(store.snapshot(SPACE).keys.max())
    store.forget_spaces([SPACE])
    store.restore(SPACE)
    planted(store)
    assert int(store.snapshot(SPACE).keys.min()) > highest


def test_forgetting_an_unknown_turn_is_refused_and_forgets_nothing(store: Store, store_at: Place) -> None:
    planted(store)
    before = dump(store_at())
    with pytest.raises(StoreError, match=r"has no turn 't9', or it was erased before; nothing was erased now"):
        store.forget(SPACE, [TurnId("t0"), TurnId("t9")])
    assert dump(store_at()) == before


def test_forgetting_a_space_leaves_no_row_of_it_and_every_row_of_the_others(store: Store, store_at: Place) -> None:
    planted(store, OTHER_SPACE)
    store.remember({f"extractor/{OTHER_SPACE}": "rules"})
    store.remember({"tombstone_key": "00" * 32})
    before = dump(store_at(), without=("outbox", "sqlite_sequence"))
    planted(store, SPACE)
    store.remember({f"extractor/{SPACE}": "rules"})
    store.forget_spaces([SPACE])
    assert store.restore(SPACE) == 3  # digests alone were left
    assert dump(store_at(), without=("outbox", "sqlite_sequence")) == before
    assert store.spaces() == [OTHER_SPACE]


def test_a_forgotten_space_may_come_back_and_be_built_by_another_extractor(store: Store) -> None:
    planted(store)
    store.remember({f"extractor/{SPACE}": "rules"})
    store.remember({f"extractor/other/{SPACE}": "rules"})  # of a space whose name ends alike
    store.forget_spaces([SPACE])
    assert store.setting(f"extractor/{SPACE}") is None
    assert store.setting(f"extractor/other/{SPACE}") == "rules"
    store.restore(SPACE)
    planted(store)
    assert len(store.nodes(SPACE)) == 8


def test_more_nodes_than_one_statement_can_name_are_forgotten(store: Store) -> None:
    turns = make_turns(["a long list", "short"])
    store.append_turns(turns)
    many = [fact(f"n{i}", f"item {i}", turns[0]) for i in range(1_100)]
    store.commit(change_of(turns[0], nodes=many))
    store.commit(change_of(turns[1]))
    assert store.forget(SPACE, [TurnId("t0")]) == 1_101
    assert len(store.nodes(SPACE)) == 1


def test_what_a_forgotten_turn_had_closed_ends_by_its_other_successor_or_by_its_own_end(store: Store) -> None:
    turns = make_turns(["Boston.", "Denver.", "Austin.", "Boston again."])
    store.append_turns(turns)
    own_end = turns[3].recorded_at
    told = [fact("a", "lives in Boston", turns[0]), fact("b", "a lease", turns[0])]
    first = store.commit(change_of(turns[0], nodes=[told[0], dataclasses.replace(told[1], valid_to=own_end)]))
    boston, lease = first["a"], first["b"]
    for turn, closes in ((turns[1], (boston, lease)), (turns[2], (boston,))):
        open_ones = [i for i in closes if (end := store.node(SPACE, i).valid_to) is None or end > turn.recorded_at]
        change = change_of(
            turn,
            nodes=[fact("c", turn.text, turn)],
            relations=[NewRelation(closed, "SUPERSEDED_BY", "c") for closed in closes],
        )
        updates = tuple(NodeUpdate(i, valid_to=turn.recorded_at) for i in open_ones)
        store.commit(dataclasses.replace(change, updates=updates))
    assert store.node(SPACE, boston).valid_to == store.node(SPACE, lease).valid_to == turns[1].recorded_at
    store.forget(SPACE, [TurnId("t1")])
    assert store.node(SPACE, boston).valid_to == turns[2].recorded_at  # Austin is still true
    assert store.node(SPACE, lease).valid_to == own_end
    store.forget(SPACE, [TurnId("t2")])
    assert store.node(SPACE, boston).valid_to is None


def test_what_a_forgotten_turn_had_closed_did_not_end_in_the_past_either(store: Store) -> None:
    turns = make_turns(["Boston.", "Denver.", "Well.", "Fine."])
    store.append_turns(turns)
    boston = store.commit(change_of(turns[0], nodes=[fact("a", "lives in Boston", turns[0])]))["a"]
    closed = change_of(
        turns[1], nodes=[fact("b", "lives in Denver", turns[1])], relations=[NewRelation(boston, "SUPERSEDED_BY", "b")]
    )
    store.commit(dataclasses.replace(closed, updates=(NodeUpdate(boston, valid_to=turns[1].recorded_at),)))
    store.commit(dataclasses.replace(change_of(turns[3]), updates=(NodeUpdate(boston, label="home"),)))
    store.forget(SPACE, [TurnId("t1")])
    assert store.node(SPACE, boston, as_of=turns[2].recorded_at).valid_to is None
    assert store.node(SPACE, boston).valid_to is None


def test_expired_turns_that_another_process_has_erased_are_passed_over(store: Store) -> None:
    store.append_turns(make_turns(["a", "b", "c"]))
    store.forget(SPACE, [TurnId("t0")], are_expired=True)
    store.forget(SPACE, [TurnId("t0"), TurnId("t1")], are_expired=True)
    assert [turn.turn_id for turn in store.turns(SPACE)] == ["t2"]
    assert store.forget(SPACE, [TurnId("t0")], are_expired=True) == 0


def test_a_turn_that_is_given_again_expires_as_early_as_it_says_and_is_never_put_off(store: Store) -> None:
    (turn,) = make_turns(["my PIN is 4711"])
    store.append_turns([turn])
    early, late = datetime(2100, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
    for given in (late, early, late, None):
        store.append_turns([dataclasses.replace(turn, expires_at=given)])
    assert [turn.expires_at for turn in store.turns(SPACE)] == [early]
    assert [*store.expired(early)] == [SPACE]


def test_of_turns_that_are_given_twice_in_one_batch_the_earlier_expiry_counts(store: Store) -> None:
    (turn,) = make_turns(["my PIN is 4711"])
    early, late = datetime(2100, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
    store.append_turns([dataclasses.replace(turn, expires_at=given) for given in (None, late, early, late)])
    assert [turn.expires_at for turn in store.turns(SPACE)] == [early]


def test_what_a_forgotten_turn_had_closed_is_open_again_and_its_neighbours_are_joined(store: Store) -> None:
    turns = make_turns(["I love pizza.", "Mm.", "Now I love ramen.", "Fine."])
    store.append_turns(turns)
    ids: list[NodeId] = []
    pizza = NodeId("")
    for turn in turns:
        drawn = [fact("food", turn.text, turn)] if "love" in turn.text else []
        links = [NewRelation(ids[-1], "NEXT", "episode")] if ids else []
        updates: tuple[NodeUpdate, ...] = ()
        if turn is turns[2]:
            links.append(NewRelation(pizza, "SUPERSEDED_BY", "food"))
            updates = (NodeUpdate(pizza, valid_to=turn.recorded_at),)
        change = dataclasses.replace(change_of(turn, nodes=drawn, relations=links), updates=updates)
        made = store.commit(change)
        ids.append(made["episode"])
        if turn is turns[0]:
            pizza = made["food"]
    assert store.node(SPACE, pizza).valid_to == turns[2].recorded_at
    store.forget(SPACE, [TurnId("t1"), TurnId("t2")])
    assert store.node(SPACE, pizza).valid_to is None
    assert [(r.source, r.label, r.target) for r in store.relations(SPACE)] == [(ids[0], "NEXT", ids[3])]
    store.forget(SPACE, [TurnId("t3")])
    assert list(store.relations(SPACE)) == []


def test_a_fact_stays_when_a_turn_that_only_said_it_again_is_forgotten_and_goes_with_the_turn_that_worded_it(
    store: Store,
) -> None:
    turns = make_turns(["I repair boats.", "Right, boats.", "Yes."])
    store.append_turns(turns)
    made = store.commit(change_of(turns[0], nodes=[fact("f", "Ann repairs boats", turns[0])]))
    store.commit(change_of(turns[1], updates=[NodeUpdate(made["f"], add_provenance=(TurnId("t1"),))]))
    store.commit(change_of(turns[2], updates=[NodeUpdate(made["f"], add_provenance=(TurnId("t2"),))]))
    store.forget(SPACE, [TurnId("t1")])
    assert store.node(SPACE, made["f"]).provenance == ("t0", "t2")
    store.forget(SPACE, [TurnId("t0")])
    assert [node.type for node in store.nodes(SPACE)] == ["episode"]


def test_a_turn_that_reworded_a_fact_takes_the_fact_with_it(store: Store) -> None:
    turns = make_turns(["I repair boats.", "Secret boats."])
    store.append_turns(turns)
    made = store.commit(change_of(turns[0], nodes=[fact("f", "Ann repairs boats", turns[0])]))
    for update in (
        NodeUpdate(made["f"], add_provenance=(TurnId("t1"),)),
        NodeUpdate(made["f"], description="Ann repairs secret boats", add_provenance=(TurnId("t1"),)),
        NodeUpdate(made["f"], add_provenance=(TurnId("t1"),)),
    ):
        store.commit(GraphChange(SPACE, MONDAY, updates=(update,)))
    store.commit(change_of(turns[1]))
    store.forget(SPACE, [TurnId("t1")])
    assert [node.type for node in store.nodes(SPACE)] == ["episode"]


def test_a_concept_does_not_keep_the_wording_that_a_forgotten_turn_gave_it(store: Store) -> None:
    turns = make_turns(["My secret wedding plan!", "Wedding planning, then.", "A secret plan for the wedding."])
    store.append_turns(turns)
    concept = fact("c", "secret wedding plan", turns[0], kind="concept")
    made = store.commit(change_of(turns[0], nodes=[concept]))
    absorbed = [NodeUpdate(made["c"], add_provenance=(TurnId("t1"),))]
    store.commit(change_of(turns[1], updates=absorbed))
    store.commit(change_of(turns[2], updates=[NodeUpdate(made["c"], add_provenance=(TurnId("t2"),))]))
    store.forget(SPACE, [TurnId("t0")])  # the third turn has all these words too
    assert "secret wedding plan" in [node.description for node in store.nodes(SPACE)]
    store.forget(SPACE, [TurnId("t2")])
    assert [node.description for node in store.nodes(SPACE)] == ["Ben: Wedding planning, then."]


def test_caches_hear_of_every_wording_that_goes_before_it_does(store: Store, store_at: Place) -> None:
    planted(store)
    heard: list[str] = []
    before = dump(store_at())

    def fail(texts: Sequence[str]) -> None:
        raise StoreError("the cache is locked")

    with pytest.raises(StoreError, match="locked"):
        store.forget(SPACE, [TurnId("t0")], before_erasing=fail)
    assert dump(store_at()) == before
    store.forget(SPACE, [TurnId("t0")], before_erasing=heard.extend)
    together = "Ben: A secret!\n(in reply to Ann: My secret is Porto.)"  # what some text encoders read of the reply
    assert heard == ["Ann has a secret", "Ann keeps a secret", "Ann: My secret is Porto.", together, "Porto"]


@pytest.mark.sqlite
def test_no_byte_of_the_database_or_its_log_keeps_a_forgotten_word_while_another_has_it_open(
    store: Store, tmp_path: Path
) -> None:
    planted(store)
    store.forget(SPACE, [TurnId("t0")])
    for file in tmp_path.iterdir():  # with the log, which is there as long as the store is open
        assert b"Porto" not in file.read_bytes(), file


@pytest.mark.sqlite
def test_what_a_forgotten_turn_cost_still_counts_and_no_longer_names_the_turn(tmp_path: Path, store_at: Place) -> None:
    one = Spent(1, 90, 10, 0.5, invalid=2, repaired=1, failed_requests=1)
    with Store(store_at()) as store:
        store.append_turns([*make_turns(["hello", "there"])])
        for turn, stage in (("t0", "scribe"), ("t0", "scribe"), ("t1", "scribe"), ("", "scribe")):
            store.add_spent(SPACE, turn, stage, one)
        store.forget(SPACE, [TurnId("t0")])
        assert store.spent(SPACE) == {("", "scribe"): one + one + one, ("t1", "scribe"): one}
        store.forget_spaces([SPACE])
    with sqlite3.connect(tmp_path / "graph.sqlite") as connection:
        assert connection.execute("SELECT * FROM spent").fetchall() == []
    connection.close()


def test_what_a_model_takes_for_a_turn_that_is_forgotten_while_it_replies_is_kept_without_the_turn(
    store: Store,
) -> None:
    planted(store)
    store.forget(SPACE, [TurnId("t0")])
    store.add_spent(SPACE, "t0", "scribe", Spent(1, 90))
    assert store.spent(SPACE) == {("", "scribe"): Spent(1, 90)}
    store.forget_spaces([SPACE])
    with pytest.raises(UnknownSpaceError):
        store.add_spent(SPACE, "", "scribe", Spent(1, 90))


@pytest.mark.sqlite
def test_more_turns_are_forgotten_and_more_spaces_looked_up_than_a_statement_can_name(store_at: Place) -> None:
    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 600)

    sa.event.listen(sa.Pool, "connect", limit)
    try:
        with Store(store_at()) as store:
            turns = make_turns(["boats"] * 700)
            store.append_turns(turns)
            assert store.forget(SPACE, [turn.turn_id for turn in turns[1:]]) == 0
            assert store.turns(SPACE) == [turns[0]]
            spaces = [SPACE, *(SpaceId(f"s{number}") for number in range(700))]
            assert store.last_spoken(spaces) == {SPACE: turns[0].spoken_at}
    finally:
        sa.event.remove(sa.Pool, "connect", limit)


@pytest.mark.sqlite
def test_a_coined_label_goes_with_its_last_edge(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    ids = planted(store)
    edges = [NewRelation(ids["ann"], "SAILS_WITH", ids["kept"]), NewRelation(ids["shared"], "SAILS_TO", ids["kept"])]
    coined = {"SAILS_WITH": "Person to companion.", "SAILS_TO": "Person to place."}
    store.commit(GraphChange(SPACE, MONDAY, relations=tuple(edges), coined=coined))
    before = {*shared_labels(path)}
    store.forget(SPACE, [TurnId("t0")])
    assert before - {*shared_labels(path)} == {"SAILS_TO"}
    store.forget_spaces([SPACE])
    assert before - {*shared_labels(path)} == {*coined}


@pytest.mark.sqlite
@pytest.mark.parametrize(("all_by", "made_by"), [(False, "t2"), (True, None)])
def test_the_edge_that_closes_a_gap_is_of_the_turn_that_made_it_unless_this_is_forgotten(
    tmp_path: Path, all_by: bool, made_by: str | None
) -> None:
    with Store(tmp_path / "chain.sqlite") as store:
        turns = make_turns(["a", "b", "c"])
        store.append_turns(turns)
        if all_by:  # the turn in the middle made both edges
            first, last = (store.commit(change_of(turn))["episode"] for turn in (turns[0], turns[2]))
            edges = [NewRelation(first, "NEXT", "episode"), NewRelation("episode", "NEXT", last)]
            store.commit(change_of(turns[1], relations=edges))
        else:
            before = store.commit(change_of(turns[0]))["episode"]
            for turn in turns[1:]:
                before = store.commit(change_of(turn, relations=[NewRelation(before, "NEXT", "episode")]))["episode"]
        store.forget(SPACE, [TurnId("t1")])
    with closing(sqlite3.connect(tmp_path / "chain.sqlite")) as file:
        assert file.execute("SELECT label, turn_id FROM relations").fetchall() == [("NEXT", made_by)]


def test_a_space_whose_turns_are_taken_up_again_is_listed_as_changed(store: Store) -> None:
    turns = make_turns(["a", "b"])
    store.append_turns(turns[1:])
    store.commit(change_of(turns[1]))
    store.acknowledge_changes(store.changed_spaces())
    assert not store.changed_spaces()
    store.append_turns(turns)  # the first one comes late
    assert [*store.changed_spaces()] == [SPACE]
