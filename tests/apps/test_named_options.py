"""Every option that a message, a help text or a comment of the package names is one that its command has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer

from regard.apps.cli import app

ROOT = Path(__file__).resolve().parents[2]
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")
COMMAND = re.compile(r"regard ([a-z]+)\b[^`.;]*")
OF_OTHERS = {
    "regard/kernels/build.py": {"--version"},  # the compiler's
    "regard/apps/cli.py": {"--no"},  # put before a flag's name
    "regard/apps/options.py": {"--no"},
    "regard/text/tokenizer.py": {"--pad", "--unk", "--bos", "--eos"},  # spm_train's --pad_id=0 and so on
}


@cache
def options() -> dict[str, set[str]]:
    """Every command's options."""
    group = typer.main.get_command(app)
    context = group.make_context("regard", [], resilient_parsing=True)
    found = {}
    common = {option for p in group.get_params(context) for option in p.opts} | {"--help"}
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        given = [o for p in command.get_params(context) for o in (*p.opts, *p.secondary_opts)]
        found[name] = {option for option in given if option.startswith("--")} | common
    return found


def texts(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Strings and f-strings with the function that they stand in; what is put into an f-string reads {}."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.FunctionDef):
            function = node.name
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values), function
            return
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, function
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function)

    return walk(tree, "")


def wrong(text: str, function: str) -> list[str]:
    """The options of a text that its command, or else every command, lacks."""
    every = options()
    found = []
    of_a_command = [(match.start(), match.end(), match[1]) for match in COMMAND.finditer(text) if match[1] in every]
    for option in OPTION.finditer(text):
        named = [name for start, end, name in of_a_command if start < option.start() < end]
        commands = named or ([function.rstrip("_")] if function.rstrip("_") in every else list(every))
        if not any(option[0] in every[name] for name in commands):
            found.append(option[0])
    return found


FILES = sorted((ROOT / "regard").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_option_that_is_named_is_there(path: Path) -> None:
    allowed = OF_OTHERS.get(str(path.relative_to(ROOT)), set())
    tree = ast.parse(path.read_text("utf-8"))
    missing = {option for text, function in texts(tree) for option in wrong(text, function)} - allowed
    assert missing == set(), "name an option that there is"


@pytest.mark.parametrize(
    ("text", "function", "found"),
    [
        ("say so (--gold-base 0)", "parse_gold", []),
        ("say so (--golden-base 0)", "parse_gold", ["--golden-base"]),
        ("`regard lecture {} --bundle DIR`", "anything", []),
        ("`regard lecture {} --gold FILE`", "anything", ["--gold"]),
        ("give --gold with it", "lecture", ["--gold"]),
        ("give --out with it", "lecture", []),
    ],
)
def test_the_rule_itself(text: str, function: str, found: list[str]) -> None:
    assert wrong(text, function) == found
