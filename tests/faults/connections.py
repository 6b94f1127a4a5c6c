"""A server whose clients misbehave: others are answered all the same, and what was acknowledged is there at the end.

A server has room for 128 connections and memory of half of that many large requests. Tries come in rounds: each round
starts a server, misbehaves in several ways, one after another, each time while a well-behaved client adds a turn and
asks a question, and ends the server with a signal while the last of them is still at it.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

import httpx

from locigraph.memory import Memory
from tests.faults import served, workbench
from tests.faults.children import in_child

_FILES = 256  # that the server may open, half of which it keeps for others than connections
_A_ROUND = 12
#: Longest wait for an answer. A busy machine needs seconds; without limits it would be for ever.
_PATIENCE_S = 30.0
#: The promise is ten seconds; the machine may be busy.
_LONGEST_END_S = 20.0
_MOST_LOG, _MOST_GROWTH_MB = 500_000, 400
_KEYS = {"one": "key-of-the-first-tenant", "two": "key-of-the-second-tenant"}
_FLOODERS = 6

#: A way to misbehave: opens connections to an address on a stack that closes them.
_Way = Callable[[random.Random, ExitStack, tuple[str, int]], None]


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries, each with a way to misbehave."""
    randomness = random.Random(seed)
    start = _built(folder)
    while True:
        yield from _a_round(folder / "try", start, randomness)


