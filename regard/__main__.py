"""`python -m regard` is `regard`."""

from __future__ import annotations

import sys

from regard.apps.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
