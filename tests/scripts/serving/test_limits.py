from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from pydantic import ValidationError
from uvicorn.server import ServerState

from locigraph.kg.errors import LocigraphError
from locigraph.serving import gate, limits
from locigraph.serving.keys import Keyring, read_keys
from locigraph.serving.limits import Connection, HeldBytes, OnceASecond, RateLimit
from locigraph.serving.operations import Asked, ToExplain, ToForget, TurnsToAdd, TurnToAdd
from locigraph.serving.problems import BusyError
from tests.scripts.serving.servers import KEYS, serving

HEAD = "POST /v1/recall HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def test_a_bucket_is_emptied_filled_again_and_each_caller_s_own() -> None:
    now = [0.0]
    limit = RateLimit(2, lambda: now[0])
    assert [limit.wait_s("ana"), limit.wait_s("ana")] == [0, 0]
    assert limit.wait_s("ana") == 30
    assert limit.wait_s("bo") == 0
    now[0] = 30
    assert [limit.wait_s("ana"), limit.wait_s("ana")] == [0, 30]
    now[0] = 10_000
    assert [limit.wait_s("ana") for _ in range(3)] == [0, 0, 30]


def test_a_large_request_is_charged_for_and_what_is_owed_is_paid_first() -> None:
    now = [0.0]
    limit = RateLimit(60, lambda: now[0])
    assert limit.wait_s("ana") == 0
    assert limit.charge("ana", 49) == 0
    assert [limit.wait_s("ana") for _ in range(11)] == [*[0] * 10, 1]
    assert limit.charge("ana", 600) == 0
    assert limit.charge("ana", 600) == 601  # seconds until it is paid
    assert limit.wait_s("ana") == 601
    now[0] = 60
    assert limit.wait_s("ana") == 541
    now[0] = 601
    assert limit.wait_s("ana") == 0


def test_long_texts_count_several_times_and_a_turn_has_a_largest_length() -> None:
    turn: dict[str, Any] = {"space": "ana", "session": "s", "speaker": "Ana"}
    assert TurnToAdd(**turn, text="Hi").size == 1
    assert TurnToAdd(**turn, text="x" * 4_500).size == 3
    assert TurnsToAdd(turns=[TurnToAdd(**turn, text="x" * 4_500), TurnToAdd(**turn, text="Hi")]).size == 4
    asked = {"space": "ana", "question": "x" * 4_500, "reranker": "default"}
    assert Asked.model_validate(asked).size == 52
    with pytest.raises(ValidationError, match="a turn has 100,001 letters; send it in several of at most 100,000"):
        TurnToAdd(**turn, text="x" * 100_001)


def test_the_names_of_a_limit_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_MOST_NAMES", 3)
    limit = RateLimit(1, lambda: 0.0)
    assert [limit.wait_s(name) for name in "abcd"] == [0] * 4
    assert limit.wait_s("d") == 60  # still known
    assert limit.wait_s("a") == 0  # forgotten meanwhile


def test_held_bytes_are_shared_and_given_back() -> None:
    held = HeldBytes(100)
    with held.share_of("ana") as ana, held.share_of("bo") as bo:
        ana(30)
        ana(20)
        with pytest.raises(BusyError, match="too many bytes"):
            ana(1)
        bo(50)
        with held.share_of("cy") as cy, pytest.raises(BusyError):
            cy(1)
    with held.share_of("ana") as ana:
        ana(50)


def test_a_repeated_fault_is_one_line_a_second_which_counts_the_others() -> None:
    now = [0.0]
    once = OnceASecond(lambda: now[0])

    def said(message: str, level: int = logging.ERROR) -> str | None:
        record = logging.LogRecord("locigraph.serve", level, "", 0, message, (), None)
        return record.getMessage() if once.filter(record) else None

    assert [said("full"), said("full"), said("full"), said("other")] == ["full", None, None, "other"]
    assert [said("a request", logging.INFO)] * 2 == ["a request"] * 2
    now[0] = 1.0
    assert [said("full"), said("full")] == ["full (2 more of these)", None]


