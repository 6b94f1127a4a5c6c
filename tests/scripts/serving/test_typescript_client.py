"""The client for JavaScript and TypeScript: its generated files, and Node asking a real server with it."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from typing import Any

import httpx
import pytest

from locigraph import __version__
from locigraph.serving.operations import OPERATIONS
from tests.scripts.serving.servers import KEYS
from tests.typescript_client import CLIENT, files, typescript

NODE = shutil.which("node")
with_node = pytest.mark.skipif(NODE is None, reason="node is not installed, so the client cannot be run")
IMPORT = f'import {{ LocigraphClient, LocigraphError }} from "{(CLIENT / "src" / "client.js").as_uri()}";\n'
#: What a call gives, or its error.
OUTCOME = """
const outcome = (call) => call.then(
  (found) => ({ found }),
  (error) => ({ name: error.name, message: error.message, status: error.status, type: error.type,
                retryAfterS: error.retryAfterS, ours: error instanceof LocigraphError }));
"""


def run(script: str) -> str:
    """What a script prints that Node runs."""
    assert NODE is not None
    ran = subprocess.run(
        [NODE, "--input-type=module"], input=script, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def outcomes(options: dict[str, Any], *calls: str, before: str = "") -> list[Any]:
    """What calls of a client's methods give, one after another."""
    lines = [f"console.log(JSON.stringify(await outcome(client.{call})));" for call in calls]
    script = f"const client = new LocigraphClient({{...{json.dumps(options)}, ...extra}});\n" + "\n".join(lines)
    return [*map(json.loads, run(f"{IMPORT}{OUTCOME}{before or 'const extra = {};'}\n{script}").splitlines())]


def test_the_generated_files_are_those_of_the_servers_document(idle: httpx.Client) -> None:
    for path, text in files(idle.get("/openapi.json").json()).items():
        assert path.read_text() == text, "run python -m tests.typescript_client"


def test_the_package_has_the_version_of_the_server_its_files_and_no_dependencies() -> None:
    package = json.loads((CLIENT / "package.json").read_text())
    assert package["version"] == __version__
    assert all((CLIENT / path).is_file() for path in (*package["exports"]["."].values(), package["types"]))
    assert not {"dependencies", "peerDependencies", "scripts"} & package.keys()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]}, "number | null"),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}}, "(string | boolean)[]"),
        ({"type": "object", "additionalProperties": True}, "Record<string, unknown>"),
        (
            {"type": "object", "additionalProperties": {"type": "array", "items": {"$ref": "#/components/schemas/A"}}},
            "Record<string, A[]>",
        ),
    ],
)
def test_the_type_of_a_schema_is_that_of_its_values(schema: dict[str, Any], expected: str) -> None:
    assert typescript(schema) == expected


@with_node
def test_each_operation_is_a_method_that_is_typed() -> None:
    script = "console.log(JSON.stringify(Object.getOwnPropertyNames(LocigraphClient.prototype)));"
    methods = {*json.loads(run(IMPORT + script))} - {"constructor"}
    written = {"add_many": "addMany", "set_retention": "setRetention"}
    assert methods == {written.get(name, name) for name in OPERATIONS}
    types = (CLIENT / "src" / "client.d.ts").read_text()
    assert {*re.findall(r"^  (\w+)\(.*\): Promise<", types, flags=re.MULTILINE)} == methods


