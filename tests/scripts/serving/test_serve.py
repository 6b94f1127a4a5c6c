"""The command: what it refuses before it starts, and how it stops."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import httpx
import pytest

from locigraph import Memory
from locigraph.kg.errors import LocigraphError
from locigraph.scripts.commands.memory import serve as serve_module
from locigraph.scripts.commands.memory import verify
from locigraph.scripts.commands.memory.serve import serve
from locigraph.serving.running import RunningServer, announced, running_server
from tests.scripts.serving.servers import environment, process

TURN = {"space": "ana", "session": "s1", "speaker": "Ana"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"port": 70_000}, "port is 70000; expected 0 to 65535"),
        ({"host": "0.0.0.0"}, "host '0.0.0.0' can be reached from other machines, but there are no keys"),
        ({"host": "::"}, "can be reached from other machines"),
        ({"host": "no such host"}, "host 'no such host' is not an address of this machine"),
        ({"requests_per_minute": 0}, "requests_per_minute is 0"),
        ({"max_request_bytes": 0}, "max_request_bytes 0"),
        ({"key_file": "no.yaml"}, "key file 'no.yaml' cannot be read"),
        ({"stdio": True, "key_file": "no.yaml"}, "--key_file is for HTTP"),
        ({"store": "tests/__init__.py/graph.sqlite"}, "cannot create the folder of store"),
        ({"stdio": True, "store": "tests/__init__.py/graph.sqlite"}, "cannot create the folder of store"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], said: str
) -> None:
    monkeypatch.delenv("LOCIGRAPH_KEYS", raising=False)
    with pytest.raises(LocigraphError) as error:
        serve(**{"store": str(tmp_path / "memory.sqlite"), "port": 0} | options)  # type: ignore[arg-type]
    assert said in str(error.value)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(LocigraphError, match=f"cannot listen on 127.0.0.1, port {port}"):
            serve(store=str(tmp_path / "memory.sqlite"), port=port)


def test_a_second_server_that_cannot_open_the_store_leaves_the_first_one_announced(tmp_path: Path) -> None:
    store = str(tmp_path / "memory.sqlite")
    with Memory.open(store, checkpoint=None), announced(store, RunningServer("http://127.0.0.1:1", None)):
        with pytest.raises(LocigraphError):
            serve(store=store, port=0)
        assert running_server(store) is not None
    assert running_server(store) is None


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_module, "_EXTRA", ("fastapi", "no_such_package"))
    with pytest.raises(LocigraphError, match=r"no_such_package not installed\); run pip install .*'\.\[serve\]'"):
        serve(store=str(tmp_path / "memory.sqlite"))


def test_nothing_heavy_is_imported_before_the_command_is_checked() -> None:
    code = (
        "import sys\nfrom locigraph.scripts.cli import main\n"
        "try: main(['serve', '--port', '0', '--host', '0.0.0.0'])\n"
        "except SystemExit as stop: print(stop.code, [n for n in ('torch', 'fastapi', 'mcp') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert ran.stdout.strip() == "2 []"
    assert "there are no keys" in ran.stderr


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
        pytest.param(signal.SIGKILL, marks=pytest.mark.long),
    ],
)
def test_nothing_acknowledged_is_lost_when_the_server_is_stopped_amid_adds(place: Path, stop: signal.Signals) -> None:
    acknowledged: list[str] = []

    def write(address: str, writer: int, on_third: Callable[[], None]) -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            for number in range(500):
                try:
                    turn = TURN | {"session": f"s{writer}", "text": f"Dog {number}.", "turn_id": f"{writer}-{number}"}
                    answer = client.post("/v1/add", json=turn)
                except httpx.TransportError:
                    return
                assert answer.status_code == 200
                acknowledged.append(answer.json()["turn_id"])
                if number == 3:
                    on_third()

    with process(place) as (child, address):
        writers = [
            Thread(target=write, args=(address, writer, (lambda: child.send_signal(stop)) if not writer else int))
            for writer in range(3)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert child.wait(60) == (0 if stop != signal.SIGKILL else -signal.SIGKILL)
    assert len(acknowledged) < 1_500
    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
        # A kill may leave a turn that is stored, and was not acknowledged, to be consolidated with the next one.
        memory.add(**TURN | {"text": "That is all."})
        held = {hit.turn_ids[0] for hit in memory.recall("dog", space="ana", top_k=2_000, fold=None)}
    assert held >= {*acknowledged}
    verify.verify(store=str(place / "memory.sqlite"), checkpoint=str(place / "checkpoint"))


@pytest.mark.long
def test_requests_at_hand_are_answered_before_the_server_stops(place: Path) -> None:
    with process(place) as (child, address), httpx.Client(base_url=address, timeout=60) as client:
        turns = [TURN | {"text": f"Dog number {number}.", "turn_id": str(number)} for number in range(40)]
        body = json.dumps({"turns": turns}).encode()

        def in_two_parts() -> Iterator[bytes]:
            yield body[:100]
            child.send_signal(signal.SIGTERM)
            yield body[100:]

        answer = client.post("/v1/add_many", content=in_two_parts(), headers={"Content-Type": "application/json"})
        assert len(answer.json()["turn_ids"]) == 40
        assert child.wait(60) == 0


@pytest.mark.long
def test_the_server_stops_within_ten_seconds_though_a_language_model_does_not_answer(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the request, and says nothing
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        model = ["--consolidation", "llm", "--llm.base_url", url, "--llm.model", "mute"]
        with process(place, *model) as (child, address):
            turn = TURN | {"text": "The dog barks.", "turn_id": "1"}
            with ThreadPoolExecutor(1) as thread:
                answer = thread.submit(httpx.post, f"{address}/v1/add", json=turn, timeout=60)
                with silent.accept()[0]:
                    began = time.monotonic()
                    child.send_signal(signal.SIGTERM)
                    assert child.wait(60) == 0
                    assert time.monotonic() - began < 12
                assert not (place / "memory.sqlite.server").exists()
                assert answer.result().status_code == 503
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        assert memory.spaces() == ["ana"]  # it was stored before the model was asked
