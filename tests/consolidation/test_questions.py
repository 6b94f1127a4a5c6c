from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.consolidation.errors import QuestionWriterError
from locigraph.consolidation.questions import LLMQuestions, parse_reply

Answer = Callable[[list[dict[str, str]]], tuple[int, str]]
STATEMENTS = ["Ann has a canoe", "Ben left", "Ann has a canoe", "Mm"]


@contextmanager
def endpoint(answer: Answer) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A chat endpoint on this machine: its address, and the requests that it has seen."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append(request)
            status, content = answer(request["messages"])
            reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}},
            ]}  # fmt: skip
            body = json.dumps(reply if status == 200 else {"error": {"message": content}}).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def good(messages: list[dict[str, str]]) -> tuple[int, str]:
    lines = [line.split(". ", 1) for line in messages[1]["content"].splitlines()]
    answers = [
        {"statement": int(number), "questions": [] if text == "Mm" else [f"What of '{text}'? ", "And?", "More?"]}
        for number, text in lines
    ]
    return 200, json.dumps({"answers": answers})


def writer(url: str, folder: Path, model: str = "m") -> LLMQuestions:
    return LLMQuestions(url, model, cassette=folder / "kept" / "questions.sqlite", retries=0, timeout_s=5)


def test_each_statement_gets_its_questions_once_and_they_are_kept(tmp_path: Path) -> None:
    expected = [["What of 'Ann has a canoe'?", "And?"], ["What of 'Ben left'?", "And?"]]
    with endpoint(good) as (url, seen):
        assert writer(url, tmp_path).write(STATEMENTS) == [*expected, expected[0], []]
        assert len(seen) == 1
        assert seen[0]["messages"][1]["content"] == "1. Ann has a canoe\n2. Ben left\n3. Mm"
        assert seen[0]["response_format"]["json_schema"]["strict"] is True
        assert writer(url, tmp_path).write([]) == []
    # The endpoint is gone; what it wrote is not.
    assert writer(url, tmp_path).write(STATEMENTS[:2]) == expected


def test_another_model_writes_anew_and_has_another_name(tmp_path: Path) -> None:
    with endpoint(good) as (url, seen):
        writer(url, tmp_path).write(STATEMENTS)
        writer(url, tmp_path, "other").write(STATEMENTS)
        assert len(seen) == 2
        assert writer(url, tmp_path).name != writer(url, tmp_path, "other").name


def test_many_statements_are_asked_in_several_requests_and_stay_in_order(tmp_path: Path) -> None:
    statements = [f"fact {i}" for i in range(45)]
    with endpoint(good) as (url, seen):
        written = writer(url, tmp_path).write(statements)
        assert len(seen) == 3
    assert [questions[0] for questions in written] == [f"What of '{statement}'?" for statement in statements]


def test_a_wrong_reply_is_answered_with_what_is_wrong_and_may_be_mended_once(tmp_path: Path) -> None:
    def second_time_right(messages: list[dict[str, str]]) -> tuple[int, str]:
        return good(messages) if len(messages) > 2 else (200, "Sure! Here you are")

    with endpoint(second_time_right) as (url, seen):
        assert writer(url, tmp_path).write(["Ben left"]) == [["What of 'Ben left'?", "And?"]]
        assert "That was not right: the reply is not JSON" in seen[1]["messages"][3]["content"]
    with (
        endpoint(lambda messages: (200, '{"answers": []}')) as (url, seen),
        pytest.raises(QuestionWriterError, match=r"statements \[\]; expected 1 to 1, .*, after 2 attempts"),
    ):
        writer(url, tmp_path).write(["Ann left"])
    assert len(seen) == 2


def test_an_outage_is_an_error_that_says_what_to_do_and_keeps_what_was_written(tmp_path: Path) -> None:
    with endpoint(good) as (url, _):
        writer(url, tmp_path).write(["Ben left"])
    with (
        endpoint(lambda messages: (503, "overloaded")) as (url, _),
        pytest.raises(QuestionWriterError, match=r"overloaded.*keeps what was written; run again"),
    ):
        writer(url, tmp_path).write(STATEMENTS)
    with pytest.raises(QuestionWriterError, match="Connection error"):
        writer("http://127.0.0.1:9/v1", tmp_path).write(STATEMENTS)
    assert writer(url, tmp_path).write(["Ben left"]) == [["What of 'Ben left'?", "And?"]]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[]", "no list of 'answers'"),
        ('{"answers": [1]}', "no list of 'answers'"),
        ('{"answers": [{"statement": 2, "questions": []}]}', r"about statements \[2\]; expected 1 to 1"),
        ('{"answers": [{"statement": 1, "questions": "a?"}]}', "questions of statement 1 are not a list of texts"),
        ('{"answers": [{"statement": 1, "questions": [3]}]}', "questions of statement 1 are not a list of texts"),
        ('{"answers": [{"statement": 1, "questions": ["No."]}]}', "statement 1: 'No.' is no question"),
        ('{"answers": [{"statement": 1, "questions": ["' + "a" * 300 + '?"]}]}', "at most 300 characters"),
    ],
)
def test_a_reply_of_another_form_is_refused_by_name(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_reply(text, 1)


@given(st.text(max_size=60))
def test_no_reply_but_the_right_one_is_taken(text: str) -> None:
    with pytest.raises(ValueError, match="the reply"):
        parse_reply(text, 1)


def test_an_answer_without_choices_is_a_fault_and_not_a_crash(tmp_path: Path) -> None:
    nothing = SimpleNamespace(choices=None)
    asked = writer("http://127.0.0.1:9/v1", tmp_path)
    completions = SimpleNamespace(create=lambda **_: nothing)
    asked._client = SimpleNamespace(chat=SimpleNamespace(completions=completions))  # type: ignore[assignment]
    with pytest.raises(QuestionWriterError, match="not JSON"):
        asked.write(["Ann left"])


def test_a_full_width_question_mark_ends_a_question_too() -> None:
    assert parse_reply('{"answers": [{"statement": 1, "questions": ["谁走了？"]}]}', 1) == [["谁走了？"]]


def test_a_wrong_cassette_or_no_request_at_a_time_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "questions.sqlite").write_text("no database, but long enough to be taken for a broken one")
    with pytest.raises(QuestionWriterError, match=r"questions\.sqlite: the cassette of questions cannot be used"):
        writer("http://127.0.0.1:9/v1", tmp_path).write(["Ann left"])
    with pytest.raises(QuestionWriterError, match="concurrency is 0"):
        LLMQuestions("http://127.0.0.1:9/v1", "m", cassette=tmp_path / "c.sqlite", concurrency=0)
