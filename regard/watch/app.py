"""The page of some runs as a web application: it only reads, and tells a page what is new since it last asked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, HTTPException, Query, Response
from fastapi.responses import JSONResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from regard.server import pages

from .following import Follower
from .log import MOST_POINTS

PAGE = Path(__file__).with_name("page")
_HERE = ("127.0.0.1", "localhost", "[::1]", "::1")
_Count = Annotated[int, Query(ge=0, le=2 * MOST_POINTS)]


def make_app(follower: Follower, *, host: str = "127.0.0.1") -> FastAPI:
    """The application that shows these runs; they are watched from its start to its end."""

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        follower.start()
        yield
        follower.close()

    app = FastAPI(title="Regard: runs", lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/runs")
    def runs() -> Response:
        return _fresh([run.name for run in follower.runs])

    @app.get("/runs/{number}")
    def news(number: int, generation: int = -1, train: _Count = 0, validate: _Count = 0, cut: _Count = 0) -> Response:
        _check(number)
        return _fresh(follower.news(number, generation, {"train": train, "validate": validate, "cut": cut}))

    @app.get("/runs/{number}/results/{name}")
    def result(number: int, name: str) -> Response:
        _check(number)
        if (found := follower.result(number, name)) is None:
            raise HTTPException(404, "There is no such result")
        return _fresh(found)

    def _check(number: int) -> None:
        if not 0 <= number < len(follower.runs):
            raise HTTPException(404, "There is no such run")

    pages.show(app, PAGE)
    if host in _HERE:
        # A page of another host must not read runs by giving that host this machine's address.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*_HERE])
    return app


def _fresh(content: object) -> JSONResponse:
    return JSONResponse(content, headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})


def run(app: FastAPI, host: str, port: int) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    import uvicorn

    uvicorn.run(
        app,
        host=host,
        port=port,
        access_log=False,
        log_level="warning",
        limit_concurrency=64,
        timeout_graceful_shutdown=5,
        server_header=False,
    )
