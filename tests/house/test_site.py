"""The documents as pages: they build without a warning, need no network, and say the same in both languages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAIRS = [
    *((page.with_name(page.name.replace(".zh", "")), page) for page in [*ROOT.glob("*.zh.md"), *DOCS.glob("*.zh.md")]),
    *((DOCS / "lectures" / "en" / page.name, page) for page in (DOCS / "lectures" / "zh").glob("*.md")),
]
FENCE = re.compile(r"^(`{3,})([^\n]*)\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `./run docs` builds it."""
    for module in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", str(out)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return out


def test_every_document_is_a_page(site: Path) -> None:
    documents = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    missing = [page for page in documents if not (site / page.relative_to(ROOT).with_suffix(".html")).exists()]
    assert missing == []
    assert "url=docs/index.html" in (site / "index.html").read_text("utf-8")
    assert "translate(" in (site / "docs" / "api.html").read_text("utf-8")


def test_nothing_comes_from_a_network(site: Path) -> None:
    """No script, style, font or picture; links to follow are another matter."""
    foreign = []
    for file in [*site.rglob("*.html"), *(site / "_static").rglob("*.css")]:
        text = file.read_text("utf-8")
        for tag in re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", text):
            foreign += [(file.name, tag) for _ in re.findall(r"\b(?:src|href)=[\"']?(?:https?:)?//", tag)]
        styles = text if file.suffix == ".css" else "".join(re.findall(r"<style\b.*?</style>", text, re.DOTALL))
        foreign += [
            (file.name, found) for found in re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)]*", styles)
        ]
    assert foreign == []


@pytest.mark.parametrize(
    ("words", "page"),
    [("注意力", "zh/lectures.html"), ("码", "zh/formulas.html"), ("calibrated confidence", "confidence.html")],
)
def test_the_search_finds_both_languages_offline(site: Path, chromium: Any, words: str, page: str) -> None:
    context = chromium.new_context()
    context.set_offline(True)
    shown: Any = context.new_page()
    asked: list[str] = []
    shown.on("request", lambda one: asked.append(one.url))
    shown.goto(f"{(site / 'search.html').as_uri()}?q={words}")
    # Results come one by one.
    shown.wait_for_selector(f'#search-results li a[href*="{page}"]', timeout=120_000)
    context.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def shape(page: Path) -> dict[str, Any]:
    """What two languages must have alike: levels of headings, pictures, rows of tables, lines of code."""
    text = page.read_text("utf-8")
    prose = FENCE.sub("", text)
    return {
        "headings": [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)],
        "pictures": re.findall(r"!\[[^\]]*\]\(([^)]+)\)", prose),
        "rows": len(re.findall(r"^\|", prose, re.MULTILINE)),
        "code": [(info, len(body.splitlines())) for _, info, body in FENCE.findall(text)],
    }


@pytest.mark.parametrize(("english", "chinese"), PAIRS, ids=[str(page.relative_to(ROOT)) for _, page in PAIRS])
def test_both_languages_say_the_same(english: Path, chinese: Path) -> None:
    assert shape(chinese) == shape(english)
