"""Limits on what clients may take: connections, time to send a request, requests a minute, memory, and lines of log."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from locigraph.serving.problems import BusyError

#: How long a client may take to send the head of a request, from the beginning of the connection or of the request.
HEAD_S = 10.0
_MOST_CONNECTIONS = 2_048
_OTHER_FILES = 128  # that a server opens beside its connections
_MOST_NAMES = 10_000
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Connection(HttpToolsProtocol):
    """A connection, of which there are not too many, and whose client sends what it has begun.

    uvicorn bounds neither: as many silent sockets as the process may have files would end the service.

    Attributes:
        most: Largest number of connections of the process; others are refused.
    """

    most = _MOST_CONNECTIONS
    network = ""
    _awaited: asyncio.TimerHandle | None = None
    _is_refused = False

    def connection_made(self, transport: Any) -> None:
        """Refuse the connection if there are too many, or half of all from one network, else wait for a request."""
        peer = transport.get_extra_info("peername")
        self.network = network_of(peer[0]) if isinstance(peer, tuple) else ""
        alike = sum(getattr(other, "network", None) == self.network for other in self.connections)
        # On this machine there may be a proxy, behind which all clients are.
        known = _parsed(peer[0]) if isinstance(peer, tuple) else None
        is_local = known is None or known.is_loopback
        if len(self.connections) >= self.most or (alike >= max(1, self.most // 2) and not is_local):
            self._is_refused = True
            transport.write(_FULL)
            transport.close()
            return
        super().connection_made(transport)
        self._wait(transport)

    def data_received(self, data: bytes) -> None:
        """Read what a client sends."""
        if not self._is_refused:
            super().data_received(data)

    def eof_received(self) -> None:
        """Note that the client sends no more."""
        if not self._is_refused:
            super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        if not self._is_refused:
            super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Wait for the head of a request that has begun."""
        super().on_message_begin()
        self._wait(self.transport)

    def on_headers_complete(self) -> None:
        """Serve a request; its body has limits of its own."""
        self._stop_waiting()
        super().on_headers_complete()

    def _wait(self, transport: asyncio.Transport) -> None:
        if self._awaited is None:
            self._awaited = self.loop.call_later(HEAD_S, transport.close)

    def _stop_waiting(self) -> None:
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None


def network_of(address: str) -> str:
    """An address by which a client is counted: of IPv6 the network, since a client may have as many as it likes."""
    known = _parsed(address)
    if known is None or known.version == 4:
        return address if known is None else str(known)
    return str(ipaddress.ip_network((known, 64), strict=False))


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address; that of IPv4 which a socket of IPv6 shows as one of its own. None if it is none."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return known if known.version == 4 else known.ipv4_mapped or known


def connection_class() -> type[Connection]:
    """The class of connections, with as many as the files that this process may open allow."""
    most = min(_MOST_CONNECTIONS, max(8, _files() - _OTHER_FILES))
    return type("Connection", (Connection,), {"most": most})


def _files() -> int:
    """Number of files that this process may open, after asking for all that it may have."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit for sockets
        return _MOST_CONNECTIONS + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_CONNECTIONS + _OTHER_FILES
    if resource.RLIM_INFINITY in (soft, hard):
        return wanted
    if soft < min(hard, wanted):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted), hard))
        soft = min(hard, wanted)
    return soft


class RateLimit:
    """Token bucket of requests for each name, such as that of a key, which refills over a minute.

    Args:
        per_minute: Capacity of a bucket, in requests.
        clock: Returns the time in seconds.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, at what time; used last: end

    def wait_s(self, name: str) -> float:
        """Take one request; returns 0, or how long to wait for the next if there is none left."""
        left = self._now_left(name)
        is_free = left >= 1
        self._keep(name, left - is_free)
        return 0.0 if is_free else (1 - left) * 60 / self._per_minute

    def charge(self, name: str, more: int) -> float:
        """Take more for a request that was let through; what is lacking is owed.

        Returns:
            0, or how long to wait if something was owed before; then nothing is taken.
        """
        left = self._now_left(name)
        if more > 0 and left < 0:
            return (1 - left) * 60 / self._per_minute
        if more > 0:
            self._keep(name, left - more)
        return 0.0

    def _now_left(self, name: str) -> float:
        now = self._clock()
        left, then = self._left.get(name, (float(self._per_minute), now))
        return min(self._per_minute, left + (now - then) * self._per_minute / 60)

    def _keep(self, name: str, left: float) -> None:
        self._left[name] = left, self._clock()
        self._left.move_to_end(name)
        if len(self._left) > _MOST_NAMES:
            self._left.popitem(last=False)


class HeldBytes:
    """The bytes of requests that are arriving or waiting for their answers.

    Args:
        most: Largest number of all together; a single name may hold half of it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_name: Counter[str] = Counter()

    @contextmanager
    def share_of(self, name: str) -> Iterator[Callable[[int], None]]:
        """Yield a function that takes a number of bytes, or raises BusyError; all are given back at the end."""
        held = 0

        def take(size: int) -> None:
            nonlocal held
            if self._of_name.total() + size > self._most or self._of_name[name] + size > self._most / 2:
                raise BusyError("requests with too many bytes are arriving or waiting; send less at a time, or later")
            held += size
            self._of_name[name] += size

        try:
            yield take
        finally:
            self._of_name[name] -= held
            if not self._of_name[name]:
                del self._of_name[name]


class OnceASecond(logging.Filter):
    """Lets a repeated warning or error through once a second, and says how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()  # when it was let through, and what was not

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a record."""
        if record.levelno < logging.WARNING:
            return True
        said, now = record.getMessage(), self._clock()
        then, left_out = self._seen.get(said, (float("-inf"), 0))
        if now - then < 1:
            self._seen[said] = then, left_out + 1
            return False
        self._seen[said] = now, 0
        self._seen.move_to_end(said)
        if len(self._seen) > _MOST_NAMES:
            self._seen.popitem(last=False)
        if left_out:
            record.msg, record.args = f"{said} ({left_out:,} more of these)", ()
        return True
