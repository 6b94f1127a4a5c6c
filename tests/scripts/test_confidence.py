"""Confidence through the memory and the command: what is known, and what is left out below a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from locigraph import Memory
from locigraph.kg.errors import LocigraphError
from locigraph.scripts.commands.memory.recall import recall

TURN: dict[str, Any] = {"space": "ana", "session": "s1", "speaker": "Ana"}


@pytest.fixture
def memory(place: Path) -> Any:
    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as made:
        made.add_many(TURN | {"turn_id": f"t{n}", "text": f"I sold thing {n} to Tom."} for n in range(15))
        yield made


def test_v2_says_how_likely_an_answer_is_and_others_do_not(memory: Memory) -> None:
    found = memory.recall("What did Ana sell?", space="ana", top_k=3)
    assert found.confidence is not None
    assert 0 < found.confidence < 1
    assert all(hit.confidence is not None and 0 < hit.confidence < 1 for hit in found)
    assert found.as_json()["confidence"] == found.confidence
    plain = memory.recall("What did Ana sell?", space="ana", strategy="v1")
    assert (plain.confidence, plain[0].confidence) == (None, None)


def test_below_the_limit_nothing_is_found_and_a_note_says_why(memory: Memory) -> None:
    asked: dict[str, Any] = {"space": "ana", "top_k": 3, "budget_tokens": 100}
    likely = memory.recall("What did Ana sell?", **asked)
    assert likely.confidence is not None
    kept = memory.recall("What did Ana sell?", **asked, min_confidence=likely.confidence - 0.01)
    assert (kept.hits, str(kept.context)) == (likely.hits, str(likely.context))
    empty = memory.recall("What did Ana sell?", **asked, min_confidence=1.0)
    assert (empty.hits, str(empty.context), empty.confidence) == ((), "", likely.confidence)
    assert empty.context is not None
    assert empty.context.tokens == 0
    assert any("nothing here answers this with a confidence of 1" in note for note in empty.notes)


def test_spaces_of_a_user_are_judged_together(memory: Memory) -> None:
    memory.add(space="bea", session="s1", speaker="Bea", text="I bought a canoe.", user="ann")
    assert memory.recall("Who bought the canoe?", user="ann").confidence is not None


def test_an_answer_that_may_not_be_shown_makes_no_confidence(memory: Memory) -> None:
    bea = {"space": "ana", "session": "s1", "speaker": "Bea"}
    memory.add_many(bea | {"text": f"My sister keeps {n} bees.", "metadata": {"n": n}} for n in range(3))
    asked = "What thing did Ana sell to Tom?"
    anybody = memory.recall(asked, space="ana").confidence
    for options in ({"speaker": "Bea"}, {"filter": {"$speaker": "Bea"}}, {"filter": {"n": {"$gt": 0}}}):
        for space in ("ana", ["ana"]):
            only = memory.recall(asked, space=space, **options).confidence
            assert only is not None
            assert anybody is not None
            assert only < anybody


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"min_confidence": 1.5}, "min_confidence is 1.5; expected a number from 0 to 1"),
        ({"min_confidence": "much"}, "expected a number from 0 to 1"),
        ({"min_confidence": True}, "expected a number from 0 to 1"),
        ({"min_confidence": 0.5, "strategy": "v1"}, "min_confidence needs v2, but strategy is 'v1'"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused(options: dict[str, Any], said: str, memory: Memory) -> None:
    with pytest.raises(LocigraphError, match=said):
        memory.recall("What did Ana sell?", space="ana", **options)


def test_a_limit_is_refused_where_v1_answers_for_want_of_a_checkpoint(place: Path) -> None:
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        memory.add(**TURN, text="I sold the boat.")
        with pytest.raises(LocigraphError, match="min_confidence needs v2, but v1 answers; v1 answered, since"):
            memory.recall("boat?", space="ana", min_confidence=0.1)


def test_the_command_takes_a_limit(memory: Memory, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory.close()
    store, checkpoint = str(place / "memory.sqlite"), str(place / "checkpoint")
    recall("What did Ana sell?", space="ana", store=store, checkpoint=checkpoint, min_confidence=1.0)
    shown = capsys.readouterr().out
    assert "nothing found" in shown
    assert "nothing here answers this" in shown
    assert "ms; probability of an answer 0." in shown
