"""A scripted OpenAI-compatible server that extracts by rules of its own, and fails in every way that real ones do."""

from __future__ import annotations

import gzip
import json
import random
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from locigraph.kg.language.tokens import STOP_WORDS, words

#: Replies of status 200 that are of no use, or hide what is of use.
WRONG_REPLIES = (
    "empty", "no choices", "cut off", "all thought", "refusal", "content filter", "echoed schema", "prose",
    "not a number", "unknown id", "unknown type", "surplus field", "no list", "deep", "surrogates",
)  # fmt: skip
#: Replies that are right inside.
WRAPPED_REPLIES = ("fence", "thoughts", "around")
#: Failures for the moment.
OUTAGES = (
    "429", "500", "503", "408", "slow", "drops", "dripping 503", "breaks", "breaking 503", "stalls", "stalling 503",
    "not gzip", "reset", "no JSON", "HTML",
)  # fmt: skip
FAULTS = (*WRONG_REPLIES, *WRAPPED_REPLIES, *OUTAGES)
#: Answers that no honest endpoint gives, and of which asking again would not help.
HOSTILE = ("endless", "bomb", "odd encoding", "redirect")
#: Answers that are rare, but not hostile; the first is right, the others are none that a JSON reader takes.
UNUSUAL = ("gzip", "deep answer", "long number")


@dataclass
class Stub:
    """What the server does and has seen.

    Attributes:
        answer: Makes the right reply to a request.
        rate: Share of the requests that meet a fault.
        faults: The faults, drawn at random, each once before any comes again.
        most: Number of faults after which all is well; None for no end.
        refuses: Types of ``response_format`` and parameters that it does not take; ``bounds`` stands for limits of
            lengths.
        refuses_with: The status with which it does not take a ``response_format``.
        counts: The numbers of tokens that it counts in each request and reply.
        parts: The parts of the message that it sends instead of ``answer``.
        slow_s: How long a slow reply takes.
        retry_after: What it says of that with 408, 429, 500 and 503.
        too_long: What it answers to the fault ``too long``, which is not among ``FAULTS``; nor are ``no message``,
            ``null message`` and ``no counts``, where fields are left out.
        elsewhere: Where the fault ``redirect`` leads to.
        poured: How many bytes of its endless answer were taken.
        requests: All requests, as they came.
        keys: The keys that came with them.
        met: The faults that were met.
    """

    answer: Callable[[dict[str, Any]], Any]
    rate: float = 0.0
    faults: Sequence[str] = FAULTS
    most: int | None = None
    refuses: Sequence[str] = ()
    refuses_with: int = 400
    counts: dict[str, int] = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 20})
    parts: Sequence[dict[str, str]] | None = None
    slow_s: float = 0.3
    retry_after: str = "0"
    too_long: dict[str, Any] = field(default_factory=dict)
    elsewhere: str = "http://127.0.0.1:9/v1/chat/completions"
    poured: int = 0
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    met: list[str] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(0))


