from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from locigraph.consolidation.cassette import Cassette, key_of
from locigraph.consolidation.errors import LanguageModelError, MissingReplyError
from locigraph.consolidation.ledger import Origin
from locigraph.kg.counts import Spent


def request(text: str, model: str = "m", **parameters: Any) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"model": model, "messages": [message], "schema": {"type": "object"}, "parameters": parameters}


def test_a_reply_is_found_by_its_request_and_replaced_by_a_later_one(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "new" / "c.sqlite")
    cassette.keep([(request("one"), "1"), (request("two"), "2")])
    cassette.keep([(request("two"), "zwei")])
    keys = [key_of(request(text)) for text in ("one", "two", "three")]
    assert Cassette(cassette.path).find(keys) == {keys[0]: "1", keys[1]: "zwei"}


def test_calls_at_once_may_all_be_the_first_of_a_cassette(tmp_path: Path) -> None:
    key = key_of(request("one"))
    with ThreadPoolExecutor(8) as pool:
        for number in range(40):
            path = tmp_path / f"{number}.sqlite"
            assert list(pool.map(lambda _, path=path: Cassette(path).find([key]), range(8))) == [{}] * 8


def test_recording_uses_nothing_that_is_kept_and_replaying_nothing_else(tmp_path: Path) -> None:
    Cassette(tmp_path / "c.sqlite").keep([(request("one"), "1")])
    key = key_of(request("one"))
    assert Cassette(tmp_path / "c.sqlite", "record").find([key]) == {}
    assert Cassette(tmp_path / "c.sqlite", "replay").find([key]) == {key: "1"}
    Cassette(tmp_path / "c.sqlite").refuse_missing(request("two"))  # is asked


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (request("What floats near the pier?"), r"differs in messages, .* requested 'pier\?.* recorded 'quay\?"),
        (request("What floats near the quay?", model="n"), r"model 'n' is recorded; .* differs in model, "),
        (request("What floats near the quay?", temperature=1), r"differs in parameters, .*temperature"),
    ],
)
def test_a_missing_reply_says_how_the_nearest_request_differs(asked: dict[str, Any], told: str, tmp_path: Path) -> None:
    recording, cassette = Cassette(tmp_path / "c.sqlite"), Cassette(tmp_path / "c.sqlite", "replay")
    recording.keep([])
    with pytest.raises(MissingReplyError, match="the cassette is empty; set mode to auto"):
        cassette.refuse_missing(asked)
    recording.keep([(request("Who left?"), "1"), (request("What floats near the quay?"), "2"), (request("Why?"), "3")])
    with pytest.raises(MissingReplyError, match=told):
        cassette.refuse_missing(asked)


def test_a_dead_letter_holds_request_replies_and_faults_as_text(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "c.sqlite")
    cassette.keep_failed(request("Who left?"), [("Nobody\ud800", "not JSON")])
    path = cassette.failure_file(request("Who left?"))
    assert path.parent.name == "c.failed"
    assert path.read_text() == "--- user\nWho left?\n--- reply\nNobody\\ud800\n--- fault\nnot JSON\n"


def test_failed_attempts_are_only_replayed_and_gone_once_there_is_a_right_reply(tmp_path: Path) -> None:
    cassette, replayed = Cassette(tmp_path / "c.sqlite"), Cassette(tmp_path / "c.sqlite", "replay")
    attempts = [("Nobody\ud800", "not JSON"), (None, "too long")]
    cassette.keep_failed(request("Who left?"), attempts)
    assert cassette.failed(request("Who left?")) == []
    assert replayed.failed(request("Who left?")) == attempts
    assert replayed.failed(request("Who came?")) == []
    cassette.keep([(request("Who left?"), "Ann")])
    assert replayed.failed(request("Who left?")) == []


def test_the_origin_of_a_reply_or_failure_is_kept_and_unknown_where_it_was_not_given(tmp_path: Path) -> None:
    recording, replayed = Cassette(tmp_path / "c.sqlite"), Cassette(tmp_path / "c.sqlite", "replay")
    key = key_of(request("Who left?"))
    failed, given = Origin("http://a/v1", Spent(2, 9, 8, 0.5, 2, 0, 1)), Origin("http://b/v1", Spent(1, 7, 6, 0.25))
    recording.keep_failed(request("Who left?"), [("Nobody", "not JSON")], failed)
    assert replayed.origin(key) == failed
    recording.keep([(request("Who left?"), "Ann")], given)
    assert replayed.origin(key) == given
    recording.keep([(request("Who left?"), "Ben")])
    assert replayed.origin(key) is None


def test_a_cassette_of_before_is_replayed_without_being_changed_and_takes_failures(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE calls (key TEXT PRIMARY KEY, request TEXT NOT NULL, reply TEXT NOT NULL)")
    before = path.read_bytes()
    assert Cassette(path, "replay").failed(request("Who left?")) == []
    assert Cassette(path, "replay").origin(key_of(request("Who left?"))) is None
    assert path.read_bytes() == before
    Cassette(path).keep_failed(request("Who left?"), [("Nobody", "not JSON")])
    assert Cassette(path, "replay").failed(request("Who left?")) == [("Nobody", "not JSON")]


def test_a_cassette_that_is_to_be_replayed_must_be_there_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(LanguageModelError, match=r"gone\.sqlite: there is no such cassette to replay"):
        Cassette(tmp_path / "gone.sqlite", "replay").find(["a"])
    assert not any(tmp_path.iterdir())
