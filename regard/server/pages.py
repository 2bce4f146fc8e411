"""Pages that a server shows: their files, and the headers that keep them from asking any other host."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

HEADERS = {
    # What a page may load: nothing of other hosts. It places its menus by styles.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def show(app: FastAPI, folder: Path) -> None:
    """Let an application show the page of a folder: `index.html` at /, and its other files at /page/."""

    async def page(request: Request) -> Response:
        return FileResponse(folder / "index.html", headers=HEADERS)

    app.add_route("/", page)
    app.mount("/page", StaticFiles(directory=folder))
