"""Lines of words, each shaded by a weight, as SVG: what a word looks at, in the way of Cheng et al. 2016.

Letters are text in the viewer's fonts; each word is given its width, so that no font breaks the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.apps.heatmap import FONTS, GAP, NAMES, SIZE, colour, label, width_of, xml

if TYPE_CHECKING:
    from .trained import Word

__all__ = ["shades"]

_ROW = 24.0  # px from line to line
_NOTE = 0.75  # of the size of a word
_DARK = 0.55
"""From here on letters are white."""
_FAINT = 0.005
"""Below it nothing is drawn behind a word."""
_NOW = ' fill="#c0152f"'
_SMALLEST = 18.0  # px, of a cell that says nothing


def shades(lines: Sequence[Sequence[Word]], *, aligned: bool = True, title: str = "Attention") -> str:
    """A picture of lines of words, the darker the larger their share of the weight; red is the word that looks.

    `aligned`: what stands at one place of its line stands under each other. Longer lines make a wider picture.
    """
    widths = [[_width(word) for word in line] for line in lines]
    if aligned:
        count = max(map(len, widths))
        widest = [max(line[at] for line in widths if at < len(line)) for at in range(count)]
        widths = [widest[: len(line)] for line in widths]
    wide, tall = GAP * 2 + max(map(sum, widths)), GAP * 2 + _ROW * len(lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {wide:.0f} {tall:.0f}" '
        f'width="{wide:.0f}" height="{tall:.0f}" font-family="{FONTS}" font-size="{SIZE:g}" fill="#1b1f24">',
        f"<title>{xml(title)}</title>",
        f'<rect width="{wide:.0f}" height="{tall:.0f}" fill="#fff"/>',
    ]
    for row, (line, spans) in enumerate(zip(lines, widths, strict=True)):
        x, y = GAP, GAP + row * _ROW
        for word, span in zip(line, spans, strict=True):
            parts += _drawn(word, x, y, span)
            x += span
    return "\n".join([*parts, "</svg>\n"])


def _shown(text: str) -> str:
    """A token as heat maps show it; what is no token as it is."""
    return label(text) if text in NAMES or "\u2581" in text else text


def _width(word: Word) -> float:
    note = GAP / 2 + _NOTE * width_of(word.note) if word.note else 0.0
    return max(width_of(_shown(word.text)) + note + GAP if word.text else 0.0, _SMALLEST)


def _drawn(word: Word, x: float, y: float, span: float) -> list[str]:
    found = []
    if word.share >= _FAINT:
        found.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{span - 1:.1f}" height="{_ROW - 1:g}" fill="{colour(word.share)}">'
            f"<title>{word.share:.3f}</title></rect>"
        )
    pale = ' fill="#fff"' if word.share > _DARK else ""
    ink = f'{pale or _NOW} font-weight="bold"' if word.now else pale
    at, base = x + GAP / 2, y + _ROW * 0.7
    for text, size in ((_shown(word.text), 1.0), (word.note, _NOTE)):
        if text:
            long = width_of(text) * size
            small = f' font-size="{SIZE * size:g}"' if size != 1.0 else ""
            found.append(
                f'<text x="{at:.1f}" y="{base:.1f}"{small}{ink} textLength="{long:.1f}" '
                f'lengthAdjust="spacingAndGlyphs">{xml(text)}</text>'
            )
            at += long + GAP / 2
    return found
