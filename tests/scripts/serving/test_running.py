"""Commands that ask the server of their store instead of opening it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import huggingface_hub.constants
import pytest

from locigraph.kg.errors import LocigraphError
from locigraph.scripts.commands.memory.recall import recall
from locigraph.serving import running
from locigraph.serving.keys import Caller, Keyring
from locigraph.serving.running import CHALLENGE, PROOF, RunningServer, announced, proof_of, running_server
from tests.faults.residue import files_with
from tests.scripts.serving.servers import process, serving
from tests.scripts.test_memory import SALE, opened
from tests.test_cli import assert_one_line_and_code_2, run


def test_while_a_server_runs_a_file_that_only_its_owner_reads_says_where(tmp_path: Path) -> None:
    store = str(tmp_path / "graph.sqlite")
    server = RunningServer("http://127.0.0.1:9", "a key of letters")
    with announced(store, server):
        file = tmp_path / "graph.sqlite.server"
        assert file.stat().st_mode & 0o077 == 0
        assert running_server(store) == server
        (tmp_path / "link.sqlite").symlink_to(store)
        assert running_server(str(tmp_path / "link.sqlite")) == server
        file.chmod(0o644)
        assert running_server(store) is None
        file.chmod(0o600)
    assert running_server(store) is None
    assert not file.exists()


@pytest.mark.parametrize("said", ["", "[]", '{"url": "http://127.0.0.1:9", "key": null}', "\xff"])
def test_a_file_that_says_nothing_names_no_server(said: str, tmp_path: Path) -> None:
    file = tmp_path / "graph.sqlite.server"
    file.touch(0o600)
    file.write_text(said, encoding="latin-1")
    assert running_server(str(tmp_path / "graph.sqlite")) is None


def test_a_store_on_a_server_is_announced_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with announced("postgresql+psycopg://me@127.0.0.1/db", RunningServer("http://127.0.0.1:9")):
        assert [*tmp_path.iterdir()] == []


def test_a_server_that_has_gone_gives_no_answer_and_one_that_refuses_its_reason(place: Path) -> None:
    assert RunningServer("http://127.0.0.1:9").ask("recall", {}) is None
    keys = Keyring({"k" * 20: Caller("agent", ("ana",))}).with_owner("o" * 20)
    with serving(place, keys=keys, secret="known") as client:
        url = str(client.base_url).rstrip("/")
        question = {"question": "boat?", "space": "nobody"}
        with pytest.raises(LocigraphError, match="space 'nobody' is not in the store"):
            RunningServer(url, "o" * 20, "known").ask("recall", question)
        with pytest.raises(LocigraphError, match="may not use space"):
            RunningServer(url, "k" * 20, "known").ask("recall", question)


class Listener(BaseHTTPRequestHandler):
    """Another program, which notes what it is sent."""

    heard: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.heard.append(f"{self.path} {dict(self.headers)}")
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b'{"detail": "Not Found"}')

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[str]:
    Listener.heard.clear()
    server = HTTPServer(("127.0.0.1", 0), Listener)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_another_program_that_has_the_port_since_is_told_nothing(listener: str, place: Path) -> None:
    assert RunningServer(listener, "key of the owner").ask("recall", {"question": "private?"}) is None
    assert len(Listener.heard) == 1
    assert "/health" in Listener.heard[0]
    assert "key of the owner" not in Listener.heard[0]
    with serving(place, secret="of this server") as client:
        url = str(client.base_url).rstrip("/")
        assert RunningServer(url, secret="of the one before").ask("spaces", {}) is None
        assert client.get("/health", headers={CHALLENGE: "x"}).headers[PROOF] == proof_of("of this server", "x")
        assert PROOF not in client.get("/health").headers


def test_a_proxy_of_the_environment_hears_nothing(listener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", listener)
    assert RunningServer("http://127.0.0.1:9", "key of the owner").ask("recall", {"question": "private?"}) is None
    assert Listener.heard == []


@pytest.mark.parametrize(("reranker", "is_asked"), [(None, True), ("default", True), ("models/own", False)])
def test_a_server_is_asked_to_rerank_with_the_shipped_reranker_alone(
    reranker: str | None, is_asked: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def answer(store: str, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        raise LocigraphError("asked")

    with opened(place) as memory:
        memory.add(**SALE)
    monkeypatch.setattr(running, "answer_of_server", answer)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)  # it would look for the hub for 20 seconds
    with pytest.raises(LocigraphError, match="asked" if is_asked else "'models/own' cannot be loaded"):
        recall("Who?", space="ana", store=str(place / "memory.sqlite"), reranker=reranker)
    assert [request.get("reranker") for request in asked] == [reranker] * is_asked
    assert all(("reranker" in request) == (reranker is not None) for request in asked)


@pytest.mark.long
def test_recall_explain_and_forget_ask_the_server_of_their_store(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(place / "memory.sqlite")
    with process(place) as (server, url):
        turn = {
            "space": "ana",
            "session": "s1",
            "speaker": "Ana",
            "text": "I sold the blue boat to Tom.",
            "turn_id": "t1",
        }
        known = running_server(store)
        assert known is not None
        assert known.url == url
        assert known.ask("add", turn) is not None
        words = ("recall", "Who bought the boat?", "--space", "ana", "--store", store)
        code, shown, error = run(capsys, *words)
        assert (code, error) == (0, "")
        assert "Ana: I sold the blue boat to Tom." in shown
        code, shown, _ = run(capsys, *words, "--json")
        assert [hit["turn_ids"] for hit in json.loads(shown)["hits"]] == [["t1"]]
        code, shown, _ = run(capsys, *words, "--budget_tokens", "50")
        assert "I sold the blue boat to Tom. (t1)" in shown
        code, _, error = run(capsys, "recall", "Who?", "--space", "bea", "--store", store)
        assert_one_line_and_code_2(code, error, "space 'bea' is not in the store")
        code, shown, error = run(capsys, "explain", "Who bought the boat?", "--space", "ana", "--store", store)
        assert (code, error) == (0, "")
        assert "I sold the blue boat to Tom." in shown
        code, explained, _ = run(
            capsys, "explain", "the boat", "--space", "ana", "--store", store, "--json", "--turns", "t1"
        )
        assert [turn["turn_id"] for turn in json.loads(explained)["turns"]] == ["t1"]
        erasing = ("forget", "--space", "ana", "--store", store)
        code, _, error = run(capsys, *erasing, "--turns", "t9")
        assert_one_line_and_code_2(code, error, "space 'ana' has no turn 't9'")
        code, shown, error = run(capsys, *erasing, "--turns", "t1")
        assert (code, error) == (0, "")
        assert "of ana erased" in shown
        assert files_with(place, "blue boat", []) == []  # the server has erased it from its index, too
        server.send_signal(signal.SIGTERM)
        server.wait(20)
    assert running_server(store) is None
