"""Checks host, key, rate and size of every HTTP request before it reaches the application, and logs the request."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Collection

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from locigraph.serving.keys import Keyring
from locigraph.serving.limits import HeldBytes, network_of
from locigraph.serving.problems import INTERNAL, BusyError, problem, problem_of, stopping
from locigraph.serving.service import Service, log_crash

log = logging.getLogger("locigraph.serve")
#: How long the body of a request may take to arrive.
_BODY_S = 60
#: Largest size of all requests that are arriving or waiting.
_HELD_BYTES = 128_000_000
#: Key of the caller in the ``state`` of a request.
CALLER = "caller"


class _RefusedError(Exception):
    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        self.status, self.detail, self.headers = status, detail, headers


class Gate:
    """ASGI middleware that admits requests with known keys, up to their limits.

    Args:
        app: The application.
        service: Counts the requests that are refused.
        keys: The keys; if there are none, requests must be addressed to one of ``hosts``, so that no web page can reach
            a memory through a host name of its own that resolves to this machine (DNS rebinding).
        paths: Paths of the application; no other path is logged, since it may hold anything.
        open_paths: Prefixes of paths that, like ``/`` itself, show nothing of a memory and need no key.
        read_paths: Paths whose requests change nothing, and are dropped once their client is gone.
        hosts: Names of this machine.
        max_request_bytes: Size of the largest body.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        *,
        keys: Keyring,
        paths: Collection[str],
        open_paths: tuple[str, ...],
        read_paths: Collection[str],
        hosts: Collection[str],
        max_request_bytes: int,
    ) -> None:
        self._app = app
        self._service = service
        self._keys = keys
        self._paths = frozenset(paths)
        self._open_paths = open_paths
        self._read_paths = frozenset(read_paths)
        self._hosts = {host.lower() for host in hosts}
        self._limit = service.limit
        self._held = HeldBytes(max(_HELD_BYTES, 4 * max_request_bytes))
        self._max_request_bytes = max_request_bytes
        self._arriving: set[asyncio.Timeout] = set()  # one for each request of which a part has not arrived yet
        self._is_stopped = False

    def stop(self) -> None:
        """Refuse all requests without an answer, also those of which a part has not arrived, and all new ones."""
        self._is_stopped = True
        for limit in self._arriving:
            limit.reschedule(asyncio.get_running_loop().time())
        self._service.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            request = Request(scope, receive)
            name = self._admit(request)
            with self._held.share_of(name) as take:
                body = await self._body(request, take)
                await self._answer(scope, body, receive, sending)
        except _RefusedError as refusal:
            self._service.refused.labels(str(refusal.status)).inc()
            await problem(refusal.status, refusal.detail, headers=refusal.headers)(scope, receive, sending)
        except BusyError as error:
            await problem_of(error)(scope, receive, sending)
        except ClientDisconnect:
            pass  # before all of the request had arrived: there is nothing to answer, and nobody
        except Exception as error:
            log_crash(error)
            if not status:
                await problem(500, INTERNAL)(scope, receive, sending)
        finally:
            self._log(scope, status, time.perf_counter() - started)

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Let the application answer a request that has arrived, as long as its client waits for it."""
        if scope["path"] not in self._read_paths:
            await self._app(scope, _replayed(body, receive), send)
            return
        task, is_answered = asyncio.current_task(), False

        async def sending(message: Message) -> None:
            nonlocal is_answered
            is_answered |= message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        async def watch() -> Message:
            message = await receive()  # after the body nothing comes but that the client has gone
            if task is not None and not is_answered:
                task.cancel()
            return message

        gone = asyncio.ensure_future(watch())
        try:
            await self._app(scope, _replayed(body, lambda: asyncio.shield(gone)), sending)
        except asyncio.CancelledError:
            if task is None or is_answered or not gone.done():
                raise  # by somebody else
            task.uncancel()
        finally:
            gone.cancel()

    def _admit(self, request: Request) -> str:
        """Check a request without its body; returns the name by which it is counted."""
        headers, path = request.headers, request.scope["path"]
        host = headers.get("host", "").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if not len(self._keys) and name not in self._hosts:
            raise _RefusedError(
                421, f"host {name[:80]!r} is not a name of this server; without keys it accepts only its own names"
            )
        kind, _, key = headers.get("authorization", "").partition(" ")
        caller = self._keys.caller(key.strip() if kind.lower() == "bearer" else None)
        if caller is not None:
            request.scope.setdefault("state", {})[CALLER] = caller
        is_open = self._is_open(path)
        # Whoever has no key, or needs none, is counted by address, so that guessing keys has a limit, too.
        address = network_of(request.client.host) if request.client else "unknown"
        name = f"address {address}" if caller is None or is_open else caller.name
        wait_s = self._limit.wait_s(name)
        if wait_s:
            seconds, whose = str(math.ceil(wait_s)), name if caller is None or is_open else f"key {caller.name!r}"
            raise _RefusedError(
                429, f"{whose} has no requests left; try again in {seconds} s", {"Retry-After": seconds}
            )
        if caller is None and not is_open:
            detail = "no valid key; send one as Authorization: Bearer KEY"
            # Else connections of clients without a key would take the room of the others; but a client that is still
            # sending could not read the answer.
            ends = {} if {"content-length", "transfer-encoding"} & {*headers} else {"Connection": "close"}
            raise _RefusedError(401, detail, {"WWW-Authenticate": "Bearer", **ends})
        return name

    def _is_open(self, path: str) -> bool:
        return path == "/" or path.startswith(self._open_paths)

    async def _body(self, request: Request, take: Callable[[int], None]) -> bytes:
        declared, limit = request.headers.get("content-length", "0"), self._max_request_bytes
        too_large = _RefusedError(413, f"the request is larger than {limit} bytes; send less at a time")
        if self._is_open(request.scope["path"]):  # or clients without a key could take the room of the others
            limit, too_large = 0, _RefusedError(413, "requests to this path have no body; leave it out")
        if declared.isdecimal() and int(declared) > limit:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(0 if self._is_stopped else _BODY_S) as patience:
                self._arriving.add(patience)
                try:
                    async for chunk in request.stream():
                        take(len(chunk))
                        body += chunk
                        if len(body) > limit:
                            raise too_large
                finally:
                    self._arriving.remove(patience)
        except TimeoutError:
            if self._is_stopped:
                raise stopping() from None
            said = f"the request did not arrive within {_BODY_S} s; send less at a time"
            raise _RefusedError(408, said, {"Connection": "close"}) from None
        return bytes(body)

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        caller = scope.get("state", {}).get(CALLER)
        path = scope["path"] if scope["path"] in self._paths else None
        said = {
            "method": scope["method"][:10], "path": path, "status": status, "ms": round(1_000 * seconds, 1),
            "key": getattr(caller, "name", None),
        }  # fmt: skip
        log.info(json.dumps(said))


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Returns the body that was read, then whatever message comes next, such as a disconnect of the client."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
