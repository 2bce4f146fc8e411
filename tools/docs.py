"""Write the generated parts of the documents anew: `python tools/docs.py`.

These are the commented recipe in docs/recipes.md, so that the page names every key, and docs/map.md, a line for every
file of the package from the first sentence of its docstring.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from regard.planning.commented import template

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "docs" / "recipes.md"
MAP = ROOT / "docs" / "map.md"
RECIPE = re.compile(r"(<!-- what `regard init` writes -->\n```toml\n).*?(```\n)", re.DOTALL)


def with_recipe(text: str) -> str:
    """The page with the recipe that `regard init` would write today."""
    written = template()
    return RECIPE.sub(lambda found: found[1] + written + found[2], text)


def file_map() -> str:
    """The page that lists every Python file of the package with the first line of its docstring, folder by folder."""
    lines = ["<!-- made by `python tools/docs.py` -->", "# Every file in a line", ""]
    lines.append(
        "Each line is the first of the file's docstring; [CONTRIBUTING.md](../CONTRIBUTING.md) says what imports what."
    )
    package = ROOT / "regard"
    folders = sorted({path.parent for path in package.rglob("*.py")})
    for folder in folders:
        files = [path for path in sorted(folder.glob("*.py")) if summary(path)]
        if files:
            lines += ["", f"## {folder.relative_to(ROOT)}", "", "| file | what it is |", "|---|---|"]
            lines += [
                f"| [{path.name}](../{path.relative_to(ROOT)}) | {summary(path).replace('|', chr(92) + '|')} |"
                for path in files
            ]
    return "\n".join(lines) + "\n"


def summary(path: Path) -> str:
    """The first paragraph's first line of a file's docstring, or an empty text."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n", 1)[0]


if __name__ == "__main__":
    RECIPES.write_text(with_recipe(RECIPES.read_text("utf-8")), "utf-8")
    MAP.write_text(file_map(), "utf-8")
