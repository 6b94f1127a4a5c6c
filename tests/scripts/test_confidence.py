"""Confidence through the memory and the command: what is known, and what is left out below a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from locigraph import Memory
from locigraph.kg.errors import LocigraphError
from locigraph.retrieval.index import filters, milvus_collection
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


def test_the_best_hit_of_a_speaker_is_judged_however_many_of_others_are_nearer(place: Path) -> None:
    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
        bought = [f"What I bought at the market on day {day}: apples and cheese." for day in range(60)]
        memory.add_many(TURN | {"text": text, "user": "u"} for text in bought)
        memory.add(space="ana", session="s2", speaker="Zoe", text="I got a second-hand cello.", user="u")
        memory.add(space="bea", session="s1", speaker="Bea", text="I sail.", user="u")
        named: list[dict[str, Any]] = [{"space": "ana"}, {"space": ["ana"]}, {"user": "u"}]
        limits: list[dict[str, Any]] = [{"speaker": "Zoe"}, {"filter": {"$speaker": "Zoe"}}]
        asked = "What did you buy at the market?"
        found = [memory.recall(asked, **spaces, **limit) for spaces in named for limit in limits]
        assert [len(each) for each in found] == [1] * 6
        expected = found[0].confidence, found[0][0].score
        assert expected[0] is not None
        assert expected[0] > 0
        assert [(each.confidence, each[0].score) for each in found] == [pytest.approx(expected, rel=1e-4)] * 6


def test_the_first_question_after_opening_is_answered_like_the_next_ones(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (filters, milvus_collection):  # more nodes satisfy the filter than an expression names
        monkeypatch.setattr(module, "MOST_NAMED", 9)
    kept: dict[str, Any] = {"space": "ana", "filter": {"p": 1}, "top_k": 3}
    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
        bikes = [f"We talked about the bike race number {number}." for number in range(60)]
        others = [f"We talked about the weather of day {number}." for number in range(15)]
        memory.add_many(TURN | {"text": text, "metadata": {"p": 0}} for text in bikes)
        memory.add_many(TURN | {"text": text, "metadata": {"p": 1}} for text in [*others, "The bike is in the shed."])
    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
        found = [memory.recall("Where is the bike?", **kept) for _ in range(3)]
        assert found[0][0].text == "Ana: The bike is in the shed."
        assert found[0].confidence
        for each in found[1:]:
            assert [hit.text for hit in each] == [hit.text for hit in found[0]]
            assert [hit.score for hit in each] == pytest.approx([hit.score for hit in found[0]], rel=1e-4)
            assert each.confidence == pytest.approx(found[0].confidence, rel=1e-4)


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
