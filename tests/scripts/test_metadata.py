"""Metadata, filters and expiry through the memory: what is found, what never comes back."""

from __future__ import annotations

import sqlite3
from collections import UserDict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from locigraph import Memory
from locigraph.assembly.strategies import recalled
from locigraph.kg.errors import LocigraphError, StoreError
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.retrieval.errors import IndexUnavailableError
from locigraph.retrieval.index.descriptions import DescriptionIndexer
from locigraph.scripts.commands.memory.forget import forget
from locigraph.scripts.commands.memory.recall import recall
from tests.faults.residue import files_with

TURN: dict[str, Any] = {"space": "ana", "session": "s1", "speaker": "Ana"}
PLAIN = [name for name in recalled() if not name.endswith("-adapted")]  # the others need a trained adapter
BIKES, BOATS = {"project": "bikes", "year": 2024}, {"project": "boats", "year": 2023}


def opened(place: Path) -> Memory:
    return Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint"))


def filled(memory: Memory, count: int = 20) -> None:
    memory.add_many(
        TURN | {"turn_id": f"t{n}", "text": f"I sold thing {n} to Tom.", "metadata": (BIKES, BOATS)[n % 2]}
        for n in range(count)
    )


@pytest.mark.long
@pytest.mark.parametrize("strategy", PLAIN)
def test_in_every_strategy_a_filter_leaves_what_satisfies_it_and_as_many_as_asked_for(
    strategy: str, place: Path
) -> None:
    with opened(place) as memory:
        filled(memory)
        for conditions, odd in (({"project": "bikes"}, 0), ({"project": {"$ne": "bikes"}}, 1)):
            found = memory.recall("What did Ana sell?", space="ana", top_k=5, strategy=strategy, filter=conditions)
            assert {int(turn[1:]) % 2 for hit in found for turn in hit.turn_ids} == {odd}
            assert len(found) == 5


def test_filters_of_other_mappings_that_look_alike_are_told_apart(place: Path) -> None:
    class Conditions(UserDict[str, Any]):
        def __repr__(self) -> str:
            return "conditions"

    with opened(place) as memory:
        filled(memory, 6)
        for project, odd in (("bikes", 0), ("boats", 1)):
            for conditions in (Conditions(project=project), {"project": Conditions({"$in": [project]})}):
                found = memory.recall("What did Ana sell?", space="ana", filter=conditions)
                assert {int(turn[1:]) % 2 for hit in found for turn in hit.turn_ids} == {odd}


@pytest.mark.long
def test_a_filter_that_few_turns_satisfy_still_finds_them_all(place: Path) -> None:
    with opened(place) as memory:
        filled(memory, 150)
        named = ["t3", "t77", "t140"]
        for strategy in PLAIN:
            asked: dict[str, Any] = {"space": "ana", "strategy": strategy, "filter": {"$turn": {"$in": named}}}
            found = memory.recall("What did Ana sell?", top_k=9, **asked)
            assert {turn for hit in found for turn in hit.turn_ids} == {*named}
        assert not [*memory.recall("What did Ana sell?", space="ana", filter={"project": "cars"})]


