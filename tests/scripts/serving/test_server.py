"""How the HTTP server ends."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from locigraph import Memory
from locigraph.scripts.serving.application import application
from locigraph.scripts.serving.keys import Keyring
from locigraph.scripts.serving.server import Server


def test_a_request_that_was_not_read_yet_when_the_server_is_stopped_is_answered(place: Path) -> None:
    memory = Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint"))
    app = application(
        memory, keys=Keyring(), hosts={"localhost"}, requests_per_minute=60, max_request_bytes=1_000
    )  # fmt: skip

    async def ask(listener: socket.socket) -> bytes:
        server = Server(app, lambda: None)
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