def floods(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries in which one key sends as much as it can while another one is used as people would."""
    randomness = random.Random(seed)
    start = _built(folder)
    while True:
        yield partial(_check_flood, folder / "try", start, randomness.getrandbits(32))


def _built(folder: Path) -> Path:
    start = folder / "start"

    def build() -> None:
        workbench.prepare(start)
        workbench.run_all(start, "build", "refresh")

    in_child(build)
    return start


def _a_round(place: Path, start: Path, randomness: random.Random) -> Iterator[Callable[[], None]]:
    _copied(start, place)
    with ExitStack() as stack:
        child, url = stack.enter_context(served.serving(place, prepare=_with_few_files))
        stack.callback(_kill, child)
        parts = urlsplit(url)
        address = (str(parts.hostname), int(parts.port or 0))
        client = stack.enter_context(httpx.Client(base_url=url, timeout=_PATIENCE_S))
        added: list[str] = []
        _behave(client, added)
        before = _resident_mb(child)
        for number in range(_A_ROUND):
            way = randomness.choice(_WAYS)
            is_last = number == _A_ROUND - 1
            yield partial(_check, way, randomness, address, client, added, place, before, child, is_last)


def _check(
    way: _Way,
    randomness: random.Random,
    address: tuple[str, int],
    client: httpx.Client,
    added: list[str],
    place: Path,
    before_mb: float,
    child: int,
    is_last: bool,
) -> None:
    what = way.__name__.strip("_")
    with ExitStack() as hostile:
        way(randomness, hostile, address)
        _behave(client, added)
        if is_last:
            _end(child, signal.SIGTERM, what)
            in_child(lambda: _held(place, added))
            return
    growth = _resident_mb(child) - before_mb
    assert growth < _MOST_GROWTH_MB, f"{what}: the server's memory grew by {growth:.0f} MB"
    said = (place / "log").stat().st_size
    assert said < _MOST_LOG, f"{what}: {said} bytes of log"
    _behave_anew(str(client.base_url), added)


def _behave(client: httpx.Client, added: list[str]) -> None:
    """Add a turn and ask a question."""
    turn = f"n{len(added)}"
    said = {"space": "harbor", "session": "s7", "speaker": "Ann", "text": f"Boat {turn} sails.", "turn_id": turn}
    answer = client.post("/v1/add", json=said)
    assert answer.status_code == 200, f"add: {answer.status_code} {answer.text[:300]}"
    added.append(turn)
    answer = client.post("/v1/recall", json={"space": "harbor", "question": "Who repairs boats?"})
    assert answer.status_code == 200, f"recall: {answer.status_code} {answer.text[:300]}"
    assert answer.json()["hits"]


def _behave_anew(url: str, added: list[str]) -> None:
    """The same over a new connection, which finds room again once the others are closed."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with httpx.Client(base_url=url, timeout=_PATIENCE_S) as client:
                if client.get("/health").status_code == 200:
                    return _behave(client, added)
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, "no room for a new connection after the others were closed"
        time.sleep(0.05)


def _kill(child: int) -> None:
    """Kill a child that has not ended."""
    with suppress(ChildProcessError):  # waited for already
        if os.waitpid(child, os.WNOHANG)[0] == 0:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _end(child: int, how: signal.Signals, what: str) -> None:
    started = time.monotonic()
    os.kill(child, how)
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        assert time.monotonic() - started < _LONGEST_END_S, f"{what}: the server did not end after {how.name}"
        time.sleep(0.02)
    code = os.waitstatus_to_exitcode(ended[1])
    assert code == 0, f"{what}: ended with {code}"


def _held(place: Path, added: list[str]) -> None:
    workbench.commands(place)
    with Memory.open(str(place / "graph.sqlite"), checkpoint=str(place / "checkpoint")) as memory:
        hits = memory.recall("boat", space="harbor", top_k=1_000, fold=None)
        lost = set(added) - {turn for hit in hits for turn in hit.turn_ids}
    assert not lost, f"{lost} were acknowledged and are gone"


def _check_flood(place: Path, start: Path, seed: int) -> None:
    _copied(start, place)
    keys = [{"name": name, "key": key, "spaces": [f"{name}*"]} for name, key in _KEYS.items()]
    file = place / "keys.yaml"
    file.touch(mode=0o600)
    file.write_text(json.dumps(keys))
    errors: list[str] = []
    added: list[str] = []
    with ExitStack() as stack:
        child, url = stack.enter_context(served.serving(place, key_file=str(file)))
        stack.callback(_kill, child)
        stop = Event()
        flooders = [Thread(target=_flood, args=(url, f"{seed}/{number}", stop, errors)) for number in range(_FLOODERS)]
        for flooder in flooders:
            flooder.start()
        headers = {"Authorization": f"Bearer {_KEYS['two']}"}
        try:
            with httpx.Client(base_url=url, timeout=_PATIENCE_S, headers=headers) as client:
                for number in range(5):
                    said = {"space": "two", "session": "s", "speaker": "Ben", "text": f"Kite {number} flies."}
                    answer = client.post("/v1/add", json={**said, "turn_id": f"k{number}"})
                    assert answer.status_code == 200, f"add: {answer.status_code} {answer.text[:300]}"
                    added.append(f"k{number}")
                    answer = client.post("/v1/recall", json={"space": "two", "question": "Which kite flies?"})
                    assert answer.status_code == 200, f"recall: {answer.status_code} {answer.text[:300]}"
                    found = {turn for hit in answer.json()["hits"] for turn in hit["turn_ids"]}
                    assert set(added) == found, f"found {found} of {added}"
        finally:
            stop.set()
            for flooder in flooders:
                flooder.join()
            _end(child, signal.SIGTERM, "flood")
    assert not errors, errors[:3]


def _flood(url: str, seed: str, stop: Event, errors: list[str]) -> None:
    """Send additions and questions without a pause; being told to wait is no error."""
    randomness = random.Random(seed)
    headers = {"Authorization": f"Bearer {_KEYS['one']}"}
    with httpx.Client(base_url=url, timeout=2 * _PATIENCE_S, headers=headers) as client:
        while not stop.is_set():
            space = f"one{randomness.randrange(4)}"
            turn = {"session": "s", "speaker": "Ann", "text": f"Boat {randomness.random()} sails."}
            path, body = randomness.choice(
                [
                    ("add", {"space": space, **turn}),
                    ("add_many", {"turns": [{"space": space, **turn}] * randomness.randint(1, 200)}),
                    ("recall", {"space": space, "question": "Which boat sails?"}),
                ]
            )
            try:
                answer = client.post(f"/v1/{path}", json=body)
            except httpx.TransportError as error:
                errors.append(f"{path}: {error!r}")
                return
            # A space that no addition has made yet is unknown.
            if answer.status_code not in {200, 429, 503} and not (path == "recall" and answer.status_code == 404):
                errors.append(f"{path}: {answer.status_code} {answer.text[:300]}")
                return


def _with_few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))


