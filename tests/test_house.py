"""The house's laws: imports only go down, public names are exactly `__all__`, recipes parse, the map is the tree."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "regard").rglob("*.py"))
EVERYTHING = {
    *("errors", "disk", "text", "metrics", "nn", "kernels", "data", "models", "search", "train", "engine"),
    *("recipe", "bundle", "parsing", "exchange", "tasks", "apps", "studies"),
}

# Each room of regard/ and the rooms (or single modules) that it may import, itself aside; all may import errors, disk.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "disk": set(),
    "text": set(),
    "metrics": set(),
    "kernels": set(),
    "nn": {"kernels"},
    "data": {"text"},
    "models": {"nn", "kernels"},
    "search": {"nn.state"},
    "train": {"data", "models", "kernels"},
    "engine": {"models", "kernels"},
    "recipe": {"text", "data", "models", "search", "train"},
    "bundle": {"recipe", "text", "models"},
    "parsing": EVERYTHING - {"studies"},
    "exchange": EVERYTHING - {"apps", "studies"},
    "tasks": EVERYTHING - {"apps", "studies"},
    "apps": EVERYTHING - {"nn", "models", "search", "train"},
    "studies": EVERYTHING,
    "__main__": {"apps"},
    "__init__": EVERYTHING,  # the door: it opens what is asked for, when it is asked for
}
WITHOUT_TORCH = {"errors", "disk", "text", "metrics", "data", "apps"}


def module_of(path: Path) -> list[str]:
    """`regard/nn/state.py` -> ["regard", "nn", "state"]; a package is its folder."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


MODULES = {".".join(module_of(path)) for path in FILES}


def imports(path: Path, tree: ast.Module) -> list[str]:
    """Every module that the file imports, anywhere in it, by its absolute name."""
    package = module_of(path) if path.name == "__init__.py" else module_of(path)[:-1]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            whole = [f"{base}.{alias.name}" for alias in node.names]
            found += [name if name in MODULES else base for name in whole]
    return found


def trespasses(path: Path, tree: ast.Module) -> list[str]:
    """What the file imports though its room may not."""
    room = path.relative_to(ROOT / "regard").with_suffix("").parts[0]
    open_to_it = tuple(f"regard.{allowed}." for allowed in {room, "errors", "disk", *MAY_IMPORT[room]})
    named = imports(path, tree)
    upwards = [name for name in named if name.split(".")[0] == "regard" and not f"{name}.".startswith(open_to_it)]
    return upwards + [name for name in named if name.split(".")[0] == "torch" and room in WITHOUT_TORCH]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_go_down(path):
    assert trespasses(path, ast.parse(path.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    ("path", "line", "allowed"),
    [
        ("search/beam.py", "from ..nn.state import State", True),
        ("search/beam.py", "from ..nn import State", False),
        ("search/beam.py", "from .. import models", False),
        ("nn/attention/core.py", "from ..state import State", True),
        ("nn/attention/core.py", "from ...search.beam import beam_search", False),
        ("text/lines.py", "def f():\n    import regard.data.store", False),
        ("apps/cli.py", "def f():\n    from torch import nn", False),
        ("apps/cli.py", "from ..tasks.get import get", True),
        ("errors.py", "from .text import tag", False),
    ],
)
def test_the_rule_itself(path, line, allowed):
    assert (trespasses(ROOT / "regard" / path, ast.parse(line)) == []) == allowed


def names_of(path: Path) -> tuple[set[str], list[str] | None]:
    """The public names that a file makes or takes from the project, modules aside, and its `__all__` if it has one."""
    bound: set[str] = set()
    listed = None
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            bound |= names
            listed = list(ast.literal_eval(node.value)) if "__all__" in names and node.value else listed
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "regard"):
            bound |= {alias.asname or alias.name for alias in node.names}
    inside = ".".join(module_of(path))
    bound -= {name for name in bound if f"{inside}.{name}" in MODULES and name not in (listed or [])}
    return {name for name in bound if not name.startswith("_")}, listed


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_lists_its_public_names(path):
    names, listed = names_of(path)
    if listed is None:
        assert not names, "public names, but no __all__"
        return
    assert len(set(listed)) == len(listed)
    module = importlib.import_module(".".join(module_of(path)))
    assert [name for name in listed if not hasattr(module, name)] == []


PACKAGES = [path for path in FILES if path.name == "__init__.py" and path.parent != ROOT / "regard"]


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.parent.name)
def test_a_package_shows_exactly_what_it_lists(path):
    names, listed = names_of(path)
    assert names == set(listed or [])


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").rglob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_parses(path):
    recipe = pytest.importorskip("regard.recipe")
    wanted = set(re.findall(r"\$\{(\w+)\}", path.read_text("utf-8")))
    recipe.load(path, variables=dict.fromkeys(wanted, "data"))


def mapped(readme: Path, headings: str) -> list[str]:
    """The first word of each line in the fenced block under the map's heading."""
    found = re.search(
        rf"^## (?:{headings})\s*$(?:(?!^## ).)*?^```\w*\n(.*?)^```", readme.read_text("utf-8"), re.M | re.S
    )
    assert found, f"{readme.name} has no fenced block under the heading of its map"
    return [line.split()[0] for line in found[1].splitlines() if line.strip()]


@pytest.mark.parametrize(("name", "headings"), [("README.md", "Map"), ("README.zh.md", "Map|地图|代码地图")])
def test_the_map_matches_the_tree(name, headings):
    if not (ROOT / name).exists():
        pytest.skip(f"{name} is not written yet")
    paths = mapped(ROOT / name, headings)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    listed = {(ROOT / path).resolve() for path in paths} - {ROOT / "regard"}
    rooms = [path for path in FILES if path.name != "__init__.py"]
    assert [str(p.relative_to(ROOT)) for p in rooms if not listed & {p, *p.parents}] == []
