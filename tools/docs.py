"""Write the commented recipe into docs/recipes.md anew, so that the page names every key: `python tools/docs.py`."""

from __future__ import annotations

import re
from pathlib import Path

from regard import recipe

PAGE = Path(__file__).resolve().parent.parent / "docs" / "recipes.md"
PLACE = re.compile(r"(<!-- what `regard init` writes -->\n```toml\n).*?(```\n)", re.DOTALL)


def fresh(text: str) -> str:
    """The page with the recipe that `regard init` would write today."""
    written = recipe.template()
    return PLACE.sub(lambda found: found[1] + written + found[2], text)


if __name__ == "__main__":
    PAGE.write_text(fresh(PAGE.read_text("utf-8")), "utf-8")