@pytest.fixture
def client(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    monkeypatch.setattr(limits, "HEAD_S", 0.4)
    monkeypatch.setattr(gate, "_BODY_S", 0.4)
    monkeypatch.setattr(limits, "_MOST_CONNECTIONS", 6)
    with serving(place) as found:
        yield found


def sent(client: httpx.Client, text: str) -> str:
    """What a server answers to the beginning of a request, until it closes the connection."""
    with socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=20) as connection:
        connection.sendall(text.encode())
        answer = b""
        while part := connection.recv(65_536):
            answer += part
        return answer.decode()


def test_silent_connections_and_unfinished_heads_are_closed_and_others_are_served(client: httpx.Client) -> None:
    began = time.monotonic()
    assert sent(client, "") == ""
    assert sent(client, "POST /v1/recall HTTP/1.1\r\nHost: 127.") == ""
    assert time.monotonic() - began < 10
    assert client.get("/health").status_code == 200


def test_a_body_that_does_not_arrive_is_refused(client: httpx.Client) -> None:
    assert sent(client, f"{HEAD}Content-Length: 100\r\n\r\n{{").startswith("HTTP/1.1 408 ")


def test_more_connections_than_there_is_room_for_are_refused_and_the_first_ones_go_on(client: httpx.Client) -> None:
    assert client.get("/health").status_code == 200
    address = (client.base_url.host, client.base_url.port or 0)
    others = [socket.create_connection(address, timeout=20) for _ in range(20)]
    try:
        answers = [each.recv(65_536) for each in others]  # each is refused at once, or closed after its time
        assert sum(answer.startswith(b"HTTP/1.1 503") for answer in answers) == 15
        assert client.get("/health").status_code == 200
    finally:
        for each in others:
            each.close()


def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(client: httpx.Client) -> None:
    both = f"{HEAD}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert sent(client, both).startswith("HTTP/1.1 400 ")


def test_open_paths_and_guessed_keys_are_limited_by_address(place: Path) -> None:
    with serving(place, keys=Keyring(KEYS), is_loaded=False, requests_per_minute=3) as client:
        assert [client.get("/health").status_code for _ in range(2)] == [200, 200]
        guess = {"Authorization": "Bearer guess-0123456789"}
        assert [client.get("/v1/spaces", headers=guess).status_code for _ in range(2)] == [401, 429]
        refused = client.get("/health")
        assert refused.status_code == 429
        assert "Connection" not in refused.headers  # a client that is still sending could not read the answer
        assert client.get("/v1/spaces", headers={"Authorization": "Bearer key-of-bo-0123456789"}).status_code != 429


def test_turns_of_one_request_count_like_so_many_requests(place: Path) -> None:
    turn = {"space": "bo", "session": "s", "speaker": "Bo", "text": "I sold the boat."}
    with serving(place, keys=Keyring(KEYS), requests_per_minute=4) as client:
        client.headers["Authorization"] = "Bearer key-of-bo-0123456789"
        assert client.post("/v1/add_many", json={"turns": [turn] * 4}).status_code == 200
        assert client.post("/v1/add", json=turn).status_code == 429


def test_a_question_that_is_reranked_counts_like_fifty(place: Path) -> None:
    asked = {"space": "bo", "question": "Who sold the boat?"}
    with serving(place, keys=Keyring(KEYS), requests_per_minute=51) as client:
        client.headers["Authorization"] = "Bearer key-of-bo-0123456789"
        turn = {"space": "bo", "session": "s", "speaker": "Bo", "text": "I sold the boat."}
        assert client.post("/v1/add", json=turn).status_code == 200
        answer = client.post(
            "/v1/recall", json=asked | {"reranker": "default", "min_confidence": 1.0, "strategy": "v1"}
        )
        assert answer.status_code == 400  # once it was let through and charged for
        assert client.post("/v1/recall", json=asked).status_code == 429


