"""How a Milvus server is reached, which versions are used, and what its errors mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locigraph.kg.files import MAKE_ROOM
from locigraph.retrieval.errors import IndexMismatchError, IndexUnavailableError

#: Versions on which the tests of the index pass; see ``tests/retrieval/index/test_conformance.py``.
TESTED_VERSIONS = ("2.3.5",)
# Requests that the server answers only once work in the background is done.
_SLOW = frozenset({"compact", "create_index", "flush", "load_collection"})
_SLOW_S = 600.0
# Parts of messages, in lower case, and what to do about them.
_CURES = (
    (("auth check", "unauthenticated", "permission", "privilege"), "check --index.token and what its user may do"),
    (("database not found", "database not exist"), "create the database on the server, or check --index.database"),
    (("certificate", "handshake", "ssl"), "check --index.uri (https for TLS) and the certificates of --index.*"),
    (("quota", "no space left", "resource insufficient", "out of memory"), f"{MAKE_ROOM} (on the server)"),
)


@dataclass(frozen=True)
class ServerAccess:
    """How a server is reached.

    Attributes:
        token: Credentials, ``user:password`` or an API key; empty for none.
        database: Database on the server; empty for its default one.
        timeout_s: Longest wait for the answer to a request, with all its retries, in seconds.
        ca_cert: PEM file that the certificate of the server is checked with; null for the certificates of gRPC.
        client_cert: PEM file of a client certificate, for a server that asks for one; it needs the two others.
        client_key: PEM file with its key.
        server_name: Name in the certificate of the server, where it is not the host of the URL.
        any_version: Whether to use a server of a version on which the tests of the index were not run.
    """

    token: str = ""
    database: str = ""
    timeout_s: float = 30.0
    ca_cert: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    server_name: str = ""
    any_version: bool = False

    def options(self) -> dict[str, Any]:
        """Arguments of ``MilvusClient``; raises IndexUnavailableError if they cannot be used."""
        if not 0 < self.timeout_s < float("inf"):
            raise IndexUnavailableError(f"index.timeout_s is {self.timeout_s}; expected seconds above 0")
        files = {"ca_cert": self.ca_cert, "client_cert": self.client_cert, "client_key": self.client_key}
        for name, file in files.items():
            if file is not None and not Path(file).is_file():
                raise IndexUnavailableError(f"index.{name} is {file!r}, which is no file; name a PEM file")
        if (self.client_cert is None) != (self.client_key is None) or (self.client_cert and self.ca_cert is None):
            raise IndexUnavailableError("a client certificate needs index.client_cert, client_key and ca_cert together")
        named = {
            "server_pem_path": self.ca_cert if self.client_cert is None else None,
            "ca_pem_path": self.ca_cert if self.client_cert is not None else None,
            "client_pem_path": self.client_cert,
            "client_key_path": self.client_key,
            "server_name": self.server_name or None,
        }
        given = {name: value for name, value in named.items() if value is not None}
        return {"token": self.token, "db_name": self.database, "timeout": self.timeout_s, **given}

    def timeout_of(self, method: str) -> float:
        """Longest wait for a method of ``MilvusClient``, in seconds."""
        return max(self.timeout_s, _SLOW_S) if method in _SLOW else self.timeout_s

    def require_known(self, uri: str, version: str) -> None:
        """Raise IndexMismatchError if a server has a version that may be used only where the user allows any."""
        if self.any_version or re.sub(r"^v|-.*$", "", version) in TESTED_VERSIONS:
            return
        raise IndexMismatchError(
            f"index {uri!r} is a Milvus server of version {version!r}, and only {', '.join(TESTED_VERSIONS)} is "
            "tested; use that version, or allow this one with --index.any_version true and compare its index with the "
            "store by locigraph verify"
        )


def cure_of(message: str, access: ServerAccess) -> str:
    """What to do about an error of a server."""
    said = message.lower()
    for signs, cure in _CURES:
        if any(sign in said for sign in signs):
            return cure
    if "deadline" in said or "timeout" in said or "timed out" in said:
        return (
            f"the server did not answer within {access.timeout_s:g} seconds; check that it is running and not "
            "overloaded, or raise --index.timeout_s"
        )
    return "check that the server is running and that --index.uri is its address"
