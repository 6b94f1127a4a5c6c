"""The MCP tools, called by the SDK's own client over HTTP and over standard input and output."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from locigraph.serving.keys import Keyring
from locigraph.serving.operations import OPERATIONS
from tests.scripts.serving.servers import KEYS, bearer, command, environment, serving

TURN = {"space": "ana", "session": "s1", "speaker": "Ana", "text": "I sold the blue bike to Tom."}


def over_http(url: object, work: Callable[[Client], Awaitable[None]], *, key: str = "", mode: str = "auto") -> None:
    """Do some work with a client of the server at a URL."""

    async def run() -> None:
        async with httpx2.AsyncClient(headers=bearer(key) if key else {}, timeout=60) as http:
            transport = streamable_http_client(f"{str(url).rstrip('/')}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                await work(client)

    asyncio.run(run())


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def call(client: Client, name: str, **asked: Any) -> Any:
    """What a tool answers, which must be no error."""
    result = await client.call_tool(name, asked)
    assert not result.is_error, text_of(result)
    assert json.loads(text_of(result)) == result.structured_content
    return result.structured_content


async def every_tool(client: Client) -> None:
    listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert listed.keys() == OPERATIONS.keys()
    assert "question" in listed["recall"].input_schema["properties"]
    hints = {name: tool.annotations for name, tool in listed.items()}
    assert {name for name, found in hints.items() if found and found.destructive_hint} == {"forget", "set_retention"}
    assert {name for name, found in hints.items() if found and found.read_only_hint} == {
        "recall",
        "profile",
        "explain",
        "spaces",
        "times",
        "overview",
        "health",
    }
    health = await call(client, "health")
    assert (health["strategy"], health["due_rows"], health["due_spaces"]) == ("v2", 0, 0)
    said = (await call(client, "add", **TURN))["turn_id"]
    more = await call(client, "add_many", turns=[TURN | {"text": "I have two dogs."}])
    found = await call(client, "recall", space="ana", question="Who bought the bike?", top_k=1)
    assert [hit["turn_ids"] for hit in found["hits"]] == [[said]]
    nothing = await call(client, "recall", space="ana", question="Who bought it?", filter={"project": "boats"})
    assert nothing["hits"] == []
    (explained,) = (await call(client, "explain", space="ana", question="the bike", top_k=1))["turns"]
    assert explained["turn_id"] == said
    assert (await call(client, "forget", space="ana", turn_ids=[said]))["erased"] > 0
    found = await call(client, "recall", space="ana", question="Who bought the bike?")
    assert {turn for hit in found["hits"] for turn in hit["turn_ids"]} == {*more["turn_ids"]}
    assert (await call(client, "spaces"))["spaces"] == ["ana"]
    for name, asked, words in (
        ("recall", {"space": "anna", "question": "x"}, "space 'anna' is not in the store; nearest is 'ana'"),
        ("recall", {"space": "ana", "question": "x", "topk": 1}, "field 'topk' is not known; nearest is 'top_k'"),
        ("forget", {"space": "ana"}, "name the turns to erase"),
        ("remember", {}, "operation 'remember' is not known"),
    ):
        result = await client.call_tool(name, asked)
        assert (result.is_error, words in text_of(result)) == (True, True), text_of(result)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_every_tool_works_over_http(place: Path, mode: str) -> None:
    with serving(place) as client:
        over_http(client.base_url, every_tool, mode=mode)


@pytest.mark.long
def test_every_tool_works_over_standard_input_and_output(place: Path) -> None:
    words = command(place, "--stdio")
    server = StdioServerParameters(command=words[0], args=words[1:], env=environment())

    async def run() -> None:
        async with Client(server) as client:
            await every_tool(client)

    asyncio.run(run())


@pytest.mark.long
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_server_on_standard_input_stops_at_a_signal(place: Path, stop: signal.Signals) -> None:
    with subprocess.Popen(
        command(place, "--stdio"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        hello = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        child.stdin.write(json.dumps(hello).encode() + b"\n")
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["id"] == 1
        child.send_signal(stop)
        assert child.wait(60) == 0


_UNWRITABLE = """
import sys
from locigraph import EncoderSettings, IndexUnavailableError, Memory
from locigraph.serving.tools import serve_stdio