@with_node
def test_node_adds_recalls_and_forgets(client: httpx.Client) -> None:
    turn = '{space: "ana", session: "s1", speaker: "Ana", text: "I sold the blue bike to Tom.", turn_id: "t1"}'
    added, several, found, spaces, health, erased, left = outcomes(
        {"baseUrl": f"{client.base_url}/"},
        f"add({turn})",
        f'addMany({{turns: [{{...{turn}, turn_id: "t2", text: "I have two dogs.", metadata: {{pets: 2}}}}]}})',
        'recall({space: "ana", question: "Who bought the bike?", top_k: 1})',
        "spaces()",
        "health({timeoutMs: 30_000})",
        'forget({space: "ana", turn_ids: ["t1"]})',
        'recall({space: "ana", question: "Who bought the bike?", filter: {pets: {$gte: 2}}, speaker: undefined})',
    )
    assert (added, several) == ({"found": {"turn_id": "t1"}}, {"found": {"turn_ids": ["t2"]}})
    assert found["found"]["hits"][0]["text"] == "Ana: I sold the blue bike to Tom."
    assert (spaces["found"]["spaces"], health["found"]["strategy"]) == (["ana"], "v2")
    assert erased["found"]["erased"] > 0
    assert {turn for hit in left["found"]["hits"] for turn in hit["turn_ids"]} == {"t2"}


@with_node
def test_the_example_of_the_readme_prints_what_it_says(client: httpx.Client) -> None:
    (example,) = re.findall(r"^```js\n(.*?)^```$", (CLIENT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    placed = example.replace("http://127.0.0.1:8765", str(client.base_url))
    printed = run(re.sub(r"^import .*\n", lambda _: IMPORT, placed))
    said = re.search(r"; // (404 .*)$", example, flags=re.MULTILINE)
    assert said is not None
    assert printed.splitlines() == ["Ana: I sold the blue bike to Tom. [ 't1' ] []", said[1]]


@with_node
def test_an_error_of_the_server_has_its_status_and_its_words(idle_guarded: httpx.Client) -> None:
    key = next(iter(KEYS))
    calls = ('times({space: "bo"})', 'times({space: "ana", spaces: 1})')
    forbidden, unknown = outcomes({"baseUrl": str(idle_guarded.base_url), "apiKey": key}, *calls)
    assert (forbidden["name"], forbidden["status"], forbidden["ours"]) == ("LocigraphError", 403, True)
    assert forbidden["type"] == "urn:locigraph:forbidden-space"
    assert (unknown["status"], unknown["message"]) == (422, "request: field 'spaces' is not known; nearest is 'space'")
    (refused,) = outcomes({"baseUrl": str(idle_guarded.base_url)}, "spaces()")
    assert (refused["status"], refused["ours"]) == (401, True)


@with_node
def test_words_of_a_proxy_and_the_seconds_to_wait_are_told() -> None:
    before = """const answers = [
      new Response("<h1>Bad</h1>", { status: 502, statusText: "Bad Gateway" }), new Response("<p>Log in</p>"),
      new Response('{"detail": "busy", "type": "urn:locigraph:busy"}', { status: 503, headers: {"Retry-After": "7"} })];
    const extra = { fetch: async () => answers.shift() };"""
    bad, page, busy = outcomes({}, "health()", "health()", "health()", before=before)
    assert (bad["status"], bad["message"]) == (502, "Bad Gateway: <h1>Bad</h1>")
    assert (page["status"], page["message"], page["ours"]) == (200, "not JSON: <p>Log in</p>", True)
    assert (busy["status"], busy["type"], busy["retryAfterS"]) == (503, "urn:locigraph:busy", 7)


@with_node
def test_a_server_that_does_not_answer_is_told_with_its_address_and_a_caller_may_stop_waiting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        late, stopped, both = outcomes(
            {"baseUrl": url},
            "spaces({timeoutMs: 100})",
            "spaces({signal: AbortSignal.abort()})",
            "spaces({signal: new AbortController().signal, timeoutMs: 100})",
        )
    assert (late["status"], late["message"]) == (0, f"GET {url}/v1/spaces: no answer within 100 ms")
    assert (stopped["name"], stopped["ours"]) == ("AbortError", False)
    assert both["message"] == late["message"]
    (absent,) = outcomes({"baseUrl": url, "timeoutMs": None}, "spaces()")
    assert (absent["status"], absent["ours"]) == (0, True)
    assert absent["message"].startswith(f"GET {url}/v1/spaces: connect ECONNREFUSED")
