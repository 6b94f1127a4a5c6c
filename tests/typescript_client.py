"""Writes the methods and types of ``clients/typescript`` from the server's OpenAPI document.

``python -m tests.typescript_client`` writes ``client.js`` and ``client.d.ts``; ``connection.js`` is written by hand.
"""

from __future__ import annotations

import json
import re
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.packages import ROOT

CLIENT = ROOT / "clients" / "typescript"
Schema = Mapping[str, Any]
_MADE = "// Made from the server's OpenAPI document by `python -m tests.typescript_client`; do not edit.\n"
_SCRIPT = """
import { Connection, LocigraphError } from "./connection.js";

export { LocigraphError };

/** A client of a Locigraph server: one method for each operation. */
export class LocigraphClient {
  #connection;

  constructor(options) {
    this.#connection = new Connection(options);
  }
"""
_TYPES = """
/** Where the server is, and how it is asked. */
export interface ClientOptions {
  /** Address of the server. @default "http://127.0.0.1:8765" */
  baseUrl?: string;
  /** A key of the server's key file; none for a server without keys. */
  apiKey?: string;
  /** How long a request may take, in milliseconds; null for no limit. @default 60000 */
  timeoutMs?: number | null;
  /** Sends the requests. @default globalThis.fetch */
  fetch?: typeof globalThis.fetch;
}

/** How one request is sent. */
export interface CallOptions {
  /** Ends the request when the caller wants; its reason is thrown then. */
  signal?: AbortSignal;
  /** How long this request may take, in milliseconds, instead of the client's limit; null for no limit. */
  timeoutMs?: number | null;
}

/** Why a request has no answer; `message` is what the server says, or why it was not reached. */
export class LocigraphError extends Error {
  /** HTTP status; 0 if there was no answer. An addition without an answer may have been kept: use its `turn_id`. */
  readonly status: number;
  /** Kind of the problem, such as `urn:locigraph:unknown-space`; `about:blank` for one without a name. */
  readonly type: string;
  /** Seconds after which the server can be asked again, where it says so (429, 503); else null. */
  readonly retryAfterS: number | null;
}

/** A client of a Locigraph server: one method for each operation. */
export class LocigraphClient {
  constructor(options?: ClientOptions);
"""
_SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def files(document: Schema) -> dict[Path, str]:
    """The generated files with their texts, for an OpenAPI document."""
    script, types = [_MADE, _SCRIPT], [_MADE, _TYPES]
    for path, method, operation in _operations(document):
        name = re.sub(r"_(\w)", lambda found: found[1].upper(), operation["operationId"])
        request = _body(operation.get("requestBody"))
        answer = _body(operation["responses"]["200"])
        given, sent = ("request, options", "request") if request else ("options", "undefined")
        typed = f"request: {request}, options?: CallOptions" if request else "options?: CallOptions"
        about = _comment(operation["summary"], "  ")
        script.append(
            f"\n{about}  {name}({given}) {{\n"
            f'    return this.#connection.send("{method.upper()}", "{path}", {sent}, options);\n  }}\n'
        )
        types.append(f"\n{about}  {name}({typed}): Promise<{answer}>;\n")
    script.append("}\n")
    types.append("}\n")
    types += [_interface(name, schema) for name, schema in document["components"]["schemas"].items()]
    return {CLIENT / "src" / "client.js": "".join(script), CLIENT / "src" / "client.d.ts": "".join(types)}


def _operations(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        if path.startswith("/v1/"):  # the others are for those who run the server
            for method, operation in methods.items():
                yield path, method, operation


def _body(part: Schema | None) -> str:
    return "" if part is None else typescript(part["content"]["application/json"]["schema"])


def _interface(name: str, schema: Schema) -> str:
    required = schema.get("required", ())
    lines = [f"\n{_comment(schema.get('description', ''), '')}export interface {name} {{\n"]
    for field, each in schema["properties"].items():
        default = f" @default {str(each['default']).lower()}" if each.get("default") is not None else ""
        lines.append(_comment(each.get("description", "") + default, "  "))
        lines.append(f"  {field}{'' if field in required else '?'}: {typescript(each)};\n")
    return "".join([*lines, "}\n"])


def typescript(schema: Schema) -> str:
    """The TypeScript type of a schema."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(typescript, schema["anyOf"])))
    if "const" in schema:
        return json.dumps(schema["const"])
    if schema.get("type") == "array":
        inner = typescript(schema["items"])
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if schema.get("type") == "object":
        values = schema["additionalProperties"]
        return f"Record<string, {'unknown' if values is True else typescript(values)}>"
    return _SIMPLE[schema["type"]]  # a KeyError: the document has a form that this module does not know yet


def _comment(text: str, indent: str) -> str:
    """A text as a JSDoc comment; nothing for no text."""
    text = text.replace("``", "`").replace("*/", "* /")
    width = 114 - len(indent)
    lines = [line for each in text.splitlines() for line in (textwrap.wrap(each, width) or [""])]
    if not lines:
        return ""
    if len(lines) == 1 and len(lines[0]) <= width - 3:
        return f"{indent}/** {lines[0]} */\n"
    return "".join([f"{indent}/**\n", *(f"{indent} * {line}".rstrip() + "\n" for line in lines), f"{indent} */\n"])


def document() -> Schema:
    """The OpenAPI document of a server."""
    from starlette.testclient import TestClient

    from locigraph import Memory
    from locigraph.serving.application import application
    from locigraph.serving.keys import Keyring

    with tempfile.TemporaryDirectory() as folder, Memory.open(f"{folder}/memory.sqlite", checkpoint=None) as memory:
        served = application(memory, keys=Keyring(), hosts={"testserver"}, requests_per_minute=10, max_request_bytes=10)
        found: Schema = TestClient(served).get("/openapi.json").json()
        return found


if __name__ == "__main__":
    for path, text in files(document()).items():
        path.write_text(text)
