from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from locigraph.kg.types import NodeId, TurnId
from locigraph.retrieval.protocols import Hit
from locigraph.scripts.console.terminal import explanation_table, hits_table, printable, validated
from locigraph.training.explained import Explanation

STEERING = [
    "\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "back\b\b", "\x9b31m", "\u202eright to left", "\r over", "\x7f", "\u061c",
    "a\u200bb", "a\u2028b", "a\u2029b", "\ufeff", "\U000e0041\U000e007f",
]  # fmt: skip


@pytest.mark.parametrize("text", STEERING)
def test_nothing_that_a_turn_says_steers_the_terminal(text: str) -> None:
    said = f"Ann: {text} and more"
    hit = Hit(NodeId("n"), "episode", said, (TurnId("t"),), 1.0, {"bm25": 1.0})
    explained = Explanation(TurnId("t"), said, 1.0, 0.5, 0.5, 0.0, 0.0, ())
    for shown in (hits_table([hit]), explanation_table([explained], influences=3)):
        assert all(sign.isprintable() or sign == "\n" for sign in shown)
        assert "and more" in shown


def test_a_hit_that_no_longer_holds_says_until_when_it_did() -> None:
    hit = Hit(NodeId("n"), "knowledge_node", "Ann lives in Porto", (TurnId("t"),), 1.0, until=date(2024, 6, 22))
    assert "knowledge_node  until 2024-06-22  turns t" in hits_table([hit])
    assert "until" not in hits_table([replace(hit, until=None)])


def test_words_of_any_script_stay_as_they_are() -> None:
    for text in ("naïve café", "中文", "שלום", "emoji 🎉", "line\nline\tcolumn"):
        assert printable(text) == text


def test_what_a_stage_came_to_is_told_in_words() -> None:
    better = validated({"best_epoch": 1, "val_score": 0.61, "start_score": 0.5})
    assert better == "validation score 0.610 after 2 epochs, which were kept; 0.500 at the start"
    assert "no epoch was better" in validated({"best_epoch": -1, "val_score": 0.5, "start_score": 0.5})
    assert validated({"best_epoch": -1}) == "trained without validation"


def test_how_many_more_turns_say_the_same_is_told_in_the_right_number() -> None:
    hit = Hit(NodeId("n"), "episode", "Ann: Hello", (TurnId("t"),), 1.0, same=(TurnId("u"),))
    assert "     1 more turn says the same: u\n" in hits_table([hit])
    assert "     2 more turns say the same: u, v\n" in hits_table([replace(hit, same=(TurnId("u"), TurnId("v")))])
