"""The Chinese pages use one word for one thing: none that the glossary lists as not used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.zh.md"
PAGES = sorted(
    {*ROOT.glob("*.zh.md"), *(ROOT / "docs").rglob("*.zh.md"), *(ROOT / "docs").rglob("zh/*.md")} - {GLOSSARY}
)
SOURCES = [
    path
    for path in sorted((ROOT / "regard").rglob("*"))
    if path.suffix in {".py", ".js", ".ts", ".html", ".toml"}
    and "node_modules" not in path.parts
    and path.name not in {"slides.toml", "errata.toml"}  # which quote the lecture documents; their pages are checked
]
CHINESE = re.compile(r"[\u4e00-\u9fff]")
# What is code, a link's target, a quotation or a name that stands in brackets behind the word itself.
ELSEWHERE = (
    re.compile(r"^(`{3,}).*?^\1", re.MULTILINE | re.DOTALL),
    re.compile(r"`[^`\n]*`"),
    re.compile(r"\]\([^)]*\)"),
    re.compile(r"“[^”\n]*”|「[^」\n]*」|《[^》\n]*》"),
    re.compile(r"（[A-Za-z ]+）"),
    re.compile(r"BPE-dropout"),
)
SOURCE = re.compile(r"Source\(\d, \"[^\"\n]*\"\)")
"""A slide's title, quoted."""


def shunned() -> dict[str, str]:
    """Every word that is not used, with the one that is."""
    table = GLOSSARY.read_text("utf-8").partition("## 不用的说法")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)[1:]
    return {word: use for words, use in rows for word in words.split("、")}


def prose(text: str) -> str:
    """What is said in a page's own words."""
    for pattern in ELSEWHERE:
        text = pattern.sub("\n" if pattern is ELSEWHERE[0] else " ", text)
    return text


def cells(text: str) -> list[str]:
    """Lines, and the cells of tables, that hold Chinese."""
    parts = [part for line in text.splitlines() for part in (line.split("|") if line.startswith("|") else [line])]
    return [part for part in parts if CHINESE.search(part)]


def found(text: str) -> list[str]:
    """What is not used and stands there nevertheless, with the words around it and the word to use."""
    hits = []
    for word, use in shunned().items():
        pattern = re.compile(rf"(?<![A-Za-z_./-]){re.escape(word)}(?![A-Za-z_./=-])")
        for cell in cells(text):
            hits += [
                f"{word} -> {use}: …{cell[max(0, m.start() - 12) : m.end() + 12]}…" for m in pattern.finditer(cell)
            ]
    return hits


def test_the_table_of_shunned_words_is_read():
    words = shunned()
    assert {"词片": "词元", "热身": "预热", "带子": "磁带", "贪婪": "贪心"}.items() <= words.items()
    assert not set(words) & set(words.values())
    assert found(prose("一次热身，读入词片。")) == [
        "词片 -> 词元: …一次热身，读入词片。…",
        "热身 -> 预热: …一次热身，读入词片。…",
    ]
    assert found(prose("讲义写作“热身”，`token` 是键，模型包（bundle）在 [这里](bundle.md)。")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_chinese_page_uses_the_words_of_the_glossary(page):
    assert found(prose(page.read_text("utf-8"))) == []


def test_chinese_text_of_the_package_uses_the_words_of_the_glossary():
    quoted = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|`[^`\n]*`|>[^<\n]*<")
    hits = []
    for path in SOURCES:
        lines = filter(CHINESE.search, path.read_text("utf-8").splitlines())
        for text in quoted.findall(SOURCE.sub("", "\n".join(lines))):
            hits += [f"{path.relative_to(ROOT)}: {hit}" for hit in found(text) if "token" not in hit.split(" ")[0]]
    assert hits == []
