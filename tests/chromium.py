"""Debian's Chromium, driven by Playwright: nothing is downloaded, and it asks nothing of any network."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["CHROMIUM", "browser", "offline", "watched"]

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
def watched(chromium: Any, address: str, *allowed: str, no_network: bool = False, **options: Any) -> Iterator[Any]:
    """A page, in a context with these options, that may ask only what begins so; and nothing may go wrong."""
    context = chromium.new_context(**options)
    context.set_offline(no_network)
    asked: list[str] = []
    wrong: list[str] = []

    def watch(page: Any) -> None:
        page.on("request", lambda one: asked.append(one.url))
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))

    context.on("page", watch)  # of pages that it opens, too
    shown = context.new_page()
    shown.goto(address)
    yield shown
    context.close()
    assert [url for url in asked if not url.startswith((address, "data:", "blob:", *allowed))] == []
    assert wrong == []


@contextmanager
def offline(chromium: Any, file: Path, **options: Any) -> Iterator[Any]:
    """A page from a file; it may ask no network, and nothing may go wrong."""
    with watched(chromium, file.as_uri(), no_network=True, **options) as shown:
        yield shown
