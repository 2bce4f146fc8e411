"""The house's laws: imports only go down, names are listed, nothing is too large, recipes parse, the map is right."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "regard").rglob("*.py"))
EVERYTHING = {
    *("errors", "machine", "settings", "text", "metrics", "nn", "kernels", "data", "models", "search"),
    *(
        "train",
        "engine",
        "recipe",
        "bundle",
        "tasks",
        "explore",
        "documents",
        "adaptation",
        "tuning",
        "synthetic",
        "server",
        "apps",
        "studies",
    ),
}

# Each room of regard/ and the rooms (or single modules) that it may import, besides itself, errors, machine and
# extensions.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "machine": set(),
    "extensions": set(),
    "pictures": set(),
    "text": set(),
    "settings": {"text"},
    "metrics": {"text.languages"},
    "nn": set(),
    "kernels": {"nn"},
    "data": {"settings", "text"},
    "models": {"nn", "kernels"},
    "search": {"nn.state", "kernels.build"},
    "train": {"settings", "text", "data", "nn", "models", "kernels"},
    "engine": {"models", "kernels"},
    "recipe": {"settings", "text", "models", "search", "train"},
    "bundle": {"recipe", "text", "models"},
    "parsing": {"text", "metrics", "nn", "models", "search.table", "recipe", "bundle", "train", "tasks"}
    | {"apps.options", "apps.cli", "apps.translate", "language.open", "language.stacks"},
    "exchange": {"text", "nn.positions", "models", "search.table", "recipe", "bundle", "tasks"}
    | {"apps.options", "apps.cli"},
    "fetching": {"apps.cli"},
    "language": {"text", "metrics", "nn", "models", "search", "recipe", "bundle", "tasks"}
    | {"apps.options", "apps.cli"},
    "tasks": EVERYTHING - {"explore", "documents", "adaptation", "tuning", "synthetic", "server", "apps", "studies"}
    | {"adaptation.file", "terminology.constraints"},
    "explore": EVERYTHING
    - {"documents", "adaptation", "tuning", "synthetic", "server", "apps", "studies", "train", "data"}
    | {
        "pictures",
        "linking.aer",
        "language.open",
        "tuning.quantize",
        "estimation.correlation",
        "apps.options",
        "apps.cli",
    },
    "terminology": {"text", "search.constraints", "search.hypotheses", "search.table", "tasks"},
    "documents": {"text", "search.table", "tasks"},
    "adaptation": EVERYTHING - {"explore", "documents", "tuning", "synthetic", "server", "watch", "apps", "studies"}
    | {"tuning.quantize", "apps.options", "apps.cli"},
    "server": {
        "settings",
        "text",
        "search.table",
        "recipe",
        "bundle",
        "tasks",
        "documents",
        "adaptation",
        "explore",
        "apps.cli",
        "apps.options",
    }
    | {"terminology.constraints", "kernels.build"},  # how many threads compute
    "watch": {
        *(
            "text",
            "data",
            "models",
            "nn.positions",
            "train",
            "recipe",
            "bundle.model",
            "tasks",
            "language.open",
            "explore",
        ),
        *("server.address", "server.pages", "apps.options", "apps.cli"),
    },
    "cluster": {"text", "search.table", "tasks", "apps.options"},
    "synthetic": {
        "settings",
        "text",
        "search.table",
        "metrics",
        "recipe",
        "tasks",
        "tuning",
        "cluster",
        "apps.options",
        "apps.cli",
        "apps.training",
    },
    "tuning": {"pictures", "text", "metrics", "models", "search.table", "recipe", "bundle", "tasks"}
    | {"apps.options", "apps.cli"},
    "sweeping": {"models.blocks", "train", "recipe", "bundle", "tasks"} | {"apps.options", "apps.cli", "apps.training"},
    "comparison": {"text", "metrics", "tasks", "server.guard", "apps.options", "apps.cli"},
    "cleaning": {"text", "tuning.lists", "apps.options", "apps.cli"},
    "inspection": {"data", "nn", "kernels", "engine", "train", "search.table", "recipe", "bundle", "tasks"}
    | {"apps.options", "apps.cli"},
    "planning": {"text", "data", "models", "train", "recipe", "tasks", "inspection.command"}
    | {"apps.options", "apps.cli", "apps.training"},
    "mixing": {"text", "apps.options", "apps.cli"},
    "reading": {
        "text",
        "data",
        "models",
        "nn",
        "train",
        "recipe",
        "bundle",
        "tasks",
        "language.open",
        "language.stacks",
    }
    | {"apps.options", "apps.cli", "apps.training"},
    "linking": {"text", "metrics.result", "models", "search.table", "train", "tasks", "apps.options", "apps.cli"},
    "estimation": {"text", "metrics", "tasks", "apps.options", "apps.cli"},
    "apps": EVERYTHING - {"nn", "models", "search", "train"}
    | {"search.table", "cluster", "language.measure", "terminology.constraints"},
    "studies": EVERYTHING | {"pictures", "linking", "language.open", "inspection"},
    "__main__": {"apps"},
    # The door: it opens what is asked for, when it is asked for.
    "__init__": EVERYTHING
    | {"cleaning", "comparison", "estimation", "inspection", "language", "linking", "mixing", "parsing", "sweeping"},
}
WITHOUT_TORCH = {
    "errors",
    "machine",
    "pictures",
    "settings",
    "text",
    "metrics",
    "data",
    "documents",
    "server",
    "cluster",
    "cleaning",
    "comparison",
    "fetching",
    "apps",
}


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
    anywhere = {room, "errors", "machine", "extensions"}
    open_to_it = tuple(f"regard.{allowed}." for allowed in anywhere | MAY_IMPORT[room])
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
        ("apps/cli.py", "from ..tasks.engine import reads_pairs", True),
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
        elif isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "__all__":
            listed = [*(listed or []), *ast.literal_eval(node.value)]
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "regard"):
            bound |= {alias.asname or alias.name for alias in node.names}
    inside = ".".join(module_of(path))
    bound -= {name for name in bound if f"{inside}.{name}" in MODULES and name not in (listed or [])}
    return {name for name in bound if not name.startswith("_")}, listed


PACKAGES = [path for path in FILES if path.name == "__init__.py" and path.parent != ROOT / "regard"]


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.parent.name)
def test_a_package_shows_exactly_what_it_lists(path):
    names, listed = names_of(path)
    assert names == set(listed or [])
    module = importlib.import_module(".".join(module_of(path)))
    assert [name for name in listed or [] if not hasattr(module, name)] == []


def test_only_packages_list_names():
    """In a module an underscore says which names are its own, and mypy sees that none is imported at second hand."""
    assert [path for path in FILES if path.name != "__init__.py" and names_of(path)[1] is not None] == []


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").rglob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_parses(path):
    recipe = pytest.importorskip("regard.recipe")
    wanted = set(re.findall(r"\$\{(\w+)\}", path.read_text("utf-8")))
    recipe.load(path, variables=dict.fromkeys(wanted, "data"))


# -- sizes -------------------------------------------------------------------------------------------------------------

MOST_LINES, MOST_IN_A_FILE, MOST_IN_A_FUNCTION, MOST_PARAMETERS = 20_000, 400, 60, 8

NOT_YET: dict[str, dict[str, int]] = {}
"""What does not hold yet, with the numbers of today as ceilings, which only go down until none is left."""

MOST_ANY = 236
"""How often the type that allows everything is written; lower it when it is written less."""
NOT_YET_CYCLES: list[list[str]] = []

ON_TOP = {"studies", "documents", "adaptation", "explore", "server", "watch", "exchange", "parsing", "fetching"}
ON_TOP |= {"cluster", "tuning", "cleaning", "synthetic", "comparison", "planning", "estimation", "mixing"}
ON_TOP |= {"sweeping", "linking", "reading", "language", "inspection", "terminology", "pictures.py"}

TREES = {str(path.relative_to(ROOT / "regard")): ast.parse(path.read_text("utf-8")) for path in FILES}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[str, Function]]:
    """Every function of the package, methods and inner ones included, as "file:name"."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield f"{path}:{node.name}", node


