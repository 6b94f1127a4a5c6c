"""Exports of chats whose turns have ids made of their content, built again after the chat has changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from locigraph.assembly.settings import CorpusSettings
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.scripts.commands.memory.build import build
from locigraph.scripts.commands.memory.forget import forget

SAID = ("Ana: My PIN is 4711.", "Ben: Keep it to yourself.", "Ana: We moved to Porto.")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def whatsapp(*lines: str, day: str = "03/04/2024") -> CorpusSettings:
    """A chat of one message a minute, unless a line has a time of its own."""
    timed = [line if line[:1] == "0" else f"{day}, 10:{minute:02} - {line}" for minute, line in enumerate(lines)]
    Path("chat.txt").write_text("\n".join(timed) + "\n")
    return CorpusSettings(format="whatsapp", path="chat.txt")


def messages(*said: str, timed: bool) -> CorpusSettings:
    """Messages of a user, one a minute."""
    listed = [
        {"role": "user", "content": text} | ({"timestamp": f"2024-04-03T10:{minute:02}:00Z"} if timed else {})
        for minute, text in enumerate(said)
    ]
    Path("chat.json").write_text(json.dumps(listed))
    return CorpusSettings(format="messages", path="chat.json")


def built(corpus: CorpusSettings) -> list[str]:
    """Speakers and texts of the chat after a build."""
    build(corpus=corpus, store="g.sqlite", checkpoint=None)
    with Store("g.sqlite", access="read") as graph:
        assert graph.misplaced() == {}
        return [f"{turn.speaker}: {turn.text}" for turn in graph.turns(SpaceId("chat"))]


def forget_first() -> None:
    with Store("g.sqlite", access="read") as graph:
        first = graph.turns(SpaceId("chat"))[0].turn_id
    forget(space="chat", turns=first, store="g.sqlite", checkpoint=None)


NEW = "Ben: Send me the new address."
RENAMED = tuple(line.replace("Ana:", "Ana Smith:") for line in SAID)
#: Later exports of the chat, by what has changed in it.
CHANGED = {
    "a person was renamed": lambda: whatsapp(*RENAMED, NEW),
    "a message was edited": lambda: whatsapp("Ana: My PIN is 4711!", *SAID[1:], NEW),
    # A date of the last message shows that the month comes first in all of them.
    "dates are read otherwise": lambda: whatsapp(*SAID, f"04/13/2024, 10:00 - {NEW}", day="03/04/2024"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGED)
def test_a_changed_chat_keeps_each_turn_once_as_first_stored_and_gains_what_is_new(
    change: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert built(whatsapp(*SAID)) == list(SAID)
    capsys.readouterr()
    build(corpus=CHANGED[change](), store="g.sqlite", checkpoint=None, dry_run=True)
    assert "dry run: 1 turn to consolidate" in capsys.readouterr().out
    assert built(CHANGED[change]()) == [*SAID, NEW]
    assert "edited or renamed since; kept as first stored" in capsys.readouterr().out
    assert built(CHANGED[change]()) == [*SAID, NEW]


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGED)
def test_a_forgotten_turn_does_not_come_back_with_a_changed_chat(
    change: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built(whatsapp(*SAID))
    forget_first()
    capsys.readouterr()
    build(corpus=CHANGED[change](), store="g.sqlite", checkpoint=None, dry_run=True)
    assert "1 forgotten turn would be skipped" in capsys.readouterr().out
    assert built(CHANGED[change]()) == [*SAID[1:], NEW]
    assert "chat: 1 forgotten turn skipped" in capsys.readouterr().out


@pytest.mark.long
def test_messages_that_gain_times_are_the_same_and_forgotten_ones_stay_forgotten(place: Path) -> None:
    said = ("My PIN is 4711.", "We moved to Porto.", "We moved to Porto.")
    assert built(messages(*said, timed=False)) == [f"User: {text}" for text in said]
    assert built(messages(*said, "It rains.", timed=True)) == [f"User: {text}" for text in (*said, "It rains.")]
    forget(space="chat", yes=True, store="g.sqlite", checkpoint=None)
    build(corpus=messages(*said, timed=True), store="g.sqlite", checkpoint=None)
    with Store("g.sqlite", access="read") as graph:
        assert graph.spaces() == []


@pytest.mark.long
def test_a_restored_turn_comes_back_from_a_changed_chat(place: Path) -> None:
    built(whatsapp(*SAID))
    forget_first()
    forget(space="chat", restore=True, store="g.sqlite", checkpoint=None)
    assert built(whatsapp(*RENAMED)) == [RENAMED[0], *SAID[1:]]


@pytest.mark.long
def test_what_is_said_again_is_new(place: Path) -> None:
    built(whatsapp("Ana: Yes.", "Ben: No."))
    forget_first()
    later = ("03/05/2024, 09:00 - Ana: Yes.", "03/05/2024, 09:01 - Ben: No.")
    assert built(whatsapp("Ana: Yes.", "Ben: No.", *later)) == ["Ben: No.", "Ana: Yes.", "Ben: No."]
    assert built(whatsapp(*later)) == ["Ben: No.", "Ana: Yes.", "Ben: No."]  # a window of the last messages


@pytest.mark.long
def test_which_of_several_messages_in_a_minute_was_edited_is_not_guessed(place: Path) -> None:
    first, second = "03/04/2024, 10:00 - Ana: One.", "03/04/2024, 10:00 - Ana: Two."
    built(whatsapp(first, second))
    edited = [line.replace(".", "!") for line in (first, second)]
    assert sorted(built(whatsapp(*edited))) == ["Ana: One!", "Ana: One.", "Ana: Two!", "Ana: Two."]
