"""Makes regard/apps/glyphs.json: the outlines of the characters that a heat map of the built-in corpus shows.

Run it when the corpus can make a new character, with fonttools installed and the fonts of Debian's fonts-noto-cjk:

    python tools/glyphs.py /usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fontTools.pens.svgPathPen import SVGPathPen
from fontTools.ttLib import TTCollection

from regard.studies.demo.corpus import characters

OUT = Path(__file__).parent.parent / "regard" / "apps" / "glyphs.json"
FAMILY = "Noto Sans CJK SC"
LATIN = {chr(code) for code in (*range(0x20, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))}
MARKS = set("␣…€→")


def main(font_file: str) -> None:
    """Write for each character its advance and its path, in thousandths of an em; y grows upwards."""
    font = next(font for font in TTCollection(font_file) if font["name"].getDebugName(1) == FAMILY)
    if font["head"].unitsPerEm != 1000:
        sys.exit(f"{FAMILY} has {font['head'].unitsPerEm} units to the em; the outlines must be in thousandths.")
    names, glyphs = font.getBestCmap(), font.getGlyphSet()
    shown = {}
    for character in sorted({c for c in characters() if not c.isspace()} | LATIN | MARKS):
        pen = SVGPathPen(glyphs, ntos=lambda number: str(round(number)))
        glyph = glyphs[names[ord(character)]]
        glyph.draw(pen)
        shown[character] = [round(glyph.width), pen.getCommands()]
    lines = ",\n".join(f"{json.dumps(c, ensure_ascii=False)}:{json.dumps(shown[c])}" for c in shown)
    head = json.dumps({"font": FAMILY})[:-1]
    OUT.write_text(f'{head},"glyphs":{{\n{lines}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
