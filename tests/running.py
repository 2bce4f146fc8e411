"""An app that listens on a free port while a test asks it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def running(app: Any, **options: Any) -> Iterator[str]:
    """The address at which uvicorn serves the app, with these options."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, **{"log_level": "error", **options}))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
