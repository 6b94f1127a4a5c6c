"""A server is stopped under load: acknowledged turns must be there, forgotten ones gone, and all checks clean."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

from locigraph.memory import Memory
from locigraph.scripts.commands.memory import serve
from tests.faults import workbench
from tests.faults.children import in_child

_CLIENTS = 3
_SPACES = ("harbor", "cove")  # one that already holds turns, and a new one
_ALL = 2_000


@dataclass
class _Told:
    """What the server has acknowledged to one client, by space and turn; requests without an answer are in neither."""

    added: set[tuple[str, str]] = field(default_factory=set)
    forgotten: set[tuple[str, str]] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)


def load() -> None:
    """Import the modules that serving needs."""
    for name in ("uvicorn", "locigraph.serving.application"):
        import_module(name)


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries, each with a signal, a moment, and the requests of three clients until then."""
    randomness = random.Random(seed)
    start = folder / "start"

    def build() -> None:
        workbench.prepare(start)
        workbench.run_all(start, "build", "refresh")

    in_child(build)
    while True:
        stop = randomness.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        yield partial(_check, folder / "try", start, stop, randomness.uniform(0.05, 1.5), randomness.getrandbits(32))


def _check(place: Path, start: Path, stop: signal.Signals, after_s: float, seed: int) -> None:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(start, place)
    told = [_Told() for _ in range(_CLIENTS)]
    with serving(place) as (child, address):
        clients = [Thread(target=_ask, args=(address, number, seed, each)) for number, each in enumerate(told)]
        for client in clients:
            client.start()
        time.sleep(after_s)
        os.kill(child, stop)
        for client in clients:
            client.join()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    what = f"{stop.name} after {after_s:.2f} s, seed {seed}"
    errors = [error for each in told for error in each.errors]
    assert not errors, f"{what}: {errors[:3]}"
    assert code == (-signal.SIGKILL if stop == signal.SIGKILL else 0), f"{what}: ended with {code}"
    in_child(lambda: _held(place, told, what))


@contextmanager
def serving(
    place: Path, *, key_file: str | None = None, prepare: Callable[[], object] = lambda: None
) -> Iterator[tuple[int, str]]:
    """Start a process that serves the memory in a folder; yields its ID and its address.

    Args:
        place: The folder.
        key_file: File of API keys.
        prepare: Called in the process before it serves.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            os.dup2(writing, 1)
            with (place / "log").open("w") as log:
                os.dup2(log.fileno(), 2)
                workbench.commands(place)  # sets the text encoder
                prepare()
                store, checkpoint = str(place / "graph.sqlite"), str(place / "checkpoint")
                serve.serve(store=store, checkpoint=checkpoint, port=0, key_file=key_file, requests_per_minute=10**9)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as said:
        line = said.readline()
        assert line, (place / "log").read_text()[-2_000:]
        yield child, line.split(" at ")[1].split(";")[0]


def _ask(address: str, client: int, seed: int, told: _Told) -> None:
    randomness = random.Random(f"{seed}/{client}")
    mine: list[tuple[str, str]] = []
    with httpx.Client(base_url=address, timeout=60) as http:
        for number in range(_ALL):
            space, turn = randomness.choice(_SPACES), f"c{client}n{number}"
            what = randomness.choice(["add", "add", "add", "recall", "recall", "forget"])
            request: tuple[str, dict[str, Any]]
            if what == "add" or not mine:
                said = {"session": f"s{client}", "speaker": "Ann", "text": f"Boat {turn} sails."}
                request = "add", {"space": space, "turn_id": turn, **said}
            elif what == "forget":
                space, turn = mine.pop(randomness.randrange(len(mine)))
                told.added.discard((space, turn))
                request = "forget", {"space": space, "turn_ids": [turn]}
            else:
                space, strategy = randomness.choice(mine)[0], randomness.choice([None, None, "v1"])
                request = "recall", {"space": space, "question": "Who repairs boats?", "strategy": strategy}
            try:
                answer = http.post(f"/v1/{request[0]}", json=request[1])
            except httpx.TransportError:
                return
            if answer.status_code != 200:
                told.errors.append(f"{request}: {answer.text[:500]}")
                return
            if request[0] == "add":
                mine.append((space, turn))
                told.added.add((space, turn))
            elif request[0] == "forget":
                told.forgotten.add((space, turn))


def _held(place: Path, told: list[_Told], what: str) -> None:
    workbench.commands(place)
    found: set[tuple[str, str]] = set()
    with Memory.open(str(place / "graph.sqlite"), checkpoint=str(place / "checkpoint")) as memory:
        for space in _SPACES:
            memory.add(space=space, session="end", speaker="Ann", text="That is all.")
            for strategy in ("v2", "v1"):
                hits = memory.recall("boat", space=space, top_k=_ALL, fold=None, strategy=strategy)
                seen = {(space, turn) for hit in hits for turn in hit.turn_ids}
                lost = {turn for each in told for turn in each.added if turn[0] == space} - seen
                assert strategy != "v2" or not lost, f"{what}: {lost} were acknowledged and are gone"
                found |= seen
    back = {turn for each in told for turn in each.forgotten} & found
    assert not back, f"{what}: {back} were forgotten and are back"
    workbench.run_all(place, "verify")
