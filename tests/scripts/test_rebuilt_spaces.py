"""A late turn, for which a whole space is consolidated again: nobody sees it half done, and nobody else waits."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from locigraph import Memory
from locigraph.assembly.graphs import GraphWriter
from locigraph.kg.errors import LocigraphError
from locigraph.kg.types import SpaceId
from locigraph.memory.rebuilt_spaces import RebuiltSpaces

TURN: dict[str, Any] = {"session": "s1", "speaker": "Ana", "text": "I sold the blue bike to Tom."}


def test_questions_about_other_spaces_are_answered_meanwhile_and_those_about_this_one_wait(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, consolidate = Event(), Event(), GraphWriter.consolidate

    def slowly(*args: Any, **options: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return consolidate(*args, **options)

    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
        for space in ("ana", "bo"):
            memory.add(**TURN, space=space, spoken_at="2024-05-02", turn_id="t1", user=space)
        monkeypatch.setattr(GraphWriter, "consolidate", slowly)
        with ThreadPoolExecutor() as pool:
            early = TURN | {"session": "s0", "text": "I sold the canoe.", "space": "ana", "spoken_at": "2024-05-01"}
            late = pool.submit(memory.add, **early, turn_id="t0")
            assert begun.wait(60)
            asked: dict[str, Any] = {"question": "What did Ana sell?"}
            waiting: list[Future[Any]] = [
                pool.submit(memory.recall, **asked, space="ana"),
                pool.submit(memory.recall, **asked, user="ana"),
                pool.submit(memory.explain, **asked, space="ana"),
                pool.submit(memory.turns, "ana"),
            ]
            try:
                assert memory.recall_at_once([asked | {"space": "ana"}]) == [None]
                assert len(memory.recall(**asked, space="bo")) >= 1
                assert len(memory.recall(**asked, space="bo", strategy="v1")) >= 1
                assert len(memory.recall(**asked, user="bo")) >= 1
                assert memory.explain(**asked, space="bo")
                assert [memory.is_rebuilding(each) for each in ("ana", "bo", ["bo", "ana"])] == [True, False, True]
                assert [memory.is_rebuilding(user=each) for each in ("ana", "bo")] == [True, False]
                for each in waiting:
                    with pytest.raises(NotYetError):
                        each.result(0.02)
            finally:
                go_on.set()
            assert late.result(60) == "t0"
            for each in waiting[:2]:
                assert {turn for hit in each.result(60) for turn in hit.turn_ids} == {"t0", "t1"}
            assert {each.turn_id for each in waiting[2].result(60)} == {"t0", "t1"}
            assert [turn.turn_id for turn in waiting[3].result(60)] == ["t0", "t1"]


def test_old_turns_before_a_newer_one_are_consolidated_in_steps_during_which_questions_wait(place: Path) -> None:
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        memory.add(**TURN, space="ana", spoken_at="2024-05-02", turn_id="new")
        old = [
            TURN | {"session": "s0", "text": f"I sold canoe {n}.", "space": "ana", "spoken_at": "2024-05-01"}
            for n in range(120)
        ]
        states = [(memory.is_rebuilding("ana"), memory.is_being_added(["ana"])) for _ in memory.adding(old)]
        assert states == [(True, True)] * 2
        assert not memory.is_rebuilding("ana")
        assert not memory.is_being_added(["ana"])
        assert [turn.turn_id for turn in memory.turns("ana")][-1] == "new"
        assert not memory.notes("ana")


@pytest.mark.long
def test_a_memory_that_is_closed_amid_a_rebuild_does_the_rest_first_and_lets_nobody_wait(place: Path) -> None:
    memory = Memory.open(place / "memory.sqlite", checkpoint=None)
    for n in range(20):
        memory.add(**TURN | {"text": f"I flew kite {n}."}, space="ana", spoken_at="2024-05-02")
    early = TURN | {"session": "s0", "space": "ana", "spoken_at": "2024-05-01"}
    old = [early | {"text": f"Canoe {n}."} for n in range(120)]
    adding = memory.adding(old)
    next(adding)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(memory.turns, "ana")
        with pytest.raises(NotYetError):
            waiting.result(0.1)
        memory.close(flush=False)
        with pytest.raises(LocigraphError, match="closed"):
            waiting.result(60)
    with pytest.raises(LocigraphError, match="closed"):
        next(adding)
    with Memory.open(place / "memory.sqlite", checkpoint=None) as again:
        assert not again.notes("ana")
        assert len(again.recall("kite", space="ana", strategy="bm25", top_k=100, fold=None)) >= 20


def test_a_rebuild_that_ends_with_an_error_lets_the_questions_go_on() -> None:
    rebuilt = RebuiltSpaces()

    def fail() -> None:
        with rebuilt.rebuilding([SpaceId("a")]):
            assert [rebuilt.is_among(each) for each in ("a", None, ["b", "a"], "b")] == [True, True, True, False]
            with rebuilt.rebuilding([SpaceId("a")]):
                pass
            assert rebuilt.is_among("a")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert not rebuilt.is_among(None)
    rebuilt.wait("a")
