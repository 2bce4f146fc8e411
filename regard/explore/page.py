"""The explorer's page: one file that needs nothing else, or the frame that a server fills."""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from regard import pictures

from .exploration import Exploration

if TYPE_CHECKING:
    from .look import Attention, Part, Side
    from .search import Node
    from .steps import Step

Run = dict[str, Any]
"""What the page is told of one exploration, as JSON."""
FINE = 1_000_000
"""Weights of a page up to which each has 16 bits; 8 beyond."""
_IMPORT = re.compile(r'^import (?:(\{[^}]*\}) from )?"\./([\w-]+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function) ([\w$]+))", re.MULTILINE)


class Page(str):
    """HTML as text, which a notebook shows in a frame."""

    def _repr_html_(self) -> str:
        frame = 'sandbox="allow-scripts allow-downloads" style="width:100%;height:48rem;border:0"'
        return f'<iframe srcdoc="{escape(self)}" {frame}></iframe>'


def page(*explored: Attention | Exploration, language: str = "en") -> Page:
    """One file of HTML that needs nothing else: what was explored, or two side by side, in all its views.

    Weights have 16 bits, or 8 where there are more than a million; `Attention.to_json` has all digits.
    """
    runs = [run_of(each if isinstance(each, Exploration) else Exploration(each)) for each in explored]
    data = []
    for number, run in enumerate(runs):
        for part in run.get("parts", ()):  # weights are read when they are shown, which a large page needs
            part["from"] = f"weights-{number}-{part['name']}"
            data.append(f'<script type="text/plain" id="{part["from"]}">{part.pop("data")}</script>')
    style = f"<style>\n{_read('page.css')}</style>"
    return Page(_filled(about(runs, language=language), style, f"<script>\n{inlined('main.js')}</script>", data))


def served(folder: str, *, language: str = "en") -> str:
    """The page as a server gives it, whose files are in this folder; it asks for what it shows."""
    style = f'<link rel="stylesheet" href="{folder}/page.css">'
    return _filled(
        about([], language=language, server=True), style, f'<script type="module" src="{folder}/main.js"></script>'
    )


def about(runs: Sequence[Run], *, language: str = "en", server: bool = False) -> dict[str, object]:
    """All that the page's modules are told."""
    return {"language": language, "server": server, "colours": pictures.BLUES, "runs": runs}


def run_of(explored: Exploration) -> Run:
    """Plain values for the page's views; weights are base64 of whole numbers, little-endian."""
    run: Run = {"name": explored.name, "source": "", "target": ""}
    if (steps := explored.steps) is not None:
        run |= {"source": steps.source, "target": steps.target, "steps": [*map(_step, steps.steps)]}
    if (tree := explored.search) is not None:
        run["search"] = {"width": tree.width, "penalty": tree.penalty, "alpha": tree.alpha}
        run["search"]["nodes"] = [
            {**vars(node), "token": pictures.label(node.token), **_rounded(node, "total", "score", "log_probability")}
            for node in tree.nodes
        ]
    if (found := explored.attention) is not None:
        bits = 16 if sum(part.weights.size for part in found.parts) <= FINE else 8
        run |= {key: getattr(found, key) for key in ("source", "target", "unit")}
        run["parts"] = [_part(part, bits) for part in found.parts]
    if (gold := explored.gold) is not None:
        run["gold"] = {"sure": sorted(gold.sure), "possible": sorted(gold.possible)}
    return run


def _rounded(values: Node | Step, *names: str) -> dict[str, float]:
    return {name: round(getattr(values, name), 6) for name in names}


def _step(step: Step) -> dict[str, object]:
    alternatives = [[pictures.label(each.token), round(each.probability, 6)] for each in step.alternatives]
    figures = {**_rounded(step, "log_probability", "entropy"), "rank": step.rank, "alternatives": alternatives}
    return {"token": pictures.label(step.token), "probability": round(math.exp(step.log_probability), 6), **figures}


def _part(part: Part, bits: int) -> dict[str, object]:
    import numpy as np

    levels = np.rint(part.weights.clip(0, 1) * (2**bits - 1)).astype("<u2" if bits == 16 else "u1")
    sides = {"rows": _side(part.rows), "columns": _side(part.columns)}
    return {
        "name": part.name,
        "shape": part.weights.shape,
        "bits": bits,
        **sides,
        "data": b64encode(levels.tobytes()).decode(),
    }


def _side(side: Side) -> dict[str, object]:
    """Names as they are shown, and of each token the words that it belongs to, with its shares in them."""
    import numpy as np

    return {
        "names": [*map(pictures.label, side.names)],
        "words": [*map(pictures.label, side.words)],
        "numbers": side.numbers,
        "shares": [
            [[word, round(float(row[word]), 6)] for word in np.flatnonzero(row).tolist()] for row in side.shares
        ],
    }


# -- putting it together -----------------------------------------------------------------------------------------------


def _filled(told: Mapping[str, object], style: str, script: str, data: Sequence[str] = ()) -> str:
    # No text may end the script that it stands in.
    plain = json.dumps(told, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    data = [f'<script type="application/json" id="about">{plain}</script>', *data]
    parts = {"STYLE": style, "DATA": "\n".join(data), "SCRIPT": script}
    return re.sub("<!--(STYLE|DATA|SCRIPT)-->", lambda found: parts[found[1]], _read("index.html"))


@cache
def inlined(main: str) -> str:
    """A module of the page and all that it imports as one script, each in a scope of its own."""
    order: list[str] = []

    def visit(name: str) -> None:
        for needed in (found[2] for found in _IMPORT.finditer(_read(name))):
            if needed not in order:
                visit(needed)
        order.append(name)

    visit(main)
    return '"use strict";\nconst modules = {};\n' + "\n".join(map(_scoped, order))


def _scoped(name: str) -> str:
    """A module as a function that is called at once, what it exports as what that returns."""
    text = _read(name)
    exported = _EXPORT.findall(text)
    text = _IMPORT.sub(lambda found: f'const {found[1]} = modules["{found[2]}"];' if found[1] else "", text)
    text = _EXPORT.sub("", text)
    return f'modules["{name}"] = (() => {{\n{text}\nreturn {{{", ".join(exported)}}};\n}})();'


def _read(name: str) -> str:
    return (files("regard.explore") / "web" / name).read_text(encoding="utf-8")
