from __future__ import annotations

from dataclasses import replace

from locigraph.kg.types import Turn
from tests.fakes import make_turn


def test_an_utterance_is_taken_apart_into_what_it_was_made_of() -> None:
    turn = replace(make_turn(0, "Look at this!"), image_caption="a red boat")
    assert turn.utterance == f"{turn.speaker}: Look at this! [shares a red boat]"
    assert Turn.without_speaker(turn.utterance, turn.speaker) == "Look at this! [shares a red boat]"
    assert Turn.text_of(turn.utterance, turn.speaker) == "Look at this!"
    assert Turn.shares_image(turn.utterance)
    assert not Turn.shares_image(replace(turn, image_caption=None).utterance)
