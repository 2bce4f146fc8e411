"""The documents hold: links lead somewhere, commands exist with their options, the page of recipes names every key.

Examples are run by tests/house/test_examples.py.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

from regard.apps.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(`{3,})([^\n]*)\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks whose info string is one of these."""
    return [body for _, info, body in FENCE.findall(page.read_text("utf-8")) if info.strip() in languages]


# -- links -------------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """What a heading is called in a link, as GitHub makes it."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_somewhere(page):
    prose = FENCE.sub("", page.read_text("utf-8"))
    links = [one or other for one, other in LINK.findall(prose)]
    broken = []
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path)
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


# -- commands ----------------------------------------------------------------------------------------------------------

COMMANDS = typer.main.get_command(app).commands
OPTIONS = {
    word: {option for p in command.params for option in (*p.opts, *p.secondary_opts)} | {"-h", "--help"}
    for word, command in COMMANDS.items()
}


def commands(page: Path) -> list[list[str]]:
    """Each command line of ours in the page's shell blocks, as words; `\\` at an end goes on, `#` begins a comment."""
    lines = "\n".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    found = []
    for line in lines:
        for part in re.split(r"\s*(?:&&|\|)\s+", line):
            words = shlex.split(part, comments=True)
            if words[1:2] == ["--import"]:  # what stands before the word
                del words[1:3]
            if words and words[0] in ("regard", "./run"):
                found.append(words)
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_exist_with_their_options(page):
    run = (ROOT / "run").read_text("utf-8")
    for words in commands(page):
        if words[0] == "./run":
            assert re.search(rf"^    {words[1]}\)$", run, re.MULTILINE), words
            continue
        if words[1].startswith("-"):
            continue
        assert words[1] in COMMANDS, words
        options = [word.partition("=")[0] for word in words[2:] if re.match(r"--?[a-z]", word)]
        assert [option for option in options if option not in OPTIONS[words[1]]] == [], words


# -- the page of recipes -----------------------------------------------------------------------------------------------


@pytest.fixture
def maker(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import docs

    yield docs
    sys.modules.pop("docs", None)


def test_the_page_of_recipes_is_what_init_writes(maker):
    text = maker.RECIPES.read_text("utf-8")
    assert maker.RECIPE.search(text), "the recipe's part of the page is missing"
    assert maker.with_recipe(text) == text, "the recipe's keys have changed: run `python tools/docs.py`"


def test_the_map_names_every_file(maker):
    assert maker.MAP.read_text("utf-8") == maker.file_map(), "files have changed: run `python tools/docs.py`"
    files = [path for path in (ROOT / "regard").rglob("*.py") if path.stat().st_size]
    assert [str(path) for path in files if not maker.summary(path)] == []


# -- the first page ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_the_readme_is_one_page(page):
    assert len((ROOT / page).read_text("utf-8").splitlines()) <= 120


@pytest.mark.parametrize("page", ["docs/commands.md", "docs/commands.zh.md"])
def test_the_page_of_commands_names_every_command(page):
    named = re.findall(r"^\| `regard ([\w-]+)", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(COMMANDS)
