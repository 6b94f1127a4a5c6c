"""The client of Milvus, with its errors mapped to ours, and Milvus Lite on a socket that only this user can reach."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from locigraph.retrieval.errors import IndexUnavailableError

# pymilvus pings an idle server every 10 seconds; Milvus Lite, idle while a model trains, takes that for an attack.
_GRPC = {"grpc.keepalive_permit_without_calls": False}
_LOCAL = ("http://localhost", "http://127.0.0.1")

# They write remarks, and tracebacks of what they report as errors too, between the lines of a command.
for _name in ("pymilvus", "milvus_lite", "grpc._server"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

# All that Milvus Lite keeps in its folder beside the file by which it locks it.
_CONTENT = ("aliases.json", "collections", "database_properties.json", "databases", ".database-staging")
_REBUILD = "run locigraph verify --rebuild true, which makes it anew from the store"


class GuardedClient:
    """A ``MilvusClient`` whose failures are raised as ``IndexUnavailableError``.

    It has every method of ``MilvusClient``.

    Args:
        uri: File path (Milvus Lite) or URL of a server.
        token: Credentials for a server; empty for none.
        is_reader: Whether nothing is written. Milvus Lite writes all the same, so on a disk that lets nobody write a
            reader is given a copy.
    """

    def __init__(self, uri: str, token: str, *, is_reader: bool = False) -> None:
        self.uri = uri
        self._is_reader = is_reader
        self.is_embedded = "://" not in uri
        self._token = token
        if self.is_embedded and not uri.endswith(".db"):
            raise IndexUnavailableError(f"index {uri!r}: the path of an embedded index ends in .db; name such a path")
        if self.is_embedded:
            self.guarded("make its folder", lambda: Path(uri).parent.mkdir(parents=True, exist_ok=True))()
        self._connect()

    def _connect(self) -> None:
        self._stop: Callable[[], object] = lambda: None
        self._client: MilvusClient = self.guarded("connect", self._connected)()

    def _connected(self) -> MilvusClient:
        address, options = self.uri, dict(_GRPC)
        if self.is_embedded:
            address, self._stop = _served(self.uri, may_copy=self._is_reader)
        if self.is_embedded or address.startswith(_LOCAL):
            options["grpc.enable_http_proxy"] = False  # a proxy for the net cannot reach what is on this machine
        try:
            return MilvusClient(address, token=self._token, grpc_options=options)
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """End the connection; an embedded index finishes its files and lets the next process in."""
        self.guarded("close", self._client.close)()
        self._stop()

    def clear(self) -> None:
        """Throw away all that an embedded index holds, damaged or not, and begin anew.

        Raises:
            IndexUnavailableError: If another process has it open.
        """
        self.close()
        try:
            self.guarded("clear", _clear)(self.uri)
        finally:
            self._connect()

    def guarded(self, what: str, action: Callable[..., Any]) -> Callable[..., Any]:
        """The same action with its errors mapped; ``what`` completes the sentence "cannot ..."."""

        def call(*arguments: Any, **options: Any) -> Any:
            # pymilvus raises its own error for refusals and builtin ones for broken connections and files.
            try:
                return action(*arguments, **options)
            except BlockingIOError as error:
                raise IndexUnavailableError(
                    f"index {self.uri!r} is open in another process, or in this one already; close that, or ask it "
                    "instead (a server of locigraph serve answers POST /v1/recall)"
                ) from error
            except (MilvusException, OSError, RuntimeError, ValueError) as error:
                of = f" {arguments[0]!r}" if arguments and arguments[0] != self.uri else ""
                cure = "check that the server runs"
                if self.is_embedded:
                    cure = f"if the index is still open in this process it may be damaged: {_REBUILD}"
                raise IndexUnavailableError(
                    f"index {self.uri!r}: cannot {what}{of}: {' '.join(str(error).split())[:300]}; {cure}"
                ) from error

        return call

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return self.guarded(method.replace("_", " "), getattr(self._client, method))


def _served(path: str, *, may_copy: bool) -> tuple[str, Callable[[], object]]:
    """Serve an embedded index on a socket in a folder of this user's own; returns its address and what ends it.

    By itself Milvus Lite would listen on a TCP port without credentials, for every process of the machine.

    Args:
        path: Folder of the index.
        may_copy: Whether to serve a copy where the index itself cannot be written.
    """
    from milvus_lite.adapter.grpc.server import start_server_in_thread
    from milvus_lite.exceptions import DataDirLockedError, MilvusLiteError

    folder = tempfile.mkdtemp(prefix="locigraph-")  # only its owner may enter; short, as a socket's path must be
    socket = f"unix:{folder}/socket"
    try:
        if may_copy and not os.access(path, os.W_OK):
            path = shutil.copytree(path, f"{folder}/copy.db", copy_function=shutil.copyfile)
            for copied in (Path(path), *Path(path).rglob("*")):
                copied.chmod(0o700)
        server, database, _ = start_server_in_thread(path, host=socket, port=0)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if not isinstance(error, MilvusLiteError):
            raise
        raise BlockingIOError(str(error)) if isinstance(error, DataDirLockedError) else OSError(str(error)) from error

    _remove_unfinished(Path(path, "collections"))

    def stop() -> None:
        server.stop(grace=2).wait()
        database.close()
        shutil.rmtree(folder, ignore_errors=True)

    # What a command leaves open is closed when the process ends.
    return f"{socket}:0", weakref.finalize(server, stop)


def _remove_unfinished(collections: Path) -> None:
    """Remove what a kill left half written, and what Milvus Lite would stumble over."""
    for begun in collections.iterdir():
        if not (begun / "schema.json").exists():  # Milvus Lite neither lists nor replaces such a collection
            shutil.rmtree(begun, ignore_errors=True)
    for index in collections.rglob("*.idx"):  # it makes one that is absent from the data, and cannot load half of one
        if not _is_whole(index):
            index.unlink()


def _is_whole(index: Path) -> bool:
    if not index.name.endswith(".flat.idx"):  # an exact index is an array, others have formats of their own
        return index.stat().st_size > 0
    try:
        np.load(index, mmap_mode="r")  # reads the header and compares the size
    except (OSError, ValueError, EOFError):
        return False
    return True


def _clear(path: str) -> None:
    with (Path(path) / "LOCK").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as Milvus Lite does: no other process is inside
        for entry in Path(path).iterdir():
            if entry.name.startswith(_CONTENT):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
