"""The explorer at /explore, and what it asks for: /v1/explore, what a model does with one line."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from pydantic import Field

from regard.errors import TextError
from regard.explore.page import Run, page, run_of, served

from .described import gives
from .limits import Refused
from .own import Pair, Work, Working

if TYPE_CHECKING:
    from fastapi import FastAPI

    from regard.tasks.translate import Translator

router = APIRouter(prefix="/v1", tags=["Explorer"])
MOST_CHARACTERS, MOST_TOKENS = 2_000, 256
"""Of a line that is explored: all weights between its tokens are sent, and their number grows with its square."""
_WEB = Path(__file__).resolve().parents[1] / "explore" / "web"
_one = threading.Lock()
"""What is explored is computed one line at a time, beside the queue: it takes memory, and translations go first."""


class Explored(Pair):
    """A line to be explored."""

    text: str = Field(description="One line.", max_length=MOST_CHARACTERS)
    translation: str | None = Field(
        None, description="What the model is made to write; left out, what it would.", max_length=MOST_CHARACTERS
    )


@router.post("/explore")
def explore(asked: Explored, work: Working) -> Run:
    """What the model does with a line: attention, each step's alternatives, and the beam search as a tree.

    `parts` have `shape` (layers, heads, rows, columns) and `data`, base64 of whole numbers of `bits` bits,
    little-endian, of which the highest stands for 1.
    """
    from regard.explore.exploration import explore as explored

    translator, to = opened(asked, work)
    check_length(translator, asked, to)
    with computing(work):
        return run_of(explored(translator, asked.text, target=asked.translation, to=to, precision="float32"))


@router.get("/look", **gives("text/html"))
def look(request: Request, text: str, source: str, target: str) -> HTMLResponse:
    """A page that needs nothing else, of where the model looks while it translates one line; see `regard look`."""
    from regard.explore.exploration import Exploration
    from regard.explore.look import look as looked

    work = Work(request)
    if len(text) > MOST_CHARACTERS:
        raise Refused(413, f"the line has {len(text):,} characters; at most {MOST_CHARACTERS:,} can be explored")
    asked = Explored(text=text, source=source, target=target)
    translator, to = opened(asked, work)
    check_length(translator, asked, to)
    with computing(work):
        return HTMLResponse(page(Exploration(looked(translator, text, to=to, precision="float32"))))


def opened(asked: Explored, work: Work) -> tuple[Translator, str | None]:
    """The translator that is asked, and the language that it has to be told. Charges for the text."""
    work.charge(work.client, len(asked.text) + len(asked.translation or ""))
    source, target, _ = work.languages(asked, [asked.text])
    translator = work.service.translator(source, target)
    return translator, target if translator.languages.targets else None


def check_length(translator: Translator, asked: Explored, to: str | None) -> None:
    """Raises TextError for several lines, Refused for one of too many tokens."""
    if "\n" in asked.text or "\n" in (asked.translation or ""):
        raise TextError("the explorer takes one line; leave line breaks out.")
    lengths = [len(ids) for ids in translator.encode([asked.text], to=to)]
    lengths += [len(translator.target.encode(asked.translation))] if asked.translation else []
    if max(lengths) > MOST_TOKENS:
        raise Refused(413, f"the line has {max(lengths)} tokens; at most {MOST_TOKENS} can be explored")


@contextmanager
def computing(work: Work) -> Iterator[None]:
    """One exploration at a time. Raises Refused where the request's time ends before its turn comes."""
    if not _one.acquire(timeout=max(work.until - time.monotonic(), 0)):
        raise Refused(429, "The explorer is busy; try again in a moment")
    try:
        yield
    finally:
        _one.release()


def add_to(app: FastAPI, headers: dict[str, str]) -> None:
    """The page at /explore, with these headers, and the files that it is made of."""

    async def frame(request: Request) -> Response:
        return HTMLResponse(served("page/explore"), headers=headers)

    app.add_route("/explore", frame)
    app.mount("/page/explore", StaticFiles(directory=_WEB))
    app.include_router(router)
