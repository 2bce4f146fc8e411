"""A lecture as one page: what it shows, a figure that moves where there is one, its numbers, its picture.

A page is one file that asks no network: styles, scripts and pictures are inside. What moves is in `web/`; which lecture
has which figure, and titles in Chinese, are in words.toml.
"""

from __future__ import annotations

import base64
import html
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from regard.errors import DataError
from regard.explore.page import Page
from regard.machine import write_atomically

from .every import about, words
from .labels import label, shown
from .page import Lecture, Value, draw
from .trained import Shown

_WEB = Path(__file__).parent / "web"
_SCRIPTS = ("formulas.js", "page.js", "attention.js", "sequences.js", "recurrent.js")
RECORDED = "decoding-steps"
"""The lecture whose page shows a translation that was recorded (recorded.json)."""


def title(name: str, language: str = "en") -> str:
    """A lecture's name as a title."""
    return words()["title"].get(name, name) if language == "zh" else name.replace("-", " ").capitalize()


@cache
def web(name: str) -> str:
    """A file of `web/`."""
    return (_WEB / name).read_text("utf-8")


def both(english: str, chinese: str) -> str:
    """A text in both languages, of which a page shows one."""
    return f'<span lang="en">{html.escape(english)}</span><span lang="zh">{html.escape(chinese)}</span>'


def frame(
    titles: tuple[str, str, str],
    inside: str,
    *,
    back: bool = False,
    script: bool = False,
    slides: bool = False,
    language: str = "en",
) -> str:
    """A whole page: its style, its scripts, one switch of language; of slides, what leads from one to the next.

    `titles` are the lecture's name and its title in English and Chinese; `language` is the one that it begins in.
    """
    name, english, chinese = titles
    scripts = "\n".join(map(web, _SCRIPTS)) if script else f"{web('page.js')}\nconst widgets = {{}};"
    style = web("page.css") + (web("deck.css") if slides else "")
    scripts += web("deck.js") if slides else ""
    begin = "page.begin();" + (" deck.begin();" if slides else "")
    body = inside if slides else f"<h1>{both(english, chinese)}</h1>\n{inside}"
    link = f'<a href="index.html">{both("All lectures", "全部讲义")}</a>' if back else "<span></span>"
    return f"""<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>{html.escape(english)}</title>
<style>{style}</style>
</head>
<body data-lecture="{html.escape(name)}" data-en="{html.escape(english)}" data-zh="{html.escape(chinese)}">
<header>{link}<span class="buttons"><button type="button" id="large" aria-pressed="false">\
{both("Large letters", "大字")}</button>
<button type="button" id="language"><span lang="en">中文</span><span lang="zh">English</span></button></span></header>
<main>
{body}
</main>
<script>{scripts}
{begin}</script>
</body>
</html>
"""


_RAISED = re.compile(r"([_^])(\(.*?\)|−?[\d.]+|&lt;\w|\w)")
"""What stands behind _ or ^: a bracket, a number, or one sign."""


def _formula(text: str) -> str:
    """A formula with what stands behind _ lowered, and raised behind ^."""
    tags = {"_": "sub", "^": "sup"}
    return _RAISED.sub(lambda found: f"<{tags[found[1]]}>{found[2].strip('()')}</{tags[found[1]]}>", html.escape(text))


def widget(name: str) -> str:
    """The figure that moves with a lecture, with its formula; empty where there is none."""
    found = words()["widget"].get(name)
    if not found:
        return ""
    kind, _, formula = found.partition(": ")
    recorded = ""
    if kind == "steps":
        kept = (Path(__file__).parent / "recorded.json").read_text("utf-8").replace("<", "\\u003c")
        recorded = f'<script type="application/json" id="recorded">{kept}</script>'
    return f"""<section class="widget">{recorded}<div class="formula" tabindex="0">{_formula(formula)}</div>
<div data-widget="{kind}"></div></section>"""


def picture(one: Lecture, name: str) -> str:
    """The picture inside of the page; what is missing, where it cannot be drawn."""
    try:
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "picture.svg"
            draw(one, file)
            inside = base64.b64encode(file.read_bytes()).decode("ascii")
    except DataError as error:
        return f"<p>{html.escape(str(error))}</p>"
    alternative = html.escape(f"{title(name)}: {about(name)}")
    return f'<img class="static" alt="{alternative}" src="data:image/svg+xml;base64,{inside}">'


def headed(english: str, chinese: str, inside: str) -> str:
    """A part of a page under its heading; empty where there is nothing in it."""
    return f"<h2>{both(english, chinese)}</h2>{inside}" if inside else ""


def table(numbers: Mapping[str, Value]) -> str:
    """A lecture's numbers."""

    def said(key: str, value: Value, language: str) -> tuple[str, str]:
        return label(key, language), shown(value, language)

    rows = (zip(said(key, value, "en"), said(key, value, "zh"), strict=True) for key, value in numbers.items())
    cells = ("".join(f"<td>{both(english, chinese)}</td>" for english, chinese in row) for row in rows)
    return f"<table><tbody>{''.join(f'<tr>{row}</tr>' for row in cells)}</tbody></table>"


def page(name: str, one: Lecture | Shown, language: str = "en") -> Page:
    """The page of a lecture, or of what a trained model does with its lines; a notebook shows it in a frame."""
    parts = [f'<p class="says">{both(about(name), about(name, "zh"))}</p>']
    parts.append(headed("Move it", "动手试一试", widget(name)))
    parts.append(headed("Computed by Regard", "由 Regard 算出", table(one.numbers)))
    if isinstance(one, Lecture):
        parts.append(headed("The picture", "图", picture(one, name)))
    titles, moves = (name, title(name), title(name, "zh")), name in words()["widget"]
    return Page(frame(titles, "\n".join(parts), back=True, script=moves, language=language))


def recorded() -> Shown:
    """A translation by a trained model, recorded word by word."""
    kept = json.loads((Path(__file__).parent / "recorded.json").read_text("utf-8"))
    numbers: dict[str, Value] = {key: kept[key] for key in ("line", "translation", "model")}
    return Shown(numbers | {"SHA-256 of its weights": kept["sha256"][:16]}, ())


def index(names: Sequence[str]) -> str:
    """The page that leads to the pages of these lectures."""
    moving = both("moves", "可动")
    items = "".join(
        f'<li><a href="{name}.html">{both(title(name), title(name, "zh"))}</a>'
        + (f' <span class="moves">{moving}</span>' if name in words()["widget"] else "")
        + f"<p>{both(about(name), about(name, 'zh'))}</p></li>"
        for name in names
    )
    return frame(("index", "The lectures", "讲义"), f'<ul class="list">{items}</ul>')


def write_index(place: Path, names: Sequence[str]) -> None:
    """Write index.html, which leads to the pages of these lectures, and the page of the recorded translation."""
    write_atomically(place / f"{RECORDED}.html", page(RECORDED, recorded()))
    write_atomically(place / "index.html", index([*names, RECORDED]))
