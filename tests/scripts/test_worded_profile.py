"""Profiles that a language model words: what it is asked, what is believed of its replies, and through which doors."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from locigraph.assembly.settings import ModelSettings
from locigraph.consolidation.errors import LanguageModelError, LimitReachedError
from locigraph.kg.errors import LocigraphError
from locigraph.memory import Memory
from locigraph.scripts import cli
from locigraph.serving.keys import Caller
from locigraph.serving.operations import OPERATIONS
from tests.consolidation.endpoints import NOWHERE, endpoint

ANA: dict[str, Any] = {"space": "ana", "session": "s", "speaker": "Ana", "user": "u"}
JOINED = "Ana moved to Oslo with her two cats and teaches chemistry at a night school."
Write = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def joined(statements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A good reply: the facts in one sentence, everything else as it is."""
    if any("teaches" in each["text"] for each in statements):
        return [{"text": JOINED, "statements": ["s0", "s1"]}]
    return [{"text": each["text"], "statements": [each["id"]]} for each in statements]


def answering(write: Write) -> Callable[[list[dict[str, str]]], tuple[int, str]]:
    def answer(messages: list[dict[str, str]]) -> tuple[int, str]:
        document = json.loads(messages[1]["content"])
        return 200, json.dumps({"sentences": write(document["statements"])})

    return answer


def opened(place: Path, url: str, **options: Any) -> Memory:
    llm = ModelSettings(base_url=url, model="m", cassette=str(place / "llm.sqlite"))
    return Memory.open(place / "memory.sqlite", checkpoint=None, llm=llm, **options)


def filled(memory: Memory) -> None:
    memory.add(**ANA, text="I teach chemistry at a night school.", spoken_at="2024-02-01", turn_id="t0")
    memory.add(**ANA, text="I moved to Oslo with my two cats.", spoken_at="2024-03-01", turn_id="t1")
    memory.add(**ANA, text="I sold my old canoe yesterday.", spoken_at="2024-02-02", turn_id="t2")


def test_statements_of_a_category_are_joined_with_their_turns_and_their_newest_day(place: Path) -> None:
    with endpoint(answering(joined)) as (url, seen), opened(place, url) as memory:
        filled(memory)
        plain = memory.profile(space="ana")
        assert seen == []
        found = memory.profile(space="ana", worded=True)
        assert [(each.text, each.category, each.day, each.turn_ids) for each in found] == [
            (JOINED, "facts", date(2024, 3, 1), ("t1", "t0")),
            (plain[2].text, "events", date(2024, 2, 1), ("t2",)),
        ]
        assert found.speaker == "Ana"
        document = json.loads(seen[0]["messages"][1]["content"])
        assert document["statements"][1] == {
            "id": "s1", "text": "Ana teaches chemistry at a night school.", "day": "2024-02-01",
        }  # fmt: skip


def test_the_model_is_asked_only_for_what_has_changed(place: Path) -> None:
    with endpoint(answering(joined)) as (url, seen), opened(place, url) as memory:
        filled(memory)
        first = memory.profile(space="ana", worded=True)
        assert len(seen) == 2
        assert memory.profile(space="ana", worded=True) == first
        assert len(seen) == 2
        memory.add(**ANA, text="I bought a red kayak yesterday.", spoken_at="2024-05-02", turn_id="t3")
        memory.profile(space="ana", worded=True)
        assert len(seen) == 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("write", "fault"),
    [
        (lambda held: [{"text": "Ana has 7 cats.", "statements": [s["id"] for s in held]}], "says '7', which"),
        (lambda held: [{"text": "Ana, and Bob, too.", "statements": [s["id"] for s in held]}], "says 'Bob', which"),
        (lambda held: [{"text": "Bob and Ana.", "statements": [s["id"] for s in held]}], "says 'Bob', which"),
        (lambda held: [{"text": "Ana has 'Émile'.", "statements": [s["id"] for s in held]}], "says 'Émile', which"),
        (lambda held: [{"text": "Ana has three cats.", "statements": [s["id"] for s in held]}], "says 'three', which"),
        (lambda held: [{"text": "Ana, since May.", "statements": [s["id"] for s in held]}], "says 'May', which"),
        (lambda held: [{"text": "Ana teaches.", "statements": ["s0"]}], "no sentence rests on statement s1"),
        (lambda held: [{"text": "Ana teaches.", "statements": ["s9"]}], "'s9' was not shown"),
    ],
)
def test_a_reply_that_invents_or_leaves_out_is_sent_back_and_then_not_used(
    place: Path, write: Write, fault: str
) -> None:
    with endpoint(answering(write)) as (url, seen), opened(place, url) as memory:
        filled(memory)
        plain, found = memory.profile(space="ana"), memory.profile(space="ana", worded=True)
        assert [each.text for each in found][:2] == [each.text for each in plain][:2]
        told = [message["content"] for request in seen for message in request["messages"][2:]]
        assert any(fault in each for each in told)


def test_without_a_model_or_beyond_a_limit_it_is_an_error_and_never_half_a_profile(place: Path) -> None:
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        filled(memory)
        with pytest.raises(LocigraphError, match="name the model to use"):
            memory.profile(space="ana", worded=True)
    with opened(place, NOWHERE, max_tokens=1) as memory, pytest.raises(LimitReachedError):
        memory.profile(space="ana", worded=True)
    refusing = endpoint(lambda messages: (400, "no"))
    with refusing as (url, _), opened(place, url) as memory, pytest.raises(LanguageModelError):
        memory.profile(space="ana", worded=True)


def test_clients_and_the_command_line_get_it_too(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with endpoint(answering(joined)) as (url, _):
        with opened(place, url) as memory:
            filled(memory)
            expected = memory.profile(user="u", worded=True)
            operation = OPERATIONS["profile"]
            asked = operation.request(user="u", worded=True)
            answer: Any = operation.perform(memory, asked, Caller("c", ("*",)))
            assert (answer.text, asked.waits_for_models) == (str(expected), True)
        words = ["--llm.base_url", url, "--llm.model", "m", "--llm.cassette", str(place / "other.sqlite")]
        cli.main(["profile", "--user", "u", "--store", str(place / "memory.sqlite"), *words])
        assert capsys.readouterr().out.strip() == str(expected)
