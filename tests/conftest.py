"""A browser for all tests that want one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from chromium import CHROMIUM, browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser without a window. One a file, not one a session: while it is open its driver's event loop runs in this
    thread, so that no test after it could call `asyncio.run`.
    """
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
    with browser() as opened:
        yield opened
