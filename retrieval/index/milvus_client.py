"""Client of Milvus that maps errors to ours and runs Milvus Lite on a socket that only this user can reach."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from locigraph.kg.errors import abridged
from locigraph.kg.files import MAKE_ROOM, is_of_disk, make_private_folder
from locigraph.kg.temporary import held_folder
from locigraph.retrieval.errors import IndexInUseError, IndexUnavailableError
from locigraph.retrieval.index.milvus_server import ServerAccess, cure_of

# pymilvus pings an idle server every 10 seconds; Milvus Lite, idle while a model trains, takes that for an attack.
_GRPC = {"grpc.keepalive_permit_without_calls": False}
_LOCAL = ("http://localhost", "http://127.0.0.1")

# These loggers would mix remarks, and tracebacks of errors that are raised anyway, into the output of a command.
for _name in ("pymilvus", "milvus_lite", "grpc._server"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

# Everything that Milvus Lite keeps in its folder, except its lock file.
_CONTENT = ("aliases.json", "collections", "database_properties.json", "databases", ".database-staging")
# What it keeps in the folder of a collection.
_COLLECTION_CONTENT = ("manifest.json", "partitions", "schema.json", "snapshots", "wal")
# Folders that can hold a socket: its path may have 100 bytes, 26 of them for its own folder and name, and gRPC takes
# other characters for parts of an address.
_SOCKET_PLACE = re.compile(r"[\w./-]{1,74}", re.ASCII)
_REBUILD = "run locigraph verify --rebuild true to rebuild it from the store"


class GuardedClient:
    """A ``MilvusClient`` whose failures are raised as ``IndexUnavailableError``.

    It forwards every method of ``MilvusClient``. A server is given a time limit for each request.

    Args:
        uri: File path (Milvus Lite) or URL of a server.
        access: How a server is reached.
        is_reader: Whether the client is used only for reading. Milvus Lite writes even then, so a reader gets a copy of
            an index that it cannot write to.
    """

    def __init__(self, uri: str, access: ServerAccess = ServerAccess(), *, is_reader: bool = False) -> None:
        self.uri = uri
        self._is_reader = is_reader
        self.is_embedded = "://" not in uri
        # An embedded index stays where it is when the process changes its folder.
        self._path = os.path.abspath(uri) if self.is_embedded else uri
        self._access = access
        if self.is_embedded and not uri.endswith(".db"):
            raise IndexUnavailableError(
                f"index {uri!r}: the path of an embedded index must end in .db; name such a path"
            )
        if self.is_embedded:
            self.guarded("create its folder", make_private_folder)(Path(uri).parent)
            self.guarded("open", _require_own_folder)(uri)
            if not is_reader:
                self.guarded("create its folder", make_private_folder)(Path(uri))
        self._connect()

    def _connect(self) -> None:
        self._stop: Callable[[], object] = lambda: None
        options = {} if self.is_embedded else self._access.options()
        self._client: MilvusClient = self.guarded("connect", self._connected)(**options)
        if not self.is_embedded:
            try:
                self._access.require_known(self.uri, self.get_server_version())
            except BaseException:
                self.close()
                raise

    def _connected(self, **access: Any) -> MilvusClient:
        address, options = self.uri, dict(_GRPC)
        if self.is_embedded:
            address, self._stop = _served(self._path, is_reader=self._is_reader)
        if self.is_embedded or address.startswith(_LOCAL):
            options["grpc.enable_http_proxy"] = False  # a network proxy cannot reach this machine's own addresses
        try:
            return MilvusClient(address, grpc_options=options, dedicated=True, **access)
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """End the connection; an embedded index completes its files and releases its lock."""
        try:
            self.guarded("close", self._client.close)()
        finally:
            self._stop()

    def clear(self) -> None:
        """Delete the content of an embedded index, damaged or not, and connect to the empty index.

        Raises:
            IndexUnavailableError: If another process has it open.
        """
        self.close()
        try:
            self.guarded("clear", _clear)(self._path)
        finally:
            self._connect()

    def guarded(self, what: str, action: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap an action so that its errors are mapped; ``what`` completes the message "cannot ..."."""

        def call(*arguments: Any, **options: Any) -> Any:
            # pymilvus raises its own errors for refused requests and builtin ones for broken connections and files.
            try:
                return action(*arguments, **options)
            except BlockingIOError as error:
                raise IndexInUseError(
                    f"index {self.uri!r} is already open, in another process or in this one; close it there, or send "
                    "requests to that process (locigraph serve answers POST /v1/recall)"
                ) from error
            except (MilvusException, OSError, RuntimeError, ValueError) as error:
                of = f" {arguments[0]!r}" if arguments and arguments[0] not in (self.uri, self._path) else ""
                if is_of_disk(error):
                    cure = MAKE_ROOM
                elif self.is_embedded:
                    cure = f"unless this process has closed the index, it may be damaged: {_REBUILD}"
                else:
                    cure = cure_of(str(error), self._access)
                raise IndexUnavailableError(
                    f"index {self.uri!r}: cannot {what}{of}: {abridged(error, 300)}; {cure}"
                ) from error

        return call

    def __getattr__(self, method: str) -> Callable[..., Any]:
        what = method.replace("has_", "look for_").replace("_", " ")
        action = getattr(self._client, method)
        if not self.is_embedded:  # without a limit, pymilvus would retry for minutes
            action = partial(action, timeout=self._access.timeout_of(method))
        return self.guarded(what, action)