def test_filters_read_only_turns_that_are_new_and_find_what_late_ones_and_forgetting_leave(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    said_in = Store.said_in

    def counted(self: Store, *arguments: Any, **options: Any) -> Any:
        found = said_in(self, *arguments, **options)
        read.append(len(found))
        return found

    def bikes(memory: Memory) -> set[str]:
        found = memory.recall("What did Ana sell?", space="ana", top_k=50, fold=None, filter={"project": "bikes"})
        return {turn for hit in found for turn in hit.turn_ids}

    monkeypatch.setattr(Store, "said_in", counted)
    with opened(place) as memory:
        filled(memory, 10)
        assert bikes(memory) == {f"t{n}" for n in range(0, 10, 2)}
        memory.add(**TURN, turn_id="t10", text="I sold a kite.", metadata=BIKES)
        assert bikes(memory) == {f"t{n}" for n in range(0, 11, 2)}
        assert read == [10, 1]
        early = TURN | {"session": "s0", "spoken_at": "2020-01-01"}
        memory.add(**early, turn_id="t12", text="I sold a drum.", metadata=BIKES)
        memory.forget(space="ana", turn_ids=["t0"])
        assert bikes(memory) == {f"t{n}" for n in range(2, 13, 2)}


def test_a_wrong_filter_is_an_error_and_wrong_metadata_change_nothing(place: Path) -> None:
    with opened(place) as memory:
        filled(memory, 2)
        with pytest.raises(LocigraphError, match="is not known"):
            memory.recall("What?", space="ana", filter={"a": {"$like": "b"}})
        with pytest.raises(LocigraphError, match="turn 1: metadata"):
            memory.add_many([TURN | {"text": "Fine."}, TURN | {"text": "Not.", "metadata": {"a": [1]}}])
        assert memory.recall("Fine", space="ana", top_k=50).hits
        assert not any("Fine" in hit.text for hit in memory.recall("Fine", space="ana", top_k=50))


def test_a_turn_that_is_added_again_keeps_its_metadata_and_others_are_refused(place: Path) -> None:
    turn = TURN | {"turn_id": "t1", "text": "I sold the boat."}
    with opened(place) as memory:
        memory.add(**turn, metadata=BOATS | {"on": date(2024, 5, 1), "share": 0.5})
        for same in ({}, BOATS | {"share": 0.5, "on": date(2024, 5, 1)}):
            assert memory.add(**turn, metadata=same) == "t1"
        with pytest.raises(LocigraphError, match="turn 't1' is stored with a different metadata"):
            memory.add(**turn, metadata=BIKES)
        assert memory.recall("Who sold what?", space="ana", filter={"project": "boats"}).hits
        assert not memory.recall("Who sold what?", space="ana", filter={"project": "bikes"}).hits


def test_secrets_in_metadata_are_redacted(place: Path) -> None:
    key = "sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    with Memory.open(place / "memory.sqlite", checkpoint=None, redact=True) as memory:
        memory.add(**TURN, text="My key.", metadata={"key": key})
    assert files_with(place, key, []) == []


def test_a_turn_whose_time_has_come_is_in_no_answer_and_then_in_no_file(place: Path) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    with opened(place) as memory:
        memory.add(**TURN, text="The zebrafish code is 7719.", turn_id="t0", expires_at=soon)
        memory.add(**TURN, text="I sold the blue bike.", turn_id="t1")
        assert any("7719" in hit.text for hit in memory.recall("What is the code?", space="ana"))
    with sqlite3.connect(place / "memory.sqlite") as connection:  # an hour later
        connection.execute("UPDATE turns SET expires_at = 1 WHERE turn_id = 't0'")
    with opened(place) as memory:
        for strategy in PLAIN:
            found = memory.recall("What is the code?", space="ana", strategy=strategy, budget_tokens=200)
            assert "zebrafish" not in str(found.as_json())
        explained = memory.explain("What is the code?", space="ana")
        assert [each.turn_id for each in explained] == ["t1"]
        assert "zebrafish" not in str(explained)
        memory.close(flush=False)
    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint"), access="read") as memory:
        assert "7719" not in str(memory.explain("What is the code?", space="ana"))
    with opened(place) as memory:
        assert memory.forget_expired() == 1
        assert memory.forget_expired() == 0
    assert files_with(place, "zebrafish", []) == []


@pytest.mark.parametrize("limit", ["knowledge_node", {"$ne": "episode"}], ids=str)
def test_what_was_replaced_says_so_also_where_turns_are_left_out(limit: Any, place: Path) -> None:
    with opened(place) as memory:
        memory.add(**TURN, text="I live in Lisbon now.", turn_id="t1", spoken_at="2024-01-01T10:00")
        memory.add(**TURN, text="I live in Porto now.", turn_id="t2", spoken_at="2024-02-01T10:00")
        found = memory.recall("Is it Lisbon?", space="ana", strategy="v1", filter={"$type": limit}, fold=None)
        facts = [(hit.turn_ids, hit.superseded_by) for hit in found if hit.type == "knowledge_node"]
        assert facts == [(("t2",), ()), (("t1",), ("t2",))]


def test_an_erasure_that_fails_after_the_store_is_completed_by_the_next_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Store) -> None:
        raise StoreError("another reader")

    with opened(place) as memory:
        memory.add(**TURN, text="I sold the blue bike.")
        memory.add(**TURN, text="The zebrafish code is 7719.", expires_at=datetime.now(UTC))
        with monkeypatch.context() as patch:
            patch.setattr(Store, "empty_log", fail)
            with pytest.raises(StoreError, match="another reader"):
                memory.forget_expired()
        emptied: list[bool] = []
        with monkeypatch.context() as patch:
            patch.setattr(Store, "empty_log", lambda self: emptied.append(True))
            assert [memory.forget_expired(), memory.forget_expired()] == [0, 0]
        assert emptied == [True]


