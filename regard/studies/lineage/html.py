"""Parts of the report's page: text in two languages, tables and charts. Every text is escaped here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from regard.pictures import curves, panels

LANGUAGES = ("en", "zh")
Plain = Mapping[str, Any]  # Any: values as JSON has them
Words = tuple[str, str]  # English, Chinese


def say(english: str, chinese: str, tag: str = "p") -> str:
    """The same in both languages, as elements of which the page shows one."""
    both = (("en", english), ("zh", chinese))
    return "".join(f'<{tag} lang="{lang}">{escape(text)}</{tag}>' for lang, text in both)


def table(caption: Words, head: Sequence[Words], rows: Sequence[Sequence[str | Words]]) -> str:
    """A table that scrolls in a box of its own; a cell is the same in both languages, or has words for each."""
    names = "".join(f'<th scope="col">{_cell(words)}</th>' for words in head)
    lines = [
        f'<tr><th scope="row">{_cell(row[0])}</th>' + "".join(f"<td>{_cell(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    ]
    return (
        '<div class="scroll" tabindex="0" role="group"><table>'
        f"<caption><span>{say(*caption, 'span')}</span></caption>"
        f"<thead><tr>{names}</tr></thead><tbody>\n" + "\n".join(lines) + "\n</tbody></table></div>"
    )


def _cell(words: str | Words) -> str:
    if isinstance(words, str) or words[0] == words[1]:
        return escape(words if isinstance(words, str) else words[0])
    return say(*words, "span")


def chart(
    title: Words,
    across: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    axes: tuple[Words, Words],
    columns: Sequence[str],
    *,
    logarithmic: bool = False,
    at: float | None = None,
) -> str:
    """A picture of named lines, and below it their numbers as a table with these columns.

    `axes` are the words across and along, which the picture has in both languages; both axes are logarithmic or none,
    and `at` draws a line across.
    """
    x, y = (" / ".join(dict.fromkeys(words)) for words in axes)
    drawn = curves("", across, lines, x=x, y=y, logarithmic="xy" if logarithmic else "", at=at)
    picture = panels([drawn], size=(500.0, 270.0), title=title[0])
    rows = [
        [line, *(f"{value:.3g}" if logarithmic else f"{value:.2f}" for value in values)]
        for line, values in lines.items()
    ]
    return (
        f"<figure><figcaption>{say(*title, 'span')}</figcaption>"
        f'<div class="scroll chart" tabindex="0" role="group">{picture.img()}</div></figure>'
        f"<details><summary>{say('The same as numbers', '同样的内容，以数字表示', 'span')}</summary>"
        f"{table(title, [('line', '线'), *((name, name) for name in columns)], rows)}</details>"
    )