def test_no_error_shows_where_files_are(place: Path) -> None:
    with serving(place, is_loaded=True) as client:
        (place / "memory.sqlite").rename(place / "gone.sqlite")
        (place / "memory.sqlite").write_text("no database")
        told = client.post("/v1/add", json={"space": "a", "session": "s", "speaker": "A", "text": "Hello there."})
        (place / "memory.sqlite").unlink()
        (place / "gone.sqlite").rename(place / "memory.sqlite")
        assert str(place) not in told.text


@pytest.mark.parametrize("key", ["schlüssel-0123456789", "with blanks 0123456789", "tab\t0123456789012345"])
def test_a_key_that_no_header_can_carry_is_refused(key: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(f'[{{"name": "a", "key": {key!r}, "spaces": ["*"]}}]'.replace("'", '"'))
    file.chmod(0o600)
    with pytest.raises(LocigraphError, match="pattern") as told:
        read_keys(str(file))
    assert key not in str(told.value)


class FakeTransport(asyncio.Transport):
    def __init__(self, host: str) -> None:
        super().__init__({"peername": (host, 1), "sockname": ("10.0.0.1", 80)})
        self.sent, self.is_closed = b"", False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def test_one_network_has_half_of_the_connections_and_this_machine_all() -> None:
    async def refused(hosts: list[str]) -> list[bool]:
        config = uvicorn.Config(lambda: None, loop="asyncio")
        config.load()
        state = ServerState()
        made = []
        for host in hosts:
            connection = type("Four", (Connection,), {"most": 4})(config, state, {})
            transport = FakeTransport(host)
            connection.connection_made(transport)
            made.append(transport.sent.startswith(b"HTTP/1.1 503"))
        return made

    same, other = "192.0.2.1", "192.0.2.2"
    assert asyncio.run(refused([same, same, same, other, same])) == [False, False, True, False, True]
    assert asyncio.run(refused(["2001:db8::1", "2001:db8::2", "2001:db8::3"])) == [False, False, True]
    assert asyncio.run(refused(["127.0.0.1"] * 5)) == [False] * 4 + [True]
    mapped = "::ffff:192.0.2.1"  # a client of IPv4 at a socket of IPv6
    assert asyncio.run(refused([mapped, mapped, mapped, "::ffff:192.0.2.2"])) == [False, False, True, False]


def test_of_a_request_with_hundreds_of_thousands_of_mistakes_the_first_is_told() -> None:
    turn = {"space": "a", "session": "s", "speaker": "A", "text": "x"}
    many = range(50_000)
    for request, given in (
        (TurnToAdd, turn | {"metadata": {str(number): {} for number in many}}),
        (TurnsToAdd, {"turns": [{"space": number} for number in range(5_000)]}),
        (Asked, {"question": "x", "speaker": [*many]}),
        (Asked, {"question": "x", "budget_kinds": {str(number): "x" for number in many}}),
        (ToForget, {"space": "a", "turn_ids": [*many]}),
        (ToExplain, {"space": "a", "question": "x", "turn_ids": [*range(50)]}),
    ):
        with pytest.raises(ValidationError) as error:
            request.model_validate(given)
        assert error.value.error_count() <= 10


def test_the_caption_of_an_image_counts_as_the_words_of_a_turn_do() -> None:
    turn = {"space": "a", "session": "s", "speaker": "A", "text": "x"}
    assert TurnToAdd.model_validate(turn | {"image_caption": "y" * 40_000}).size == 21
    with pytest.raises(ValidationError, match="100,001 letters"):
        TurnToAdd.model_validate(turn | {"image_caption": "y" * 100_001})


def test_a_monitor_may_ask_for_the_head_of_health(client: httpx.Client) -> None:
    answer = client.head("/health")
    assert (answer.status_code, answer.content) == (200, b"")


def test_who_has_no_key_keeps_no_connection(place: Path) -> None:
    with serving(place, keys=Keyring(KEYS), is_loaded=False) as client:
        assert client.get("/v1/spaces").headers["Connection"] == "close"
        assert "Connection" not in client.post("/v1/recall", json={}).headers  # whose body may still be coming