class Unwritable(Memory):
    def close(self, *, flush=True):
        raise IndexUnavailableError("the index cannot be written")

place = sys.argv[1]
serve_stdio(Unwritable.open(place + "/m.sqlite", checkpoint=None, encoder=EncoderSettings(cache=place + "/c")))
"""


@pytest.mark.long
def test_a_server_on_standard_input_stops_at_a_signal_even_if_the_memory_cannot_be_closed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _UNWRITABLE, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode() + b"\n")
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["id"] == 1
        child.send_signal(signal.SIGTERM)
        try:
            assert child.wait(30) == 2
            assert b"the index cannot be written" in child.stderr.read()
        finally:
            child.kill()


def test_a_key_opens_only_its_own_spaces_over_mcp_too(place: Path) -> None:
    ana, bo = KEYS

    async def of_ana(client: Client) -> None:
        await call(client, "add", **TURN | {"user": "ana"})

    async def of_bo(client: Client) -> None:
        for name, asked in (
            ("recall", {"space": "ana", "question": "bike"}), ("explain", {"space": "ana", "question": "bike"}),
            ("add", TURN), ("add_many", {"turns": [TURN]}), ("forget", {"space": "ana", "whole_space": True}),
        ):  # fmt: skip
            result = await client.call_tool(name, asked)
            assert text_of(result) == "key 'bo' may not use space 'ana'; its spaces: bo"
        assert await call(client, "spaces") == {"spaces": [], "scopes": {}, "titles": {}, "days_kept": {}}
        for name, asked in (("recall", {"question": "bike"}), ("forget", {})):
            result = await client.call_tool(name, asked | {"user": "ana"})
            assert text_of(result) == "no space belongs to user 'ana'; there are none yet"

    with serving(place, keys=Keyring(KEYS)) as http:
        over_http(http.base_url, of_ana, key=ana)
        for mode in ("auto", "legacy"):
            over_http(http.base_url, of_bo, key=bo, mode=mode)
        assert http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).status_code == 401
        assert http.get("/v1/spaces", headers=bearer(ana)).json()["spaces"] == ["ana"]


def test_limits_hold_over_mcp_too(place: Path) -> None:
    with serving(place, keys=Keyring(KEYS), requests_per_minute=1, max_request_bytes=500) as http:
        key = bearer(next(iter(KEYS)))
        assert http.post("/mcp", content=b"x" * 501, headers=key).status_code == 413
        assert http.post("/mcp", content=b"{}", headers=key).status_code == 429


@pytest.mark.long
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(st.text(max_size=30) | st.sampled_from(["ana*", "bo' or space == 'ana", "*"]), min_size=1))
def test_no_name_of_a_space_shows_another_key_s_rows(guarded: httpx.Client, names: list[str]) -> None:
    ana, bo = KEYS

    async def of_bo(client: Client) -> None:
        for name in names:
            for tool in ("recall", "explain"):
                result = await client.call_tool(tool, {"space": name, "question": "bike"})
                assert result.is_error
                assert "Tom" not in text_of(result)

    assert guarded.post("/v1/add", json=TURN | {"turn_id": "t1"}, headers=bearer(ana)).status_code == 200
    over_http(guarded.base_url, of_bo, key=bo)


@pytest.mark.long
def test_a_server_on_standard_input_stops_though_a_language_model_does_not_answer(place: Path) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    turn = {"space": "ana", "session": "s", "speaker": "Ana", "text": "The dog barks."}
    said: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "add", "arguments": turn}},
    ]
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the request, and says nothing
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        model = ["--consolidation", "llm", "--llm.base_url", url, "--llm.model", "mute"]
        with subprocess.Popen(
            command(place, "--stdio", *model), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
        ) as child:
            assert child.stdin is not None
            child.stdin.writelines(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in said)
            child.stdin.flush()
            try:
                with silent.accept()[0]:
                    child.send_signal(signal.SIGTERM)
                    assert child.wait(20) == 0
            finally:
                child.kill()
