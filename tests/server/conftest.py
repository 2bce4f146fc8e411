"""A server that all tests may ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from serving import serving


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with serving() as found:
        yield found