def _copied(start: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(start, place)


def _resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has ended")


def _opened(stack: ExitStack, address: tuple[str, int], sent: bytes = b"") -> socket.socket | None:
    """A connection on which something was sent; None where the server has refused it."""
    with suppress(OSError):
        connection = stack.enter_context(socket.create_connection(address, timeout=_PATIENCE_S))
        with suppress(OSError):  # closed by the server meanwhile
            connection.sendall(sent)
        return connection
    return None


def _head(path: str, *fields: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode()


def _silent_connections(randomness: random.Random, stack: ExitStack, address: tuple[str, int]) -> None:
    for _ in range(randomness.choice([10, 200])):
        _opened(stack, address)


def _unfinished_heads(randomness: random.Random, stack: ExitStack, address: tuple[str, int]) -> None:
    for _ in range(40):
        head = _head("/v1/recall", "Content-Length: 10")
        _opened(stack, address, head[: randomness.randrange(1, len(head) - 2)])


def _unfinished_bodies(randomness: random.Random, stack: ExitStack, address: tuple[str, int]) -> None:
    body = b"x" * randomness.choice([1, 100_000, 3_000_000])
    for _ in range(20):
        _opened(stack, address, _head("/v1/add", "Content-Length: 3900000", "Content-Type: application/json") + body)


def _endless_chunks(randomness: random.Random, stack: ExitStack, address: tuple[str, int]) -> None:
    chunk = b"%x\r\n%b\r\n" % (50_000, b"x" * 50_000)
    for _ in range(5):
        sent = _head("/v1/add", "Transfer-Encoding: chunked", "Content-Type: application/json")
        _opened(stack, address, sent + chunk * randomness.randint(1, 90))


def _two_lengths(randomness: random.Random, stack: ExitStack, address: tuple[str, int]) -> None:
    smuggled = b"0\r\n\r\n" + _head("/v1/forget", "Content-Length: 0")
    length = randomness.choice([0, 5, len(smuggled)])
    sent = _head("/v1/recall", f"Content-Length: {length}", "Transfer-Encoding: chunked") + smuggled
    connection = _opened(stack, address, sent)
    assert connection is not None
    said = b""
    with suppress(OSError):
        while part := connection.recv(65_536):
            said += part
    assert said.startswith(b"HTTP/1.1 400"), said[:300]
    assert said.count(b"HTTP/1.1") == 1, said[:300]


def _noise(randomness: random.Random, stack: ExitStack, address: tuple[str, int]) -> None:
    for _ in range(20):
        start = randomness.choice(
            [b"", b"GET ", b"POST /v1/add HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\n", b"\x16\x03\x01"]
        )
        _opened(stack, address, start + randomness.randbytes(randomness.randrange(1, 5_000)))


def _long_heads(randomness: random.Random, stack: ExitStack, address: tuple[str, int]) -> None:
    for _ in range(5):
        fields = [f"X-{number}: {'y' * 1_000}" for number in range(randomness.choice([50, 500]))]
        _opened(stack, address, _head("/v1/recall", *fields, "Content-Length: 0"))


def _many_at_once(randomness: random.Random, stack: ExitStack, address: tuple[str, int]) -> None:
    one = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    _opened(stack, address, one * randomness.choice([2, 200]))


def _aborted(randomness: random.Random, stack: ExitStack, address: tuple[str, int]) -> None:
    body = json.dumps({"space": "harbor", "question": "Who repairs boats?"}).encode()
    sent = _head("/v1/recall", f"Content-Length: {len(body)}", "Content-Type: application/json") + body
    for _ in range(10):
        connection = _opened(stack, address, sent[: randomness.randrange(1, len(sent) + 1)])
        if connection is not None:  # closing it now sends a reset
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()


_WAYS: tuple[_Way, ...] = (
    _silent_connections, _unfinished_heads, _unfinished_bodies, _endless_chunks, _two_lengths, _noise, _long_heads,
    _many_at_once, _aborted,
)  # fmt: skip