@contextmanager
def stub_server(stub: Stub) -> Iterator[Stub]:
    """The server on loopback, with its address in ``stub.url``."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            stub.requests.append(request)
            stub.keys.append(self.headers["authorization"].removeprefix("Bearer "))
            form = request.get("response_format", {"type": "text"})
            if form["type"] in stub.refuses or ("bounds" in stub.refuses and "maxItems" in json.dumps(form)):
                text = f"response_format {form['type']} is not supported here"
                self._send(stub.refuses_with, {"error": {"message": text}})
                return
            unknown = next((name for name in stub.refuses if name in request), None)
            if unknown is not None:
                self._send(400, {"error": {"message": f"Unsupported parameter: '{unknown}'", "param": unknown}})
                return
            is_spoilt = stub.chance.random() < stub.rate and (stub.most is None or len(stub.met) < stub.most)
            due = [each for each in stub.faults if each not in stub.met] or list(stub.faults)
            fault = stub.chance.choice(due) if is_spoilt else None
            if fault is not None:
                stub.met.append(fault)
            self._reply(request, fault)

        def _reply(self, request: dict[str, Any], fault: str | None) -> None:
            if fault in ("429", "500", "503", "408"):
                self._send(int(fault), {"error": {"message": f"fault {fault}"}}, retry_after=stub.retry_after)
            elif fault == "too long":
                self._send(400, stub.too_long)
            elif fault in ("drops", "dripping 503"):
                self._drip(200 if fault == "drops" else 503)
            elif fault in ("breaks", "breaking 503", "stalls", "stalling 503"):
                self._break_off(503 if "503" in fault else 200, after_s=3 * stub.slow_s if "stall" in fault else 0)
            elif fault in (*HOSTILE, *UNUSUAL):
                self._unusual(request, fault)
            elif fault == "not gzip":
                self._send_text(200, "{}", "application/json", encoding="gzip")
            elif fault == "reset":
                self.connection.close()
            elif fault in ("no JSON", "HTML"):
                kind = "application/json" if fault == "no JSON" else "text/html"
                self._send_text(200, "<html>gateway</html>", kind)
            else:
                if fault == "slow":
                    time.sleep(stub.slow_s)
                text, finish, refusal = _spoilt(json.dumps(stub.answer(request)), fault, request)
                message = {"role": "assistant", "content": stub.parts or text, "refusal": refusal}
                odd = {"no choices": [], "no message": [{}], "null message": [{"index": 0, "message": None}]}
                choices = odd.get(fault or "", [{"index": 0, "finish_reason": finish, "message": message}])
                usage = {} if fault == "no counts" else stub.counts
                reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "usage": usage}
                self._send(200, {**reply, "choices": choices})

        def _unusual(self, request: dict[str, Any], fault: str) -> None:
            if fault == "endless":
                self._pour()
            elif fault == "redirect":
                self.send_response(307)
                self.send_header("location", stub.elsewhere)
                self.send_header("content-length", "0")
                self.end_headers()
            else:
                right = {"choices": [{"message": {"content": json.dumps(stub.answer(request))}}]}
                body, encoding = {
                    "bomb": (_bomb(), "gzip"),
                    "odd encoding": (b"{}", "br"),
                    "gzip": (gzip.compress(json.dumps(right).encode()), "gzip"),
                    "deep answer": (b"[" * 100_000 + b"]" * 100_000, None),
                    "long number": (b"9" * 5_000, None),
                }[fault]
                self._send_text(200, body, "application/json", encoding=encoding)

        def _send(self, status: int, content: Any, *, retry_after: str | None = None) -> None:
            self._send_text(status, json.dumps(content), "application/json", retry_after)

        def _send_text(
            self, status: int, text: str | bytes, kind: str, retry_after: str | None = None, encoding: str | None = None
        ) -> None:
            content = text if isinstance(text, bytes) else text.encode()
            try:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                if retry_after is not None:
                    self.send_header("retry-after", retry_after)
                if encoding is not None:
                    self.send_header("content-encoding", encoding)
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                pass  # the client did not wait

        def _begin(self, status: int) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "100000")
            self.end_headers()

        def _break_off(self, status: int, after_s: float) -> None:
            """The beginning of an answer, and after a time the end of the connection."""
            self._begin(status)
            with suppress(OSError):
                self.wfile.write(b'{"choices": [')
                self.wfile.flush()
            time.sleep(after_s)
            self.close_connection = True

        def _pour(self) -> None:
            """An answer without end, as fast as it is read."""
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            with suppress(OSError):
                while True:
                    stub.poured += self.wfile.write(b" " * 100_000)

        def _drip(self, status: int) -> None:
            """An answer that comes blank by blank, each in time, and does not end within three slow replies."""
            self._begin(status)
            end = time.monotonic() + 3 * stub.slow_s
            with suppress(OSError):
                while time.monotonic() < end:
                    self.wfile.write(b" ")
                    time.sleep(stub.slow_s / 10)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _bomb() -> bytes:
    """200 MB of blanks, compressed piece by piece."""
    packer = zlib.compressobj(wbits=31)
    return b"".join([*(packer.compress(b" " * 1_000_000) for _ in range(200)), packer.flush()])


def _spoilt(text: str, fault: str | None, request: dict[str, Any]) -> tuple[str, str, str | None]:
    """A reply's text, finish reason and refusal with a fault."""
    reply = json.loads(text)
    schema = request.get("response_format", {}).get("json_schema", {}).get("schema", {"type": "object"})
    spoilt = {
        "empty": "",
        "cut off": text[: len(text) // 2],
        "all thought": "",
        "refusal": "",
        "echoed schema": json.dumps({"properties": {}, **schema}),
        "prose": "Sure! Here is what I would add to the graph.",
        "not a number": text[:-1] + ', "weight": NaN}',
        "unknown id": json.dumps({**reply, "archive": ["m99"], "words": [{"ref": "n99", "label": "a"}]}),
        "unknown type": json.dumps({**reply, "add": [{"ref": "n1", "type": "episode", "draft": "x", "part_of": None}]}),
        "surplus field": json.dumps({**reply, "note": "I was told to say this."}),
        "surrogates": text[:-1] + ', "\ud800": 1}',
        "no list": json.dumps([reply]),
        "deep": "[" * 5_000,
        "fence": f"Here you are:\n```json\n{text}\n```\nAnything else?",
        "thoughts": f"<think>The user wants {{JSON}}. I could write ```json</think>\n{text}",
        "around": f"Here you are: {text} I hope this helps.",
    }  # fmt: skip
    finish = {"cut off": "length", "all thought": "length", "content filter": "content_filter"}.get(fault or "", "stop")
    return spoilt.get(fault or "", text), finish, "I cannot help with that." if fault == "refusal" else None


def concluded(request: dict[str, Any]) -> Any:
    """One insight of all facts that a model is asked about, which revises the first known one."""
    document = json.loads(request["messages"][1]["content"])
    known = document["known_insights"]
    revises = known[0]["id"] if known else None
    ids = [each["id"] for each in [*document["earlier_facts"], *document["new_facts"]]]
    if len(ids) < 2:
        return {"insights": []}
    return {"insights": [{"label": "all", "text": f"Ann does {len(ids)} things.", "facts": ids, "revises": revises}]}


def extracted(request: dict[str, Any]) -> Any:
    """What a sensible model might reply: a fact of each longer turn, its topic, and the words of each draft."""
    document = json.loads(request["messages"][1]["content"])
    if "plan" in document:
        return {
            "words": [
                {
                    "ref": node["ref"],
                    "label": " ".join(words(node["draft"])[:4]) or "said",
                    "description": node["draft"],
                }
                for node in document["plan"]
            ]
        }
    turn = document["turn"]
    telling = [word for word in words(turn["said"]) if word not in STOP_WORDS and len(word) > 3]
    plan: dict[str, Any] = {name: [] for name in ("add", "relate", "coin", "topics")}
    if document["known_nodes"]:
        plan |= {name: [] for name in ("update", "supersede", "archive")}
    plan["mentions"] = [{"name": turn["speaker"], "kind": "person"}]
    if len(telling) >= 3:
        draft = f"{turn['speaker']} said: {turn['said'][:300]}"
        plan["add"] = [{"ref": "n1", "type": "knowledge_node", "draft": draft, "part_of": None}]
        plan["topics"] = [" ".join(telling[:2])]
    return plan
