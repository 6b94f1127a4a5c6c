from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from locigraph.consolidation.errors import LanguageModelError, ReplyFormatError
from locigraph.consolidation.llm import ChatClient, Message
from tests.consolidation.endpoints import NOWHERE, endpoint

ASKED: list[Message] = [{"role": "user", "content": "How many boats?"}]
SCHEMA = {"type": "object", "properties": {"boats": {"type": "integer"}}, "required": ["boats"]}


def boats(reply: Any) -> int:
    if not isinstance(reply.get("boats"), int):
        raise ValueError("'boats' is no whole number")
    return int(reply["boats"])


def client(url: str, folder: Path, model: str = "m") -> ChatClient:
    return ChatClient(url, model, cassette=folder / "kept" / "replies.sqlite", retries=0, timeout_s=5)


def test_a_reply_is_asked_for_once_by_a_strict_schema_and_then_kept(tmp_path: Path) -> None:
    with endpoint(lambda messages: (200, '{"boats": 3}')) as (url, seen):
        assert client(url, tmp_path).ask(ASKED, SCHEMA, boats) == 3
    assert seen[0]["messages"] == ASKED
    assert seen[0]["response_format"]["json_schema"] == {"name": "reply", "strict": True, "schema": SCHEMA}
    assert client(NOWHERE, tmp_path).ask(ASKED, SCHEMA, boats) == 3  # the endpoint is gone; its reply is not


def test_a_reply_is_kept_by_model_messages_and_schema(tmp_path: Path) -> None:
    asked = client(NOWHERE, tmp_path)
    keys = {
        asked.key(ASKED, SCHEMA),
        asked.key([*ASKED, *ASKED], SCHEMA),
        asked.key(ASKED, SCHEMA | {"title": "Boats"}),
        client(NOWHERE, tmp_path, "other").key(ASKED, SCHEMA),
    }
    assert len(keys) == 4
    assert client("http://elsewhere/v1", tmp_path).key(ASKED, SCHEMA) in keys


def test_a_wrong_reply_is_answered_with_what_is_wrong_and_may_be_mended_once(tmp_path: Path) -> None:
    def second_time_right(messages: list[dict[str, str]]) -> tuple[int, str]:
        return 200, '{"boats": 3}' if len(messages) > 1 else "Sure! Here you are"

    with endpoint(second_time_right) as (url, seen):
        assert client(url, tmp_path).ask(ASKED, SCHEMA, boats) == 3
        assert seen[1]["messages"][1] == {"role": "assistant", "content": "Sure! Here you are"}
        assert "That was not right: the reply is not JSON" in seen[1]["messages"][2]["content"]
        assert client(url, tmp_path).ask(ASKED, SCHEMA, boats) == 3
        assert len(seen) == 2
    with (
        endpoint(lambda messages: (200, '{"boats": "many"}')) as (url, seen),
        pytest.raises(ReplyFormatError, match="model 'other': 'boats' is no whole number, after 2 attempts"),
    ):
        client(url, tmp_path, "other").ask(ASKED, SCHEMA, boats)
    assert len(seen) == 2


def test_a_kept_reply_that_is_no_longer_taken_is_mended_too(tmp_path: Path) -> None:
    with endpoint(lambda messages: (200, '{"boats": 4}')) as (url, seen):
        asked = client(url, tmp_path)
        asked.cassette.keep({asked.key(ASKED, SCHEMA): json.dumps({"ships": 3})})
        assert asked.ask(ASKED, SCHEMA, boats) == 4
        assert len(seen) == 1
        assert asked.ask(ASKED, SCHEMA, boats) == 4
        assert len(seen) == 1


def test_an_outage_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with (
        endpoint(lambda messages: (503, "overloaded")) as (url, _),
        pytest.raises(LanguageModelError, match=r"overloaded.*replies\.sqlite keeps what was written; run again"),
    ):
        client(url, tmp_path).ask(ASKED, SCHEMA, boats)
    with pytest.raises(LanguageModelError, match="Connection error"):
        client(NOWHERE, tmp_path).ask(ASKED, SCHEMA, boats)


def test_an_answer_without_choices_is_a_fault_and_not_a_crash(tmp_path: Path) -> None:
    asked = client(NOWHERE, tmp_path)
    completions = SimpleNamespace(create=lambda **_: SimpleNamespace(choices=None))
    asked._client = SimpleNamespace(chat=SimpleNamespace(completions=completions))  # type: ignore[assignment]
    with pytest.raises(ReplyFormatError, match="not JSON"):
        asked.ask(ASKED, SCHEMA, boats)


def test_a_file_that_is_no_cassette_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "replies.sqlite").write_text("no database, but long enough to be taken for a broken one")
    with pytest.raises(LanguageModelError, match=r"replies\.sqlite: the cassette of replies cannot be used"):
        client(NOWHERE, tmp_path).ask(ASKED, SCHEMA, boats)
