from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import pytest

from locigraph.kg.errors import InvalidVectorError
from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.store import Store
from locigraph.kg.times import epoch
from locigraph.kg.types import GraphChange, NewRelation, NodeId, NodeStatus, NodeUpdate
from tests.databases import Place
from tests.fakes import MONDAY, SPACE, FakeEncoder, change_of, fact, make_turn, make_turns

LATER = MONDAY + timedelta(days=7)


@pytest.fixture
def store(store_at: Place) -> Iterator[Store]:
    with Store(store_at()) as opened:
        yield opened


def planted(store: Store, encoder: FakeEncoder) -> dict[str, NodeId]:
    """A fact said on Monday and changed a week later, when a second fact and an edge came."""
    turns = make_turns(["I live in Porto."], ["I live in Lisbon."])
    store.append_turns(turns)
    made = store.commit(
        change_of(
            turns[0],
            nodes=[fact("f", "Ann lives in Porto", turns[0])],
            relations=[NewRelation("f", "DERIVED_FROM", "episode", weight=0.5)],
            encoder=encoder,
        )
    )
    text = "Ann lives in Lisbon"
    update = NodeUpdate(
        made["f"], description=text, add_provenance=(turns[1].turn_id,), embedding=encoder.encode([text])[0]
    )
    later = store.commit(
        change_of(
            turns[1],
            nodes=[fact("g", "Ann moved", turns[1])],
            updates=[update],
            relations=[NewRelation("g", "CAUSES", made["f"]), NewRelation(made["episode"], "NEXT", "episode")],
            encoder=encoder,
        )
    )
    return {"t0": made["episode"], "f": made["f"], "t1": later["episode"], "g": later["g"]}


def edges(snapshot: Snapshot) -> set[tuple[str, str, str]]:
    return {
        (snapshot.ids[s], str(label), snapshot.ids[t])
        for s, label, t in zip(snapshot.source, snapshot.relations, snapshot.target, strict=True)
    }


def test_a_snapshot_of_the_past_holds_the_old_text_with_the_old_vector_and_nothing_later(store: Store) -> None:
    encoder = FakeEncoder()
    ids = planted(store, encoder)
    past = store.snapshot(SPACE, as_of=LATER - timedelta(seconds=1), embedding_model=encoder.model_id)
    assert past.ids == (ids["t0"], ids["f"])
    assert past.descriptions == ("Ann: I live in Porto.", "Ann lives in Porto")
    np.testing.assert_array_equal(past.embeddings, encoder.encode(past.descriptions))
    assert edges(past) == {(ids["f"], "DERIVED_FROM", ids["t0"])}
    assert past.weights.tolist() == [0.5]
    assert past.turn_ids == ("t0",)
    assert past.turns_of == (("t0",), ("t0",))


def test_a_snapshot_of_now_holds_the_new_text_with_the_new_vector(store: Store) -> None:
    encoder = FakeEncoder()
    ids = planted(store, encoder)
    now = store.snapshot(SPACE, embedding_model=encoder.model_id)
    assert now.ids == (ids["t0"], ids["f"], ids["t1"], ids["g"])
    assert now.descriptions[1] == "Ann lives in Lisbon"
    np.testing.assert_array_equal(now.embeddings, encoder.encode(now.descriptions))
    assert edges(now) == {
        (ids["f"], "DERIVED_FROM", ids["t0"]),
        (ids["g"], "CAUSES", ids["f"]),
        (ids["t0"], "NEXT", ids["t1"]),
    }
    assert now.families.tolist() == now.relations.tolist()
    assert now.turns_of == (("t0",), ("t0", "t1"), ("t1",), ("t1",))


def test_the_arrays_agree_with_the_rows_of_the_store(store: Store) -> None:
    planted(store, FakeEncoder())
    snapshot = store.snapshot(SPACE)
    nodes = store.nodes(SPACE, include_archived=True)
    assert list(snapshot.ids) == [n.id for n in nodes]
    assert snapshot.types.tolist() == [n.type for n in nodes]
    assert list(snapshot.labels) == [n.label for n in nodes]
    assert snapshot.recorded_at.tolist() == [epoch(n.created_at) for n in nodes]
    assert snapshot.valid_from.tolist() == [epoch(n.valid_from) if n.valid_from else NO_TIME for n in nodes]
    assert snapshot.valid_to.tolist() == [epoch(n.valid_to) if n.valid_to else NO_TIME for n in nodes]
    assert snapshot.turns_of == tuple(n.provenance for n in nodes)
    assert edges(snapshot) == {(r.source, r.label, r.target) for r in store.relations(SPACE)}
    assert [snapshot.row_of[n.id] for n in nodes] == list(range(4))


