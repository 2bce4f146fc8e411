"""Makes regard/glyphs.otf: the characters of the built-in corpus that the font of matplotlib lacks, as a small font.

Run it when the corpus can make a new character, with the font of Debian's package fonts-noto-cjk:

    python tools/glyphs.py /usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc
"""

from __future__ import annotations

import sys
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTCollection

from regard.studies.demo.corpus import characters

OUT = Path(__file__).parent.parent / "regard" / "glyphs.otf"
FAMILY, OURS = "Noto Sans CJK SC", "Regard Glyphs"
MARKS = "␣…€→，。、：；？！“”（）"


def main(font_file: str) -> None:
    """Write the part of the font, under a name of its own so that it never stands in for the whole."""
    font = next(font for font in TTCollection(font_file) if font["name"].getDebugName(1) == FAMILY)
    options = Options(
        hinting=False, desubroutinize=True, layout_features=[], name_IDs=[0, 1, 2, 13, 14], notdef_outline=True
    )
    options.drop_tables += ["BASE", "VORG", "vhea", "vmtx"]
    subsetter = Subsetter(options)
    subsetter.populate(text="".join(characters()) + MARKS)
    subsetter.subset(font)
    for number, name in ((1, OURS), (4, OURS), (6, OURS.replace(" ", ""))):
        font["name"].setName(name, number, 3, 1, 0x409)
    font["CFF "].cff.fontNames = [OURS.replace(" ", "")]
    font["head"].modified = font["head"].created
    font.recalcTimestamp = False
    font.save(OUT)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
