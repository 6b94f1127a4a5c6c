"""The client of Milvus, with its errors mapped to ours."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from locigraph.retrieval.errors import IndexUnavailableError

# pymilvus pings an idle server every 10 seconds; Milvus Lite, idle while a model trains, takes that for an attack.
_GRPC = {"grpc.keepalive_permit_without_calls": False}

# The client sets its own level when it is imported, and its remarks would come between the lines of a command.
logging.getLogger("pymilvus").setLevel(logging.ERROR)


class GuardedClient:
    """A ``MilvusClient`` whose failures are raised as ``IndexUnavailableError``.

    It has every method of ``MilvusClient``.

    Args:
        uri: File path (Milvus Lite) or URL of a server.
        token: Credentials for a server; empty for none.
    """

    def __init__(self, uri: str, token: str) -> None:
        self.uri = uri
        if "://" not in uri:
            self.guarded("make its folder", lambda: Path(uri).parent.mkdir(parents=True, exist_ok=True))()
        connect = self.guarded("connect", lambda: MilvusClient(uri, token=token, grpc_options=_GRPC))
        self._client: MilvusClient = connect()

    def guarded(self, what: str, action: Callable[..., Any]) -> Callable[..., Any]:
        """The same action with its errors mapped; ``what`` completes the sentence "cannot ..."."""

        def call(*arguments: Any, **options: Any) -> Any:
            # pymilvus raises its own error for refusals and builtin ones for broken connections and locked files.
            try:
                return action(*arguments, **options)
            except (MilvusException, OSError, RuntimeError) as error:
                of = f" {arguments[0]!r}" if arguments else ""
                raise IndexUnavailableError(
                    f"index {self.uri!r}: cannot {what}{of}: {str(error)[:300]}; check that the server runs, or that "
                    "no other process has the file open"
                ) from error

        return call

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return self.guarded(method.replace("_", " "), getattr(self._client, method))
