from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from locigraph.kg.errors import UnknownSpaceError
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.types import GraphChange, NodeId, NodeUpdate, SpaceId, TurnId
from locigraph.retrieval.index.documents import Document, LexicalIndex
from tests.fakes import MONDAY, OTHER_SPACE, SPACE, change_of, fact, make_turns
from tests.fakes_graph import Extra, lexical_of, make_snapshot


def snapshot() -> Snapshot:
    turns = make_turns(["I painted the canoe", "Lovely colour", "The kite is torn", "Fine weather"])
    extras = [Extra("knowledge_node", "a canoe", (0,)), Extra("concept", "canoe_painting", (0,))]
    return make_snapshot(turns, extras)


def names(found: list[tuple[Document, float]]) -> list[str]:
    return [str(document.node_id) for document, _ in found]


def test_nodes_that_share_a_stem_are_found_best_first() -> None:
    found = lexical_of(snapshot()).search("Who has canoes?", SPACE, top_k=5)
    assert names(found) == ["n4", "n0"]  # the fact is shorter; the concept is structure
    assert found[0][0].turn_ids == ("t0",)
    assert found[0][1] > found[1][1] > 0


def test_types_and_recorded_time_limit_the_search() -> None:
    lexical = lexical_of(snapshot())
    assert names(lexical.search("canoe kite", SPACE, types=["episode"], top_k=5)) == ["n2", "n0"]
    assert sorted(names(lexical.search("canoe kite", SPACE, as_of=MONDAY, top_k=5))) == ["n0", "n4"]
    assert lexical.search("canoe", SPACE, as_of=MONDAY - timedelta(days=1), top_k=5) == []


def test_named_nodes_limit_the_search_whatever_was_replaced_or_removed_before() -> None:
    lexical = lexical_of(snapshot())
    lexical.add(SPACE, replace(lexical.search("kite", SPACE, top_k=1)[0][0], description="The canoe is torn"))
    lexical.remove(SPACE, NodeId("n4"))
    assert sorted(names(lexical.search("canoe", SPACE, top_k=5))) == ["n0", "n2"]
    for only in ({"n2"}, {"n0"}, {"n1", "n4"}):
        found = lexical.search("canoe", SPACE, only=frozenset(map(NodeId, only)), top_k=5)
        assert {*names(found)} == only & {"n0", "n2"}


def test_archived_nodes_are_not_held() -> None:
    held = snapshot()
    active = np.asarray([True, True, True, True, False, True])
    archived = replace(held, active=active)
    lexical = lexical_of(archived)
    assert names(lexical.search("canoe", SPACE, top_k=9)) == ["n0"]
    assert (lexical.size, lexical.document(SPACE, NodeId("n4"))) == (4, None)


def test_a_space_is_loaded_once_and_others_are_not_seen() -> None:
    loaded: list[SpaceId] = []

    def load(space: SpaceId, as_of: datetime | None) -> Snapshot:
        loaded.append(space)
        return replace(snapshot(), space=space)

    lexical = LexicalIndex(load)
    lexical.load(SPACE)
    lexical.search("canoe", SPACE, top_k=1)
    assert loaded == [SPACE]
    lexical.add(SPACE, Document(NodeId("x"), "episode", "a zebra", (TurnId("t9"),), 0))
    assert lexical.search("zebra", OTHER_SPACE, top_k=5) == []
    assert lexical.document(OTHER_SPACE, NodeId("x")) is None
    assert loaded == [SPACE, OTHER_SPACE]


def test_adding_replaces_and_removing_takes_away() -> None:
    lexical = lexical_of(snapshot())
    lexical.add(SPACE, Document(NodeId("n0"), "episode", "a zebra", (TurnId("t0"),), 0))
    assert names(lexical.search("canoe", SPACE, top_k=5)) == ["n4"]
    assert names(lexical.search("zebra", SPACE, types=["episode"], top_k=5)) == ["n0"]
    lexical.remove(SPACE, NodeId("n0"))
    lexical.remove(SPACE, NodeId("never was"))
    assert lexical.search("zebra", SPACE, top_k=5) == []
    assert lexical.document(SPACE, NodeId("n0")) is None


def test_types_that_are_not_held_are_not_taken_in() -> None:
    lexical = lexical_of(snapshot())
    lexical.add(SPACE, Document(NodeId("c"), "concept", "a zebra", (), 0))
    assert lexical.search("zebra", SPACE, top_k=5) == []


def test_an_unknown_space_is_an_error() -> None:
    with pytest.raises(UnknownSpaceError, match="'nobody' is not in the store"):
        lexical_of(snapshot()).search("canoe", SpaceId("nobody"), top_k=5)


def test_the_past_is_searched_in_the_words_and_turns_it_had_then(tmp_path: Path) -> None:
    first, second = make_turns(["We paddle a canoe."], ["It is a kayak."])
    with Store(tmp_path / "graph.sqlite") as store:
        store.append_turns([first, second])
        made = store.commit(change_of(first, nodes=[fact("f", "Ann has a canoe", first)]))
        update = NodeUpdate(made["f"], description="Ann has a kayak", add_provenance=(second.turn_id,))
        store.commit(GraphChange(SPACE, second.recorded_at, updates=(update,)))
        lexical = LexicalIndex(lambda space, as_of: store.snapshot(space, as_of=as_of))
        facts = ["knowledge_node"]
        (then, _), *_ = lexical.search("canoe", SPACE, types=facts, as_of=first.recorded_at, top_k=5)
        assert (then.description, then.turn_ids) == ("Ann has a canoe", (first.turn_id,))
        assert lexical.search("kayak", SPACE, types=facts, as_of=first.recorded_at, top_k=5) == []
        (now, _), *_ = lexical.search("kayak", SPACE, types=facts, top_k=5)
        assert now.turn_ids == (first.turn_id, second.turn_id)
