"""``locigraph serve``: a memory that stays open, for clients of HTTP and MCP."""

from __future__ import annotations

import ipaddress
import logging
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import locigraph
from locigraph.assembly.batch_jobs import require_servers
from locigraph.assembly.settings import DEFAULT, REMEMBERED, EncoderSettings, IndexSettings, LLMSettings
from locigraph.kg.errors import LocigraphError, require_extra
from locigraph.kg.store.engine import shown_url

if TYPE_CHECKING:
    from locigraph.memory import Memory
    from locigraph.serving.keys import Keyring

#: Packages of the extra ``serve``, as they are imported.
_EXTRA = ("fastapi", "uvicorn", "httptools", "mcp", "prometheus_client")
#: Connections that may wait until a worker takes them.
_BACKLOG = 2_048


def serve(
    *,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = REMEMBERED,
    checkpoint: str | None = DEFAULT,
    host: str = "127.0.0.1",
    port: int = 8765,
    workers: int = 1,
    key_file: str | None = None,
    requests_per_minute: int = 6_000,
    max_request_bytes: int = 4_000_000,
    stdio: bool = False,
    consolidation: str = "rules",
    llm: LLMSettings = LLMSettings(),
    max_tokens: int | None = None,
    max_cost: float | None = None,
    redact: bool = False,
) -> None:
    """Keep a memory open and serve it: HTTP with OpenAPI, MCP at /mcp, a graph explorer at /explorer.

    While it runs, ``locigraph recall`` on the same store asks it instead of loading the text encoder again.

    Stops on SIGTERM or Ctrl-C once the running requests are answered; those without an answer after 8 s are refused.
    Acknowledged turns are never lost.

    Args:
        store: The graph; it is created if it does not exist.
        index: Vector index.
        encoder: Text encoder the graph is built with.
        checkpoint: Checkpoint of the graph embeddings; ``default`` for the one that the store remembers, or the shipped
            one; null for none, so that v1 answers every question.
        host: Address to listen on; any address other than a loopback address requires keys.
        port: Port to listen on; 0 for a free one.
        workers: Number of processes that serve the port; more than one needs a store and an index on servers. Each
            loads the text encoder for itself, and takes its share of ``requests_per_minute``.
        key_file: File of API keys, each with the spaces it may use (docs/serving.md); null takes them from the
            environment variable LOCIGRAPH_KEYS. Without keys, everyone on this machine has full access.
        requests_per_minute: Largest number of requests per minute for each key.
        max_request_bytes: Largest size of a request, in bytes.
        stdio: Whether to serve MCP over standard input and output, to the program that started this one, instead of
            HTTP; keys, limits, host and port then do not apply.
        consolidation: Extractor that builds the graph from added turns: <extractors of added turns>.
        llm: The language models of the extractor ``llm``; additions wait for them.
        max_tokens: Limit on the tokens that language models read and write; at the limit, additions are refused until
            it is raised.
        max_cost: The same limit for the cost, in the currency of their prices.
        redact: Whether to replace what looks like a password, key or card number before anything is stored.
    """
    from functools import partial

    from locigraph.memory import Memory

    require_extra("serve", _EXTRA, "locigraph serve")
    from locigraph.serving.workers import share_processors

    require_servers(workers, store, index)
    share_processors(workers)
    opened = partial(
        Memory.open, store, index=index, encoder=encoder, checkpoint=checkpoint, consolidation=consolidation, llm=llm,
        max_tokens=max_tokens, max_cost=max_cost, redact=redact,
    )  # fmt: skip
    if requests_per_minute < 1 or max_request_bytes < 1:
        raise LocigraphError(
            f"requests_per_minute is {requests_per_minute} and max_request_bytes {max_request_bytes}; expected 1 or "
            "more of each"
        )
    if stdio and key_file is not None:
        raise LocigraphError(
            "--key_file is for HTTP only; with --stdio, only the program that started the server can send requests"
        )
    if stdio:
        from locigraph.serving.tools import serve_stdio

        _log_to_stderr()
        serve_stdio(opened())
        return
    _serve_http(
        opened, workers, host, port, store, key_file,
        requests_per_minute=-(-requests_per_minute // workers), max_request_bytes=max_request_bytes,
        folders=_folders(store, index.uri, key_file),
    )  # fmt: skip


def _serve_http(
    opened: Callable[[], Memory],
    workers: int,
    host: str,
    port: int,
    store: str,
    key_file: str | None,
    *,
    requests_per_minute: int,
    max_request_bytes: int,
    folders: Collection[str],
) -> None:
    """Serve HTTP in one process or several, each with these limits."""
    from functools import partial

    from locigraph.serving.keys import read_keys
    from locigraph.serving.running import RunningServer, announced

    keyring = read_keys(key_file)
    own_key = secrets.token_urlsafe() if len(keyring) else None
    if own_key is not None:
        keyring = keyring.with_owner(own_key)
    with _bound(host, port, has_keys=len(keyring) > 0) as listener:
        address, bound_port, *_ = listener.getsockname()
        url = f"http://{f'[{address}]' if ':' in address else address}:{bound_port}"
        server = RunningServer(url, own_key)
        work = partial(
            _serve,
            opened=opened,
            keys=keyring,
            hosts={"localhost", "127.0.0.1", "[::1]", host, f"[{host}]"},
            secret=server.secret,
            requests_per_minute=requests_per_minute,
            max_request_bytes=max_request_bytes,
            folders=folders,
            greeting=f"{shown_url(store)} at {url}; explorer at {url}/explorer; stop with Ctrl-C",
            announcing=partial(announced, store, server) if workers == 1 else nullcontext,
        )
        if workers == 1:
            work(listener)
            return
        from locigraph.serving.workers import run_workers

        _log_to_stderr()
        listener.listen(_BACKLOG)
        if code := run_workers(workers, work, listener):
            raise SystemExit(code)


def _serve(
    listener: socket.socket,
    *,
    opened: Callable[[], Memory],
    keys: Keyring,
    hosts: Collection[str],
    requests_per_minute: int,
    max_request_bytes: int,
    folders: Collection[str],
    secret: str,
    greeting: str,
    announcing: Callable[[], AbstractContextManager[None]],
) -> None:
    """Serve the memory that ``opened`` opens on a socket, in this process, until a signal comes."""
    try:
        memory = opened()  # raises, if it cannot be opened, before anything heavy is imported
    except LocigraphError as error:
        if multiprocessing.parent_process() is None:
            raise
        print(f"locigraph: {error}", file=sys.stderr, flush=True)
        raise SystemExit(error.exit_code) from None
    from locigraph.serving.application import application
    from locigraph.serving.server import Server

    _log_to_stderr()
    app = application(
        memory, keys=keys, hosts=hosts, requests_per_minute=requests_per_minute, max_request_bytes=max_request_bytes,
        folders={*folders, *_folders(*memory.files)}, secret=secret,
    )  # fmt: skip
    # When it is done, uvicorn raises the signal that stopped it again, which must not end in an error.
    before = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        with ExitStack() as doing:
            doing.enter_context(announcing())  # not before, since another process may serve the store

            def give_up() -> None:
                doing.close()
                os._exit(0)

            Server(app, lambda: print(greeting, flush=True), give_up).run(sockets=[listener])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _folders(*named: str | Path | None) -> set[str]:
    """Folders of this machine that errors might name: those of the named files, and those that all programs use."""
    code = Path(locigraph.__file__).parents[1]
    found = {Path.cwd(), Path.home(), Path(tempfile.gettempdir()), Path(sys.prefix), code}
    for each in named:
        if each is not None and "://" not in str(each):
            path = Path(each).expanduser().absolute()
            found |= {path.parent, path.resolve().parent, path.resolve()}
    return {str(folder) for folder in found if len(folder.parts) > 1}


def _bound(host: str, port: int, *, has_keys: bool) -> socket.socket:
    """A socket that is bound to its address but does not listen yet.

    Raises:
        LocigraphError: If the address cannot be bound, or can be reached from other machines and there are no keys.
    """
    if not 0 <= port < 2**16:
        raise LocigraphError(f"port is {port}; expected 0 to {2**16 - 1}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise LocigraphError(
            f"host {host!r} is not an address of this machine ({error}); choose another with --host"
        ) from error
    if not has_keys and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise LocigraphError(
            f"host {host!r} can be reached from other machines, but there are no keys; name a file with --key_file, "
            "or listen on 127.0.0.1"
        )
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise LocigraphError(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose another with --port"
        ) from error
    return made


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("locigraph.serve")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    from locigraph.serving.limits import OnceASecond

    for name in (logger.name, "uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(OnceASecond())
