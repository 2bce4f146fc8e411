"""The server as a web application: its routes, what guards them, and what it tells of itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import RegardError

from . import corrections, deepl, documents, explorer, heads, libretranslate, own, pages
from .described import describe
from .limits import Clients, Limits, Refused
from .resident import release_memory, share_pools
from .service import Service

log = logging.getLogger("regard.server")
_RELEASE = 10.0
"""Seconds after which freed memory is given back."""
PAGE = Path(__file__).with_name("page")


def make_app(service: Service, clients: Clients, *, cors: tuple[str, ...] = ()) -> FastAPI:
    """The application over these bundles. It closes the service when it stops, after all accepted requests."""

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = service.limits.max_requests
        with contextlib.suppress(ValueError, RuntimeError, AttributeError, NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, service)
        releasing = asyncio.create_task(_release(metrics, app.state.documents))
        yield
        releasing.cancel()
        await anyio.to_thread.run_sync(app.state.documents.close)
        await anyio.to_thread.run_sync(service.close)

    app = FastAPI(
        title="Regard",
        description="Translation. /v1 is this server's own API; the others are those of LibreTranslate and DeepL.",
        version="1",
        lifespan=life,
        docs_url=None,  # its page would be fetched from another host
        redoc_url=None,
        openapi_url="/v1/openapi.json",
    )
    app.state.service, app.state.clients = service, clients
    app.state.glossaries, app.state.documents = deepl.Glossaries(), documents.Documents(service)
    for api in (own, corrections, libretranslate, deepl, documents):
        app.include_router(api.router)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RegardError, _mistake)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RecursionError, _too_deep)
    describe(app)
    metrics = Metrics(service)
    app.add_route("/metrics", metrics.page)
    explorer.add_to(app, pages.HEADERS)
    app.include_router(heads.router)
    pages.show(app, PAGE)
    if cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["*"],
        )
    app.add_middleware(Guard, limits=service.limits, metrics=metrics)
    return app


# -- answers to what is not served -------------------------------------------------------------------------------------


def answer(request: Request, status: int, message: str) -> JSONResponse:
    """An error in the form of the API that was asked."""
    path = request.url.path
    name = "message" if path.startswith(("/v2/", "/v3/")) else "error"
    headers = {"Retry-After": "1"} if status in (429, 503) else None
    return JSONResponse({name: message}, status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return answer(request, error.status, error.message)


async def _mistake(request: Request, error: Exception) -> Response:
    return answer(request, 400, str(error))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    return answer(request, 400, f"Invalid request: {where}: {first['msg']}")


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answer(request, error.status_code, str(error.detail))


async def _too_deep(request: Request, error: Exception) -> Response:
    return answer(request, 400, "Invalid request: it is nested too deeply")


# -- what stands before every request ----------------------------------------------------------------------------------


class Guard:
    """Bounds the size of bodies, the time they take to come and the requests at once; counts and logs each request.

    The log has no user's text: method, path without query, status, milliseconds.
    """

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics
        self._working = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        start, status, sent = time.monotonic(), 500, False
        scope["regard.until"] = start + self._limits.max_seconds

        async def sending(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status, sent = message["status"], True
            await send(message)

        async def refuse(code: int, message: str) -> None:
            if not sent:
                await answer(Request(scope), code, message)(scope, receive, sending)

        self._working += 1
        self._metrics.working.set(self._working)
        try:
            if self._working > self._limits.max_requests and not scope["path"].startswith(("/health", "/metrics")):
                await refuse(429, "The server is busy; try again in a moment")
            else:
                await self._app(scope, self._bounded(scope, receive), sending)
        except ClientDisconnect:
            status = 499  # nobody is there to be answered
        except Exception as error:
            place = [f"{Path(at.filename).name}:{at.lineno}" for at in traceback.extract_tb(error.__traceback__)[-3:]]
            log.error(json.dumps({"event": "fault", "path": scope["path"], "error": type(error).__name__, "at": place}))
            await refuse(500, "The server has a fault; its log says which")
            self._metrics.faults.inc()
        finally:
            self._working -= 1
            self._metrics.working.set(self._working)
            seconds = time.monotonic() - start
            self._metrics.seen(_route_of(scope), status, seconds)
            entry = {"event": "request", "method": scope["method"], "path": scope["path"][:200], "status": status}
            log.info(json.dumps({**entry, "ms": round(1000 * seconds, 1)}))

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        size, whole = 0, False
        until = scope["regard.until"]
        brings = scope["path"] in documents.PATHS
        most = self._limits.max_document if brings else self._limits.max_body

        async def bounded() -> Message:
            nonlocal size, whole
            if whole:
                return await receive()  # that the client goes away
            try:
                async with asyncio.timeout(max(until - time.monotonic(), 0.001)):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "The request did not come in time") from None
            size += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if size > most:
                raise HTTPException(413, f"The request has more than {most:,} bytes")
            return message

        return bounded


def _route_of(scope: Scope) -> str:
    """The pattern of the route that answered, since a path may be anything."""
    return getattr(scope.get("route"), "path", "") or "other"


class Metrics:
    """Counts for Prometheus."""

    def __init__(self, service: Service) -> None:
        self._registry = registry = CollectorRegistry()
        self.answered = 0
        self._requests = Counter("regard_requests", "Requests answered", ["route", "status"], registry=registry)
        self._seconds = Histogram("regard_request_seconds", "Time of a request", ["route"], registry=registry)
        self.faults = Counter("regard_faults", "Requests that ended in a fault of the server", registry=registry)
        self.working = Gauge("regard_requests_in_progress", "Requests that are worked on", registry=registry)
        waiting = Gauge("regard_waiting_sentences", "Sentences that wait to be translated", registry=registry)
        waiting.set_function(lambda: service.queue.waiting)
        batches = Gauge("regard_batches", "Calls of the engine so far", registry=registry)
        batches.set_function(lambda: service.queue.batches)
        lines = Gauge("regard_sentences", "Sentences translated so far", registry=registry)
        lines.set_function(lambda: service.queue.lines)

    def seen(self, route: str, status: int, seconds: float) -> None:
        """Counts a request."""
        self.answered += 1
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    async def page(self, request: Request) -> Response:
        """What Prometheus reads."""
        return PlainTextResponse(generate_latest(self._registry), media_type="text/plain; version=0.0.4")


async def _release(metrics: Metrics, uploads: documents.Documents) -> None:
    """Gives freed memory back now and then, which the C library would keep: large requests would be seen for days."""
    before = 0
    while True:
        await asyncio.sleep(_RELEASE)
        await anyio.to_thread.run_sync(uploads.forget)
        if metrics.answered != before:
            before = metrics.answered
            await anyio.to_thread.run_sync(release_memory)


# -- running -----------------------------------------------------------------------------------------------------------


def _reload(service: Service) -> None:
    """Reads changed bundles, in a thread of its own, so that requests go on."""

    def work() -> None:
        try:
            changed = service.reload()
            log.info(json.dumps({"event": "reloaded", "bundles": [path.name for path in changed]}))
        except RegardError as error:
            log.error(json.dumps({"event": "not reloaded", "error": str(error)}))

    threading.Thread(target=work, name="regard-reloading", daemon=True).start()


def http_options(limits: Limits) -> dict[str, Any]:
    """How uvicorn serves the app: what every server of these limits has in common, whatever its address."""
    return {
        "access_log": False,
        "log_level": "warning",
        "timeout_graceful_shutdown": int(limits.max_seconds) + 5,
        # Longer than clients wait between two questions (5 s in DeepL's) and than proxies keep a connection (60 s):
        # who reuses one that is being closed loses its request.
        "timeout_keep_alive": 75,
        "http": "h11",  # which bounds what a header may have
        "h11_max_incomplete_event_size": 65536,
        "server_header": False,
    }


def run(app: FastAPI, host: str, port: int) -> None:
    """Serves until SIGTERM or Ctrl-C; then takes nothing more and answers what was accepted."""
    import uvicorn

    share_pools()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    uvicorn.run(app, host=host, port=port, **http_options(app.state.service.limits))
