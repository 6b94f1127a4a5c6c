"""Where the server of a store runs, so that a command asks it instead of opening the store a second time.

A server of a store in a file writes its address beside it (``graph.sqlite.server``), with a key for its owner where it
has keys. Only the owner of the store may read that file; the server deletes it when it stops.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locigraph.kg.errors import LocigraphError
from locigraph.kg.files import is_open_to_others, make_private

_SUFFIX = ".server"
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that serves a store.

    Attributes:
        url: Its address.
        key: The key of its owner; None if it has no keys.
    """

    url: str
    key: str | None = None

    def ask(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Send a request of an operation, such as ``recall``, with its arguments.

        Returns:
            The answer; None if no server of this address answers any more, or it does not know the key: another program
            has taken the port.

        Raises:
            LocigraphError: If the server refuses the request, with its reason.
        """
        request = urllib.request.Request(
            f"{self.url}/v1/{operation}",
            data=json.dumps(dict(arguments)).encode(),
            headers={"Content-Type": "application/json"}
            | ({} if self.key is None else {"Authorization": f"Bearer {self.key}"}),
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # an address that only the owner writes
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            try:
                detail = json.loads(error.read(100_000))["detail"]
            except (ValueError, KeyError, TypeError, OSError):
                return None
            if error.code == 401:
                return None
            raise LocigraphError(f"the server at {self.url}: {detail}") from None
        except (OSError, ValueError):
            return None


def running_server(store: str) -> RunningServer | None:
    """The server that says that it serves a store; None if none does, or the store is no file."""
    if "://" in store:
        return None
    file = Path(f"{store}{_SUFFIX}")
    try:
        if is_open_to_others(file):
            return None  # whoever else wrote it might send questions elsewhere
        said = json.loads(file.read_text())
        return RunningServer(said["url"], said["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def announced(store: str, server: RunningServer) -> Iterator[None]:
    """While the context lasts, a file beside the store says that this server serves it; nothing for a store elsewhere.

    A folder that cannot be written is no reason not to serve.
    """
    if "://" in store:
        yield
        return
    file = Path(f"{store}{_SUFFIX}")
    with suppress(OSError):
        file.unlink(missing_ok=True)
        make_private(file)
        file.write_text(json.dumps({"url": server.url, "key": server.key}))
    try:
        yield
    finally:
        if running_server(store) == server:
            with suppress(OSError):
                file.unlink()
