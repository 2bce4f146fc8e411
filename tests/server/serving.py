"""A server that runs while tests ask it, over the two small bundles: one turns letters round, in capitals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from running import running

from regard.server.app import http_options, make_app
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
    with running(app, **{**http_options(limits), "log_level": "error", "timeout_graceful_shutdown": 10}) as address:
        yield address
