"""Where the server of a store runs, so that a command asks it instead of opening the store a second time.

A server of a store in a file writes its address beside it (``graph.sqlite.server``), with a secret and, where it has
keys, one for its owner. Only the owner of the store may read that file; the server deletes it when it stops. One that
was killed leaves it behind, and another program may have its port since, so a server is told nothing before it has
shown that it knows the secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from locigraph.kg.errors import LocigraphError
from locigraph.kg.files import is_open_to_others, make_private

#: Header of a request for ``/health`` that asks whether the server knows its secret, and the header that shows it.
CHALLENGE, PROOF = "X-Locigraph-Challenge", "X-Locigraph-Proof"
_SUFFIX = ".server"
# For an answer that the server is there; and for what is asked, which may have to wait for others.
_TIMEOUT_S, _PATIENCE_S = 60.0, 600.0
_MOST_LETTERS = 200


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


# Without the proxies of the environment, which would be told keys and questions.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)


def proof_of(secret: str, challenge: str) -> str:
    """What shows whoever knows a secret, too, that a server knows it, without telling it."""
    return hmac.new(secret.encode(), challenge[:_MOST_LETTERS].encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that serves a store.

    Attributes:
        url: Its address.
        key: The key of its owner; None if it has no keys.
        secret: By which it is told from another program at this address; made at each start.
    """

    url: str
    key: str | None = None
    secret: str = field(default_factory=secrets.token_urlsafe, repr=False)

    def ask(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Send a request of an operation, such as ``recall``, with its arguments.

        Returns:
            The answer; None if the server does not answer any more, or another program has its address.

        Raises:
            LocigraphError: If the server refuses the request, with its reason, or does not answer it in ten minutes.
        """
        if not self._is_there():
            return None
        request = urllib.request.Request(
            f"{self.url}/v1/{operation}",
            data=json.dumps(dict(arguments)).encode(),
            headers={"Content-Type": "application/json"}
            | ({} if self.key is None else {"Authorization": f"Bearer {self.key}"}),
        )
        try:
            with _OPENER.open(request, timeout=_PATIENCE_S) as answer:  # an address that only the owner writes
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            try:
                detail = json.loads(error.read(100_000))["detail"]
            except (ValueError, KeyError, TypeError, OSError):
                return None
            raise LocigraphError(f"the server at {self.url}: {detail}") from None
        except (OSError, ValueError) as error:
            if isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError):
                raise LocigraphError(
                    f"the server at {self.url} has not answered within {_PATIENCE_S:.0f} s; it may still do what was "
                    "asked, so look before you ask again"
                ) from None
            return None

    def _is_there(self) -> bool:
        """Whether the server itself answers at its address."""
        challenge = secrets.token_hex(16)
        asked = urllib.request.Request(f"{self.url}/health", headers={CHALLENGE: challenge})
        try:
            with _OPENER.open(asked, timeout=_TIMEOUT_S) as answer:
                given = answer.headers.get(PROOF, "")
        except (OSError, ValueError):
            return False
        return hmac.compare_digest(given.encode(), proof_of(self.secret, challenge).encode())


def _file_of(store: str) -> Path:
    """The file beside a store, wherever links to it lie."""
    return Path(f"{os.path.realpath(store)}{_SUFFIX}")


def running_server(store: str) -> RunningServer | None:
    """The server that says that it serves a store; None if none does, or the store is no file."""
    if "://" in store:
        return None
    file = _file_of(store)
    try:
        if is_open_to_others(file):
            return None  # whoever else wrote it might send questions elsewhere
        said = json.loads(file.read_text())
        return RunningServer(said["url"], said["key"], said["secret"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def answer_of_server(store: str, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the server that serves a store answers; None if none does. Raises as ``RunningServer.ask``."""
    server = running_server(store)
    return None if server is None else server.ask(operation, arguments)


@contextmanager
def announced(store: str, server: RunningServer) -> Iterator[None]:
    """While the context lasts, a file beside the store says that this server serves it; nothing for a store elsewhere.

    A folder that cannot be written is no reason not to serve.
    """
    if "://" in store:
        yield
        return
    file = _file_of(store)
    with suppress(OSError):
        file.unlink(missing_ok=True)
        make_private(file)
        file.write_text(json.dumps({"url": server.url, "key": server.key, "secret": server.secret}))
    try:
        yield
    finally:
        if running_server(store) == server:
            with suppress(OSError):
                file.unlink()
