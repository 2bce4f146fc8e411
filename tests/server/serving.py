"""A server that runs while tests ask it, over the two small bundles: one turns letters round, in capitals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from regard.server.app import make_app
from regard.server.limits import Clients, Limits
from regard.server.service import Service

BUNDLES = Path(__file__).resolve().parents[1] / "bundle" / "made-by-0.1"
Serve = Callable[..., Any]


@contextmanager
def serving(
    *bundles: str, limits: Limits | None = None, keys: Path | None = None, cors: tuple[str, ...] = (), **more: Any
) -> Iterator[str]:
    """The address of a running server."""
    limits = limits or Limits()
    service = Service(bundles or (f"en-de={BUNDLES / 'transformer'}",), limits, **more)
    app = make_app(service, Clients(limits, keys), cors=cors)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=10))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