def test_an_erasure_that_did_not_reach_the_index_is_completed_by_another_process(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: DescriptionIndexer, **options: object) -> int:
        raise IndexUnavailableError("in use")

    memory = opened(place)
    memory.add(**TURN, text="I sold the blue bike.")
    memory.add(**TURN, text="The zebrafish code is 7719.", expires_at=datetime.now(UTC))
    memory.flush()
    with monkeypatch.context() as patch:
        patch.setattr(DescriptionIndexer, "drain", fail)
        with pytest.raises(LocigraphError, match="not yet from the index"):
            memory.forget_expired()
        memory.close(flush=False)
    with Store(place / "memory.sqlite", access="read") as store:
        assert store.has_forgotten()
    with opened(place) as memory:
        assert memory.forget_expired() == 0
    with Store(place / "memory.sqlite", access="read") as store:
        assert not store.has_forgotten()
    assert files_with(place, "zebrafish", []) == []


def test_a_space_whose_turns_have_all_expired_answers_for_any_time(place: Path) -> None:
    with opened(place) as memory:
        memory.add(space="gone", session="s", speaker="Ana", text="I sold the blue bike.", user="u")
        memory.add(space="left", session="s", speaker="Ana", text="I sold the red bike.", user="u")
        memory.set_retention("gone", days=1)
        memory._graph.forget(SpaceId("gone"), [t.turn_id for t in memory.turns("gone")], are_expired=True)
        assert memory.spaces(user="u") == ["gone", "left"]
        for strategy in ("v1", "dense"):
            assert not memory.recall("bike?", space="gone", strategy=strategy, as_of="2100-01-01")
            assert memory.recall("bike?", user="u", strategy=strategy, as_of="2100-01-01")


def test_a_space_whose_turns_have_all_expired_keeps_its_owner(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**TURN, text="The code is 7719.", user="ana", expires_at=datetime.now(UTC))
        assert memory.forget_expired() == 1
        assert memory.spaces(user="ana") == ["ana"]
        assert not [*memory.recall("What is the code?", user="ana")]
        with pytest.raises(LocigraphError, match="belongs to"):
            memory.add(**TURN, text="Mine.", user="eve")


@pytest.mark.parametrize("way", ["add", "close", "command"])
def test_what_has_expired_is_erased_by_the_next_change(
    way: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(place) as memory:
        memory.add(**TURN, text="The zebrafish code is 7719.", expires_at="2020-01-01")
        memory.add(**TURN, text="I sold the blue bike.")  # which erases the first one, overdue for years
        assert memory.forget_expired() == 0
        memory.add(**TURN, text="The zebrafish code is 7720.", expires_at="2020-01-01")
        if way == "add":
            memory.add(**TURN, text="To Tom.")
            assert memory.forget_expired() == 0
        memory.add(**TURN, text="The code is 7721.", expires_at=datetime.now(UTC))
        memory.add(**TURN, text="Soon.")
        assert memory.forget_expired() == 1  # adding waits until several have expired
    if way == "command":
        store = str(place / "memory.sqlite")
        forget(expired=True, store=store, checkpoint=None)
        assert "0 turns erased" in capsys.readouterr().out
    assert files_with(place, "zebrafish", []) == []


def test_the_command_takes_a_filter(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with opened(place) as memory:
        filled(memory, 4)
    asked: dict[str, Any] = {
        "space": "ana",
        "store": str(place / "memory.sqlite"),
        "checkpoint": str(place / "checkpoint"),
    }
    recall("What did Ana sell?", filter={"project": "boats"}, **asked)
    said = capsys.readouterr().out
    assert "thing 1" in said
    assert "thing 2" not in said
