"""How the HTTP server ends."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from locigraph import Memory
from locigraph.serving import server as serving
from locigraph.serving.application import application
from locigraph.serving.gate import Gate
from locigraph.serving.keys import Keyring
from locigraph.serving.server import Server


def application_of(place: Path) -> Gate:
    memory = Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint"))
    return application(memory, keys=Keyring(), hosts={"localhost"}, requests_per_minute=60, max_request_bytes=1_000)


def test_a_request_that_was_not_read_yet_when_the_server_is_stopped_is_answered(place: Path) -> None:
    app = application_of(place)

    async def ask(listener: socket.socket) -> bytes:
        server = Server(app, lambda: None, lambda: None)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"}")
        writer.write(b"GET /v1/spaces HTTP/1.1\r\n")
        stopping = asyncio.create_task(server.shutdown())
        await asyncio.sleep(0)
        writer.write(b"Host: localhost\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await stopping
        server.should_exit = True
        await serving
        return answer

    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert asyncio.run(ask(listener)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("path", ["/v1/add", "/mcp"])
def test_a_request_of_which_a_part_never_comes_is_refused_when_the_server_is_stopped(
    place: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(serving, "_STOP_S", 0.6)
    app = application_of(place)

    async def ask(listener: socket.socket) -> tuple[bytes, bool]:
        server = Server(app, lambda: None, lambda: None)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode())
        await asyncio.sleep(0.1)
        server.should_exit = True
        async with asyncio.timeout(serving._REFUSE_S):
            answer = await reader.read()
        writer.close()
        await running
        return answer, server.server_state.tasks == set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        answer, is_done = asyncio.run(ask(listener))
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"send it again when the server is running" in answer
    assert is_done
