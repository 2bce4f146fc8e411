"""`python -m regard` is `regard`."""

from __future__ import annotations

import sys

from regard.apps.cli import main

if __name__ == "__main__":
    sys.exit(main())
