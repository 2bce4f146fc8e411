"""Attention weights as a heat map: in the terminal, as SVG and as a page of HTML. Source on columns, target on rows.

SVG and HTML need nothing but themselves: no network, no script, and no font either, because the characters of the
built-in corpus (Chinese ones above all) are drawn as outlines. A character without an outline is left to the viewer's
fonts. In HTML the real text lies over the outlines, invisible, so that it can be selected, copied and read aloud.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from unicodedata import east_asian_width

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.text import Text

__all__ = ["HeatMap", "colour", "from_fonts", "html", "label", "svg", "terminal", "width_of", "xml"]

Weights = NDArray[np.float64]  # (T, S): T target tokens, S source tokens

CELL = 26.0  # px, the side of a cell
SIZE = 15.0  # px, the height of a label's em
GAP = 7.0
SLANT = 60.0  # degrees that column labels rise by
LEGEND = 64.0
# ColorBrewer's Blues: lightness falls evenly, so it can be told apart in grey and by the colour-blind.
BLUES = ("#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b")
FONTS = "'Noto Sans','Noto Sans CJK SC','PingFang SC','Microsoft YaHei',sans-serif"
SHADES = " ░▒▓█"
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
NAMES = {"<s>": "begin", "</s>": "end", "<unk>": "unknown", "<pad>": "padding"}


@dataclass(frozen=True)
class HeatMap:
    """Weights (T, S) in [0, 1], with a label for each source and each target token; Rich can print it."""

    weights: Weights
    source: tuple[str, ...]
    target: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Columns that do not fit follow in a further block."""
        margin = max((cell_len(token) for token in self.target), default=0) + 1
        across = max(1, (options.max_width - margin) // 2)
        for first in range(0, len(self.source), across):
            yield from _block(self, range(first, min(first + across, len(self.source))), margin)
            yield Text()
        yield _legend(self.weights)


def terminal(weights: ArrayLike, source_tokens: Sequence[str], target_tokens: Sequence[str]) -> HeatMap:
    """What Rich prints as a heat map of weights (T, S); shades stand in where the terminal has no colours.

    Raises ValueError if the weights are not (T, S) for these tokens, or are not numbers in [0, 1].
    """
    matrix = np.asarray(weights, dtype=np.float64)
    expected = (len(target_tokens), len(source_tokens))
    if matrix.shape != expected:
        raise ValueError(f"weights are {matrix.shape}, and must be (target tokens, source tokens), here {expected}.")
    if not bool(((matrix >= 0) & (matrix <= 1 + 1e-3)).all()):  # a float16 row may sum to a little over 1
        raise ValueError("weights must be numbers from 0 to 1; scores before the softmax are not weights.")
    return HeatMap(matrix, tuple(map(label, source_tokens)), tuple(map(label, target_tokens)))


def label(token: str) -> str:
    """How a token is shown: the space that begins a word is dropped, any other space is drawn as ␣."""
    if token in NAMES:
        return NAMES[token]
    text = token.replace("\u2581", " ")
    text = text[1:] if text.startswith(" ") and text.strip(" ") else text
    return "".join("␣" if character.isspace() else character for character in text) or "␣"


# --- terminal ---------------------------------------------------------------------------------------------------------


def _block(heat: HeatMap, columns: range, margin: int) -> Iterator[Text]:
    tall = max((len(heat.source[column]) for column in columns), default=0)
    for line in range(tall):
        row = Text(" " * margin, no_wrap=True, end="\n")
        for column in columns:
            token = heat.source[column].rjust(tall)[line]
            row.append(token if east_asian_width(token) in "WF" else token + " ")
        yield row
    for target, token in enumerate(heat.target):
        row = Text(" " * (margin - 1 - cell_len(token)) + token + " ", no_wrap=True)
        for column in columns:
            row.append(*_shade(heat.weights[target, column], _top(heat.weights)))
        yield row


def _shade(weight: float, top: float) -> tuple[str, Style]:
    """Two characters that show a weight by colour, and without colours by their density."""
    ink = colour(weight / top)
    return SHADES[min(int(weight / top * len(SHADES)), len(SHADES) - 1)] * 2, Style(color=ink, bgcolor=ink)


def _legend(weights: Weights) -> Text:
    top = _top(weights)
    text = Text("0 ", no_wrap=True)
    for step in range(len(SHADES)):
        text.append(*_shade(step / (len(SHADES) - 1) * top, top))
    return text.append(f" {top:.2f}")


# --- colours ----------------------------------------------------------------------------------------------------------


def _top(weights: Weights) -> float:
    """The weight of the darkest colour: the largest there is."""
    return float(weights.max(initial=0.0)) or 1.0


def colour(share: float) -> str:
    """The colour of a share in [0, 1] of the largest weight, between the nearest two of BLUES."""
    at = min(max(share, 0.0), 1.0) * (len(BLUES) - 1)
    low = min(int(at), len(BLUES) - 2)
    pair = [[int(colour[place : place + 2], 16) for place in (1, 3, 5)] for colour in BLUES[low : low + 2]]
    return "#" + "".join(f"{round(a + (b - a) * (at - low)):02x}" for a, b in zip(*pair, strict=True))


# --- glyphs -----------------------------------------------------------------------------------------------------------


@cache
def _glyphs() -> dict[str, tuple[float, str]]:
    """For each character with an outline, its advance and its path, in thousandths of an em; y grows upwards."""
    document = json.loads((files("regard.apps") / "glyphs.json").read_text(encoding="utf-8"))
    return {character: (advance, path) for character, (advance, path) in document["glyphs"].items()}


def _advance(character: str) -> float:
    """How far a character moves the next one, in em."""
    if character in _glyphs():
        return _glyphs()[character][0] / 1000
    return 1.0 if east_asian_width(character) in "WF" else 0.6


def width_of(text: str) -> float:
    """How wide a text is drawn, in px."""
    return SIZE * sum(map(_advance, text))


def _outlines(text: str) -> str:
    """SVG of a text that begins at (0, 0) of its baseline, without any font where the outlines allow."""
    parts, at, scale = [], 0.0, SIZE / 1000
    for character in text:
        if character in _glyphs():
            path = _glyphs()[character][1]
            if path:
                parts.append(f'<path transform="translate({at:.1f} 0) scale({scale:g} {-scale:g})" d="{path}"/>')
        else:
            length = _advance(character) * SIZE
            parts.append(
                f'<text x="{at:.1f}" font-size="{SIZE:g}" font-family="{FONTS}" textLength="{length:.1f}" '
                f'lengthAdjust="spacingAndGlyphs">{xml(character)}</text>'
            )
        at += _advance(character) * SIZE
    return "".join(parts)


def xml(text: str) -> str:
    """Text as XML can hold it: control characters, which no XML file may have, become U+FFFD."""
    return escape(NOT_XML.sub("\ufffd", text))


# --- svg --------------------------------------------------------------------------------------------------------------


def svg(
    weights: ArrayLike, source_tokens: Sequence[str], target_tokens: Sequence[str], *, title: str = "Attention"
) -> str:
    """A picture as one SVG file: source on columns, target on rows, the number of each cell when pointed at."""
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + _figure(
        terminal(weights, source_tokens, target_tokens), title, ' xmlns="http://www.w3.org/2000/svg"'
    )


def from_fonts(picture: str) -> list[str]:
    """The characters of a picture of `svg` that have no outline, so that fonts must draw them."""
    return sorted(set(re.findall(r'lengthAdjust="spacingAndGlyphs">([^<]+)</text>', picture)))


def _figure(heat: HeatMap, title: str, namespace: str = "") -> str:
    rows, columns = heat.weights.shape
    rise = np.sin(np.radians(SLANT))
    left = GAP * 2 + max(map(width_of, heat.target), default=0.0)
    above = GAP * 2 + SIZE + float(rise) * max(map(width_of, heat.source), default=0.0)
    # The last labels lean out over the right edge.
    lean = max(
        (column * CELL + width_of(text) * np.cos(np.radians(SLANT)) for column, text in enumerate(heat.source)),
        default=0.0,
    )
    width = left + max(columns * CELL, float(lean) + CELL) + GAP * 2 + LEGEND
    height = above + max(rows * CELL, 4 * CELL) + GAP * 2
    parts = [
        f'<svg{namespace} role="img" aria-label="{xml(title)}: {xml(_spoken(heat))}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">',
        f"<title>{xml(title)}</title>",
        f"<desc>{xml(_spoken(heat))}</desc>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
        *_labels(heat, left, above),
        *_cells(heat, left, above),
        *_bar(heat, width - LEGEND, above),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _labels(heat: HeatMap, left: float, above: float) -> Iterator[str]:
    yield '<g class="source" fill="#1b1f24">'
    for column, text in enumerate(heat.source):
        x, y = left + (column + 0.5) * CELL + SIZE * 0.3, above - GAP
        yield f'<g transform="translate({x:.1f} {y:.1f}) rotate({-SLANT:g})" aria-label="{xml(text)}">'
        yield _outlines(text) + "</g>"
    yield '</g>\n<g class="target" fill="#1b1f24">'
    for row, text in enumerate(heat.target):
        x, y = left - GAP - width_of(text), above + (row + 0.5) * CELL + SIZE * 0.35
        yield f'<g transform="translate({x:.1f} {y:.1f})" aria-label="{xml(text)}">{_outlines(text)}</g>'
    yield "</g>"


def _cells(heat: HeatMap, left: float, above: float) -> Iterator[str]:
    top = _top(heat.weights)
    yield '<g class="weights" stroke="#fff" stroke-width="1">'
    for row, target in enumerate(heat.target):
        for column, source in enumerate(heat.source):
            weight = float(heat.weights[row, column])
            yield (
                f'<rect x="{left + column * CELL:.1f}" y="{above + row * CELL:.1f}" width="{CELL:g}" height="{CELL:g}" '
                f'fill="{colour(weight / top)}"><title>{xml(target)} ← {xml(source)}: {weight:.3f}</title></rect>'
            )
    yield "</g>"


def _bar(heat: HeatMap, x: float, above: float) -> Iterator[str]:
    """The scale: what the darkest and the lightest colour mean."""
    top, steps, step = _top(heat.weights), len(BLUES), 4 * CELL / len(BLUES)
    yield '<g class="legend" fill="#1b1f24">'
    for place, colour in enumerate(reversed(BLUES)):
        yield f'<rect x="{x:.1f}" y="{above + place * step:.1f}" width="14" height="{step + 0.5:.1f}" fill="{colour}"/>'
    for text, y in ((f"{top:.2f}", above + SIZE * 0.7), ("0", above + steps * step)):
        yield f'<g transform="translate({x + 14 + GAP:.1f} {y:.1f}) scale(0.8)">{_outlines(text)}</g>'
    yield "</g>"


def _spoken(heat: HeatMap) -> str:
    """The picture in words: where each target token looks most."""
    if not heat.weights.size:
        return "no weights"
    looks = heat.weights.argmax(axis=1)
    pairs = ", ".join(f"{token} at {heat.source[int(at)]}" for token, at in zip(heat.target, looks, strict=True))
    return f"each target token looks most: {pairs}"


# --- html -------------------------------------------------------------------------------------------------------------

STYLE = """
:root{color-scheme:light}
body{margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1b1f24;background:#fff;font:16px/1.5 FONTS}
h1{font-size:1.4rem}
figure{margin:1.5rem 0;overflow-x:auto}
figcaption,summary{color:#57606a}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1rem}
dd{margin:0}
.line,.token{position:relative;display:inline-block;white-space:pre}
.line .real,.token .real{position:absolute;left:0;top:0;width:100%;height:100%;overflow:hidden;color:transparent;
font-size:15px}
.real::selection{background:#9ecae199;color:transparent}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.8rem}
th,td{padding:.15rem .35rem;text-align:right;border:1px solid #eaeef2}
""".replace("FONTS", FONTS)


def html(
    weights: ArrayLike,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    *,
    title: str = "Attention",
    source: str = "",
    target: str = "",
) -> str:
    """A page that holds all it needs: both lines, the picture, and the weights as a table of numbers."""
    heat = terminal(weights, source_tokens, target_tokens)
    lines = [("source", source or _joined(source_tokens)), ("target", target or _joined(target_tokens))]
    shown = "\n".join(f"<dt>{name}</dt><dd>{_overlaid(text, 'line')}</dd>" for name, text in lines)
    caption = "Source on columns, target on rows; a row is where the model looked while it wrote that token."
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">\n<title>{xml(title)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{xml(title)}</h1>\n<dl>\n{shown}\n</dl>\n"
        f"<figure>\n{_figure(heat, title)}<figcaption>{caption}</figcaption>\n</figure>\n"
        f'<details>\n<summary>The weights as numbers</summary>\n<div class="scroll">\n{_table(heat)}\n</div>\n'
        f"</details>\n</main>\n</body>\n</html>\n"
    )


def _joined(tokens: Sequence[str]) -> str:
    return "".join(token for token in tokens if token not in NAMES).replace("\u2581", " ").strip()


def _table(heat: HeatMap) -> str:
    """Numbers on their colours; the darker half gets white digits."""
    top = _top(heat.weights)
    head = "".join(f'<th scope="col">{_overlaid(text, "token")}</th>' for text in heat.source)
    rows = [f"<table>\n<thead><tr><td></td>{head}</tr></thead>\n<tbody>"]
    for text, weights in zip(heat.target, heat.weights, strict=True):
        numbers = "".join(
            f'<td style="background:{colour(weight / top)}{";color:#fff" if weight / top > 0.55 else ""}">'
            f"{weight:.2f}</td>"
            for weight in map(float, weights)
        )
        rows.append(f'<tr><th scope="row">{_overlaid(text, "token")}</th>{numbers}</tr>')
    return "\n".join([*rows, "</tbody>\n</table>"])


def _overlaid(text: str, kind: str) -> str:
    """Outlines to see, with the real text over them to select and to read aloud."""
    width, tall = width_of(text), SIZE * 1.3
    return (
        f'<span class="{kind}"><svg aria-hidden="true" width="{width:.0f}" height="{tall:.0f}" '
        f'viewBox="0 {-SIZE:g} {width:.1f} {tall:g}" fill="#1b1f24">{_outlines(text)}</svg>'
        f'<span class="real">{xml(text)}</span></span>'
    )
