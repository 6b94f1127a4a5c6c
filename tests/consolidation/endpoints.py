"""A chat endpoint on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[list[dict[str, str]]], tuple[int, str]]
NOWHERE = "http://127.0.0.1:9/v1"


@contextmanager
def endpoint(answer: Answer) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An endpoint that answers a request's messages with a status and a text: its address, and what it was asked."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append(request)
            status, content = answer(request["messages"])
            reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}},
            ]}  # fmt: skip
            body = json.dumps(reply if status == 200 else {"error": {"message": content}}).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