def _require_own_folder(path: str) -> None:
    """Raise IndexUnavailableError if the path holds anything other than an index of Milvus Lite."""
    folder = Path(path)
    if os.path.lexists(path) and not folder.is_dir():
        kind = "broken link" if folder.is_symlink() and not folder.exists() else "file"
        raise IndexUnavailableError(
            f"index {path!r} is a {kind}, but an embedded index is a folder; name another path with --index.uri"
        )
    names = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    # Milvus Lite creates these two folders before its lock file, so a killed process may leave them without one.
    is_own = "LOCK" in names or names >= {"collections", "databases"}
    if not is_own and any(not entry.is_dir() for entry in folder.rglob("*")):
        raise IndexUnavailableError(
            f"index {path!r} is a folder with other files, which were not changed; name another path with --index.uri"
        )


#: The address of an embedded index that is served, and a function that stops serving it.
_Server = tuple[str, Callable[[], object]]


def _served(path: str, *, is_reader: bool) -> _Server:
    """Serve an embedded index; after an interrupt it is not served.

    Args:
        path: Folder of the index.
        is_reader: Whether to serve a copy if the index itself cannot be written, and to keep unfinished collections.
    """
    # Interrupts reach the main thread alone. One within the start would leave a server that was started in part and
    # is in use nowhere, and gRPC would wait forever when it frees it.
    made: list[_Server] = []
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="index") as pool:  # whose end waits for the thread
            # An interrupt while its thread starts would make the pool forget this thread, so it starts without work.
            pool.submit(int).result()
            pool.submit(lambda: made.append(_started(path, is_reader=is_reader))).result()
    except BaseException:
        for _, stop in made:
            stop()
        raise
    return made[0]


def _started(path: str, *, is_reader: bool) -> _Server:
    """Serve an embedded index on a socket in a private folder.

    By default Milvus Lite would listen on a TCP port without credentials, open to every process of the machine.
    """
    from milvus_lite.adapter.grpc.server import start_server_in_thread
    from milvus_lite.exceptions import DataDirLockedError, MilvusLiteError

    folder, remove_folder = _socket_folder()
    socket = f"unix:{folder}/socket"
    with ExitStack() as opened:
        opened.callback(remove_folder)
        if is_reader and not os.access(path, os.W_OK):
            path = shutil.copytree(path, f"{folder}/copy.db", copy_function=shutil.copyfile)
            for copied in (Path(path), *Path(path).rglob("*")):
                copied.chmod(0o700)
        try:
            server, database, _ = start_server_in_thread(path, host=socket, port=0)
        except DataDirLockedError as error:
            raise BlockingIOError(str(error)) from error
        except MilvusLiteError as error:
            raise OSError(str(error)) from error
        opened.callback(database.close)
        opened.callback(lambda: server.stop(grace=2).wait())
        collections = Path(path, "collections")
        if not is_reader:
            _remove_unfinished(collections)
        _remove_search_files(collections)
        stop = partial(_stop_in, os.getpid(), opened.pop_all())

    # What a command leaves open is closed when the process ends.
    return f"{socket}:0", weakref.finalize(server, stop)


def _stop_in(process: int, opened: ExitStack) -> None:
    """Stop serving, unless this is a process that was forked later: it has no thread that would stop the server."""
    if os.getpid() == process:
        opened.close()


def _socket_folder() -> tuple[str, Callable[[], None]]:
    """Make a folder for a socket that only its owner may enter; returns it and a function that removes it."""
    try:
        place = tempfile.gettempdir()
        return held_folder(place if _SOCKET_PLACE.fullmatch(place) else "/tmp")
    except OSError as error:
        raise IndexUnavailableError(
            f"cannot create a folder for the socket of an embedded index ({error}); set TMPDIR to a folder whose path "
            "has at most 74 characters, only letters, digits and . _ / -"
        ) from error


def _remove_unfinished(collections: Path) -> None:
    """Remove collections that a killed process left half made; Milvus Lite neither lists nor replaces them."""
    for begun in collections.iterdir():
        if not begun.is_dir() or (begun / "schema.json").exists():
            continue
        if all(entry.name.startswith(_COLLECTION_CONTENT) for entry in begun.iterdir()):
            shutil.rmtree(begun, ignore_errors=True)


def _remove_search_files(collections: Path) -> None:
    """Remove index files that Milvus Lite would trust unchecked or fail on; it rebuilds them from the data.

    A file for exact (FLAT) search is only a copy of the vectors, without a checksum. Rebuilding it takes as long as
    reading it, so it is always removed; a modified or truncated one is therefore never searched.
    """
    for file in collections.glob("*/partitions/*/indexes/*.idx"):
        if file.is_file() and (file.name.endswith(".flat.idx") or not file.stat().st_size):
            file.unlink()


def _clear(path: str) -> None:
    with (Path(path) / "LOCK").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock of Milvus Lite: no other process uses it
        for entry in Path(path).iterdir():
            if entry.name.startswith(_CONTENT):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
