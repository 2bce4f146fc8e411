"""Debian's Chromium, driven by Playwright: nothing is downloaded, and it asks nothing of any network."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["CHROMIUM", "browser", "offline"]

CHROMIUM = shutil.which("chromium")

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def browser() -> Iterator[Any]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        sys.exit("there is no Chromium here: apt-get install chromium")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@contextmanager
def offline(chromium: Any, file: Path, **options: Any) -> Iterator[Any]:
    """A page from a file, in a context with these options; it may ask no network, and nothing may go wrong."""
    context = chromium.new_context(**options)
    context.set_offline(True)
    shown = context.new_page()
    asked: list[str] = []
    wrong: list[str] = []
    shown.on("request", lambda one: asked.append(one.url))
    shown.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    shown.on("pageerror", lambda error: wrong.append(str(error)))
    shown.goto(file.as_uri())
    yield shown
    context.close()
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [file.as_uri()]
    assert wrong == []
