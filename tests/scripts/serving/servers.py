"""Real servers on loopback, in a thread of this process or in one of their own, for real clients."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import uvicorn

from locigraph import Memory
from locigraph.scripts.commands.memory.serve import _bound
from locigraph.serving.application import application
from locigraph.serving.keys import Caller, Keyring
from locigraph.serving.limits import connection_class

KEYS = {
    "key-of-ana-and-her-team": Caller("ana", ("ana", "team/*")),
    "key-of-bo-0123456789": Caller("bo", ("bo",)),
}


NO_KEYS = Keyring()


@contextmanager
def serving(
    place: Path,
    *,
    keys: Keyring = NO_KEYS,
    is_loaded: bool = True,
    secret: str = "",
    sweep_s: float = 600,
    **limits: int,
) -> Iterator[httpx.Client]:
    """A client of a server in this process that has the memory of a folder.

    Args:
        place: The folder.
        keys: Who may ask.
        is_loaded: Whether to wait until models and checkpoint are loaded.
        secret: As ``application`` takes it.
        sweep_s: As ``application`` takes it.
        limits: Of requests, as ``application`` takes them.
    """
    memory = Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint"))
    given = {"requests_per_minute": 60_000, "max_request_bytes": 100_000} | limits
    app = application(
        memory,
        keys=keys,
        hosts={"127.0.0.1"},
        requests_per_minute=given["requests_per_minute"],
        max_request_bytes=given["max_request_bytes"],
        folders=[str(place)],
        sweep_s=sweep_s,
        secret=secret,
    )
    with _bound("127.0.0.1", 0, has_keys=False) as listener:
        listener.listen()  # from now on clients wait for the server instead of being refused
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", lifespan="on", ws="none", http=connection_class())
        )
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60) as client:
                if is_loaded:
                    _wait_until_loaded(client)
                yield client
        finally:
            server.should_exit = True
            thread.join()


def _wait_until_loaded(client: httpx.Client) -> None:
    """Wait until models and checkpoint are loaded, which a server does while it answers already."""
    deadline = time.monotonic() + 60
    while (answer := client.get("/ready")).status_code != 200:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.02)


def bearer(key: str) -> dict[str, str]:
    """The header that carries a key."""
    return {"Authorization": f"Bearer {key}"}


def command(place: Path, *words: str) -> list[str]:
    """``locigraph serve`` with a text encoder that needs no model, for a process of its own."""
    return [sys.executable, "-m", "tests.scripts.serving.serve_fake", str(place), *words]


def environment(**more: str) -> dict[str, str]:
    """The environment of such a process."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *sys.path])),
        **more,
    }


@contextmanager
def process(place: Path, *words: str, **more: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``locigraph serve`` and its address; killed at the end if it is still there."""
    with subprocess.Popen(
        command(place, "--port", "0", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(**more),
    ) as child:  # fmt: skip
        try:
            assert child.stdout is not None
            assert child.stderr is not None
            line = child.stdout.readline()
            assert " at http" in line, child.stderr.read()
            yield child, line.split(" at ")[1].split(";")[0]
        finally:
            child.kill()