def test_each_turn_points_at_its_episode_and_a_pending_one_at_none(store: Store) -> None:
    ids = planted(store, FakeEncoder())
    store.append_turns([make_turn(2, "not yet", spoken_at=LATER + timedelta(days=1))])
    snapshot = store.snapshot(SPACE)
    assert snapshot.turn_ids == ("t0", "t1", "t2")
    assert snapshot.episode_rows.tolist() == [snapshot.row_of[ids["t0"]], snapshot.row_of[ids["t1"]], -1]
    assert (snapshot.speakers, snapshot.session_ids) == (("Ann", "Ben", "Ann"), ("s1", "s2", "s1"))


def test_turns_stand_in_conversation_order_whatever_order_they_were_appended_in(store: Store) -> None:
    turns = make_turns(["one"], ["two"], ["three"])
    for turn in reversed(turns):
        store.append_turns([turn])
    for turn in reversed(turns):
        store.commit(change_of(turn))
    snapshot = store.snapshot(SPACE)
    assert snapshot.turn_ids == ("t0", "t1", "t2")
    assert [snapshot.descriptions[row] for row in snapshot.episode_rows] == ["Ann: one", "Ben: two", "Ann: three"]
    assert snapshot.turns_of == (("t2",), ("t1",), ("t0",))


def test_an_archived_node_is_in_the_snapshot_and_marked(store: Store) -> None:
    ids = planted(store, FakeEncoder())
    store.commit(GraphChange(SPACE, LATER, updates=(NodeUpdate(ids["g"], status=NodeStatus.ARCHIVED),)))
    snapshot = store.snapshot(SPACE)
    assert snapshot.active.tolist() == [True, True, True, False]


def test_a_node_without_a_vector_of_the_model_is_named_as_an_error(store: Store) -> None:
    planted(store, FakeEncoder())
    with pytest.raises(InvalidVectorError, match=r"4 of 4 nodes have no embedding of model 'other'"):
        store.snapshot(SPACE, embedding_model="other")


def test_vectors_of_another_model_do_not_mix_in(store: Store) -> None:
    planted(store, FakeEncoder())
    other = FakeEncoder(dim=5, model_id="other")
    missing = store.unembedded(SPACE, "other")
    store.put_embeddings(SPACE, "other", missing, other.encode([each.text for each in missing]))
    snapshot = store.snapshot(SPACE, embedding_model="other")
    assert snapshot.embeddings.shape == (4, 5)
    np.testing.assert_array_equal(snapshot.embeddings, other.encode(snapshot.descriptions))


def test_a_space_without_nodes_gives_empty_arrays(store: Store) -> None:
    store.append_turns([make_turn(0, "hello")])
    snapshot = store.snapshot(SPACE, embedding_model="m")
    assert snapshot.num_nodes == len(snapshot.source) == len(snapshot.provenance) == 0
    assert snapshot.provenance.shape == (0, 2)
    assert snapshot.episode_rows.tolist() == [-1]
    assert store.snapshot(SPACE, as_of=MONDAY - timedelta(days=1)).turn_ids == ()


def test_the_fingerprint_is_stable_and_changes_with_the_graph(store: Store) -> None:
    encoder = FakeEncoder()
    ids = planted(store, encoder)
    first = store.snapshot(SPACE, embedding_model=encoder.model_id).fingerprint
    assert store.snapshot(SPACE, embedding_model=encoder.model_id).fingerprint == first
    assert len(first) == 12
    store.commit(GraphChange(SPACE, LATER, relations=(NewRelation(ids["t1"], "SIMILAR_TO", ids["t0"]),)))
    second = store.snapshot(SPACE, embedding_model=encoder.model_id).fingerprint
    store.commit(GraphChange(SPACE, LATER, updates=(NodeUpdate(ids["g"], status=NodeStatus.ARCHIVED),)))
    third = store.snapshot(SPACE, embedding_model=encoder.model_id).fingerprint
    assert len({first, second, third}) == 3


def test_a_snapshot_beside_a_writer_is_of_one_moment(store: Store, store_at: Place) -> None:
    turns = make_turns([f"turn {i}" for i in range(60)])
    store.append_turns(turns)
    finished = threading.Event()

    def write() -> None:
        with Store(store_at()) as writer:
            previous: NodeId | None = None
            for turn in turns:
                links = [] if previous is None else [NewRelation(previous, "NEXT", "episode")]
                previous = writer.commit(change_of(turn, relations=links))["episode"]
        finished.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        while not finished.is_set():
            snapshot = store.snapshot(SPACE)
            assert len(snapshot.source) == max(0, snapshot.num_nodes - 1)
            assert len(snapshot.provenance) == snapshot.num_nodes
            assert snapshot.target.tolist() == list(range(1, snapshot.num_nodes))
    finally:
        thread.join()