def over(found: Iterable[tuple[str, int]], limit: int, law: str) -> dict[str, int]:
    """What is over the limit, but for the known exceptions that have not grown."""
    known = NOT_YET.get(law, {})
    return {name: size for name, size in found if size > known.get(name, limit)}


def test_the_package_is_small():
    """Some rooms stand on top: none of them is on the way from text to a translator, and no room below imports one.

    Among them are data sets fetched (`fetching`), models of one side (`language`), trees (`parsing`), links of words
    (`linking`), words that must be kept (`terminology`), other libraries' models (`exchange`), what is said of bundles
    and machines (`inspection`) and drawings (`pictures.py`); docs/decisions/0040-size-of-the-core.md counts them. Rooms
    below name some in tables, such as those of commands, families, kinds of models and kinds of targets, which import
    what is named when it is asked for.
    """
    own = (path for path in FILES if not ON_TOP & set(path.relative_to(ROOT / "regard").parts))
    size = sum(path.read_text("utf-8").count("\n") for path in own)
    assert size <= NOT_YET.get("lines", {}).get("regard", MOST_LINES)


def test_nothing_below_imports_what_stands_on_top():
    """But for the package's door, and what a flag, a bundle or an old name asks for, when it is asked for."""
    tops = tuple(f"regard.{room.removesuffix('.py')}." for room in ON_TOP)
    below = {path: tree for path, tree in TREES.items() if not ON_TOP & set(Path(path).parts) and path != "__init__.py"}
    named = ((path, name) for path, tree in below.items() for name in imports(ROOT / "regard" / path, tree))
    asked_for = {("tasks/translate.py", "adaptation"), ("tasks/translate.py", "terminology")}
    asked_for |= {("apps/cli.py", "terminology"), ("apps/look.py", "explore")}
    asked_for |= {("apps/translate.py", "cluster"), ("apps/translate.py", "documents"), ("apps/use.py", "language")}
    assert {(path, name.split(".")[1]) for path, name in named if f"{name}.".startswith(tops)} == asked_for


