"""The HTTP application: a route for each operation, MCP, the explorer, health, readiness and metrics."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse
from fastapi.security import HTTPBearer
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.exceptions import HTTPException
from starlette.routing import Route

from locigraph import __version__
from locigraph.kg.errors import LocigraphError
from locigraph.memory import AsyncMemory, Memory
from locigraph.serving.gate import CALLER, Gate
from locigraph.serving.keys import Keyring
from locigraph.serving.limits import RateLimit
from locigraph.serving.operations import OPERATIONS, Operation
from locigraph.serving.problems import INTERNAL, Problem, invalid, problem, problem_of, told_of
from locigraph.serving.running import CHALLENGE, PROOF, proof_of
from locigraph.serving.service import SWEEP_S, Service
from locigraph.serving.tools import mcp_server
from locigraph.serving.workers import LANES, METRICS_FOLDER

#: Prefixes of paths that show nothing of a memory and need no key.
_OPEN = ("/health", "/ready", "/openapi.json", "/explorer")
_EXPLORER_FILES = ("explorer.js", "explorer.css")
#: The explorer shows text that anybody may have said: it loads nothing from elsewhere, and no text can run as a script.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_DESCRIPTION = """Memory of conversations. Errors are problem details (RFC 9457). MCP is at `/mcp`, the explorer at
`/explorer`. If the server has keys, send one as `Authorization: Bearer KEY`."""


def application(
    memory: Memory,
    *,
    keys: Keyring,
    hosts: Collection[str],
    requests_per_minute: int,
    max_request_bytes: int,
    folders: Collection[str] = (),
    sweep_s: float = SWEEP_S,
    secret: str = "",
) -> Gate:
    """Makes the application that serves a memory, and closes the memory when it shuts down.

    Args:
        memory: An open memory.
        keys: API keys of the callers; if empty, everyone who reaches the server may use it.
        hosts: Host names by which the server may be addressed if there are no keys.
        requests_per_minute: Largest number for each key, and for each address without one.
        max_request_bytes: Size of the largest request.
        folders: Folders whose paths no answer may show.
        sweep_s: Seconds between two erasures of what has expired.
        secret: By which commands on this machine know the server; see ``serving.running``. Empty if none asks for it.
    """
    served = AsyncMemory(lambda: memory, threads=LANES + 1)
    service = Service(served, limit=RateLimit(requests_per_minute), folders=folders)
    # MCP without sessions: nothing is kept between requests, and any of them may be the last.
    sessions = StreamableHTTPSessionManager(
        mcp_server(service), json_response=True, stateless=True, max_request_body_size=max_request_bytes
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with served, sessions.run():
            warming, sweeping = asyncio.create_task(service.warm_up()), asyncio.create_task(service.sweep(sweep_s))
            yield
            sweeping.cancel()
            service.stop_warming()
            await warming
            # What is due may take minutes, and is listed in the store; it is done when a question needs it.
            await served.close(flush=False)

    app = FastAPI(
        title="Locigraph", description=_DESCRIPTION, version=__version__, lifespan=lifespan,
        docs_url=None, redoc_url=None,  # these pages load scripts from elsewhere
        dependencies=[Depends(HTTPBearer(auto_error=False))],  # documents the keys in OpenAPI; ``Gate`` checks them
    )  # fmt: skip
    for operation in OPERATIONS.values():
        _add_route(app, service, operation)
    _add_errors(app)
    _document_problems(app)

    _add_state(app, service, memory, secret)
    for path, file in {"/explorer": "index.html", **{f"/explorer/{name}": name for name in _EXPLORER_FILES}}.items():
        _add_page(app, path, file)

    @app.get("/", include_in_schema=False)
    async def to_explorer() -> Response:
        return RedirectResponse("/explorer")

    # POST only: the server pushes nothing, and a GET stream that a client holds open would delay its shutdown.
    app.router.routes.append(Route("/mcp", StreamableHTTPASGIApp(sessions), methods=["POST"]))
    return Gate(
        app,
        service,
        keys=keys,
        paths=[route.path for route in app.routes if isinstance(route, Route)],
        open_paths=_OPEN,
        read_paths=[f"/v1/{each.name}" for each in OPERATIONS.values() if not each.changes],
        hosts=hosts,
        max_request_bytes=max_request_bytes,
    )


def _add_state(app: FastAPI, service: Service, memory: Memory, secret: str) -> None:
    """Add the routes that tell how the server is."""

    @app.head("/health", include_in_schema=False)
    @app.get("/health", summary="Whether the process answers")
    async def health(request: Request, response: Response) -> dict[str, str]:
        if secret and (challenge := request.headers.get(CHALLENGE)):
            response.headers[PROOF] = proof_of(secret, challenge)
        return {"status": "ok"}

    @app.get("/ready", summary="Whether models are loaded and the index answers, and which checkpoint is in use")
    async def ready(request: Request) -> Response:
        is_known = hasattr(request.state, CALLER)  # callers without a key are told nothing of files and models
        if service.not_ready:
            reason = service.not_ready if is_known else "not ready; send a key to see the reason"
            return problem(503, reason, headers={"Retry-After": "5"})
        state = await service.state(memory.state)
        said: dict[str, Any] = {"status": "ready", "strategy": state.strategy}
        if is_known:
            index = {"due_rows": state.due_rows, "due_spaces": state.due_spaces}
            said |= {"checkpoint": state.checkpoint, "reason": service.without_folders(state.reason), "index": index}
        return JSONResponse(said)

    @app.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
    async def metrics() -> Response:
        registry = service.registry
        if METRICS_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # its package has types, but not here
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _add_page(app: FastAPI, path: str, file: str) -> None:
    @app.get(path, include_in_schema=False)
    async def page() -> Response:
        return FileResponse(Path(__file__).parent / "explorer" / file, headers=_PAGE_HEADERS)


def _add_route(app: FastAPI, service: Service, operation: Operation[Any]) -> None:
    """Add the route ``/v1/NAME``: GET without fields, else POST, so that no log of URLs holds their content."""
    has_fields = bool(operation.request.model_fields)

    async def answer(request: Request, asked: Any) -> Response:
        found = await service.perform(operation, asked, getattr(request.state, CALLER))
        # As bytes, since FastAPI would check the answer and convert it twice.
        return Response(found.model_dump_json(), media_type="application/json")

    async def without_fields(request: Request) -> Response:
        return await answer(request, operation.request())

    answer.__annotations__["asked"] = operation.request  # FastAPI reads the body's model from here
    app.add_api_route(
        f"/v1/{operation.name}",
        answer if has_fields else without_fields,
        methods=["POST" if has_fields else "GET"],
        response_model=operation.answer,
        responses={"default": {"model": Problem, "description": "A problem, and what to do about it"}},
        operation_id=operation.name,
        summary=operation.description,
        description=operation.request.__doc__ if has_fields else None,
    )


def _document_problems(app: FastAPI) -> None:
    """Document answers to refused requests by their own media type, which FastAPI cannot be told."""
    documented = app.openapi

    def openapi() -> dict[str, Any]:
        found = documented()
        for operations in found["paths"].values():
            for operation in operations.values():
                content = operation["responses"].get("default", {}).get("content", {})
                if "application/json" in content:
                    content["application/problem+json"] = content.pop("application/json")
        return found

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation says


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(LocigraphError)
    async def of_memory(request: Request, error: LocigraphError) -> Response:
        return problem_of(error)

    @app.exception_handler(RequestValidationError)
    async def of_request(request: Request, error: RequestValidationError) -> Response:
        return problem_of(invalid(error.errors()))

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> Response:
        return problem(error.status_code, told_of(request, error), headers=error.headers)

    @app.exception_handler(Exception)
    async def of_server(request: Request, error: Exception) -> Response:
        return problem(500, INTERNAL)
