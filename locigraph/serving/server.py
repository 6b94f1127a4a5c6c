"""The HTTP server: it starts, and it shuts down without leaving a request unanswered."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import uvicorn

from locigraph.serving.gate import Gate
from locigraph.serving.limits import connection_class

#: How long running requests may take after the server is asked to stop; then those without an answer are refused.
_STOP_S = 8
#: How long the server, when it is asked to stop, still reads what clients have sent by then.
_READ_S = 0.5
_ROUNDS = 10
#: How long sending the refusals may take.
_REFUSE_S = 1
#: How long the process may go on, whatever it waits for: a language model may take minutes for a reply, and a thread
#: that waits for it cannot be stopped. What was acknowledged is stored, and what is due is listed in the store.
_END_S = 10
#: How long a connection stays open between two requests: longer than a busy client's pauses, since a request that is
#: sent while the server closes the connection has no answer.
_KEEP_ALIVE_S = 75


class Server(uvicorn.Server):
    """Serves an application until a signal comes.

    Args:
        app: The application, which refuses at the end the requests that have no answer.
        greet: Called once the server is ready for clients.
        give_up: Called in a thread ten seconds after the server was asked to stop, if the process is still there.
    """

    def __init__(self, app: Gate, greet: Callable[[], None], give_up: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app, log_level="warning", access_log=False, server_header=False, ws="none", lifespan="on",
                proxy_headers=False,  # anybody on this machine could be as many addresses as they like
                http=connection_class(),
                timeout_graceful_shutdown=_STOP_S + _REFUSE_S, timeout_keep_alive=_KEEP_ALIVE_S,
            )
        )  # fmt: skip
        self._app = app
        self._greet, self._give_up = greet, give_up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, then greet."""
        await super().startup(sockets)
        self._greet()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the requests that were sent, and shut down."""
        end = threading.Timer(_END_S, self._give_up)
        end.daemon = True  # it lasts as long as the process
        end.start()
        asyncio.get_running_loop().call_later(_STOP_S, self._app.stop)
        # uvicorn closes connections whose request it has not read yet, even if it was sent. A busy event loop needs
        # several rounds to read it: for the connection, its first bytes, and the rest.
        for _ in range(_ROUNDS):
            await asyncio.sleep(_READ_S / _ROUNDS)
        await super().shutdown(sockets)