def test_every_file_can_be_read_in_one_go():
    sizes = ((str(path.relative_to(ROOT / "regard")), path.read_text("utf-8").count("\n")) for path in FILES)
    assert over(sizes, MOST_IN_A_FILE, "file") == {}


def test_every_function_fits_on_a_screen():
    sizes = ((name, (node.end_lineno or 0) - node.lineno + 1) for name, node in functions())
    assert over(sizes, MOST_IN_A_FUNCTION, "function") == {}


def test_no_public_function_has_many_parameters():
    """Flags that are generated from an options object are no parameters of a function that anybody wrote."""

    def count(node: Function) -> int:
        given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        return sum(argument.arg not in ("self", "cls") for argument in given)

    public = ((name, count(node)) for name, node in functions() if node.name == "__init__" or node.name[0] != "_")
    assert over(public, MOST_PARAMETERS, "parameters") == {}


def test_every_type_that_is_ignored_says_why():
    lines = (line for path in FILES for line in path.read_text("utf-8").splitlines())
    silent = [line for line in lines if re.search(r"# type: ignore(?!\[[\w, -]+\]  # \w)", line)]
    assert not silent


def test_any_is_used_less_and_less():
    used = sum(isinstance(node, ast.Name) and node.id == "Any" for tree in TREES.values() for node in ast.walk(tree))
    assert used <= MOST_ANY


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, by way of any number of others."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = edges[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    all_reached = {name: reached(name) for name in edges}
    groups = {frozenset(n for n in all_reached[name] if name in all_reached[n]) for name in edges}
    return sorted(sorted(group) for group in groups if group)


def test_no_modules_import_each_other():
    """Imports inside of functions count; those of the lazy door and those for mypy alone do not."""
    edges: dict[str, set[str]] = {}
    for path in FILES:
        tree = ast.parse(path.read_text("utf-8"))
        tree.body = [n for n in tree.body if not (isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test))]
        edges[".".join(module_of(path))] = {name for name in imports(path, tree) if name in MODULES} - {"regard"}
    assert [group for group in cycles(edges) if group not in NOT_YET_CYCLES] == []


def test_cycles_are_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]
    assert cycles({"a": {"b"}, "b": set()}) == []
