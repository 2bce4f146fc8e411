"""Where the words of a line stand, in any script: for showing which word is meant, not for a model to read."""

from __future__ import annotations

import unicodedata

from regard.text.sentences import unspaced

_WITHIN = {"'": "L", "\u2019": "L", "-": "L", "\u2010": "L", ".": "N", ",": "N", ":": "N"}
"""Marks that do not part a word: between letters, or between digits."""
_TIES = {"\u200c", "\u200d"}


def words(line: str) -> list[tuple[int, int]]:
    """The first character of each word and the one behind its last.

    A word is a run of letters and digits (*don't*, *two-year* and *3.5* are one), any other sign is one by itself, and
    so is each character of a script without spaces between words (see `unspaced`). Accents and the like, joiners and
    the parts of one emoji stay with what they follow; spaces belong to no word.
    """
    found: list[tuple[int, int]] = []
    running = ""  # what the last word goes on with: "" for nothing but what is tied to it
    for position, character in enumerate(line):
        kind = unicodedata.category(character)[0]
        touches = bool(found) and found[-1][1] == position
        if touches and (kind == "M" or character in _TIES or _tied(line, position)):
            found[-1] = (found[-1][0], position + 1)
            continue
        if kind in "ZC":
            running = ""
            continue
        letter = kind in "LN" and not unspaced(character)
        inside = touches and running and (letter or _parts_not(line, position, running))
        if inside:
            found[-1] = (found[-1][0], position + 1)
        else:
            found.append((position, position + 1))
        running = kind if letter else running if inside else ""
    return found


def _tied(line: str, position: int) -> bool:
    """Whether the character belongs to the emoji before it: a skin tone, or what a joiner joins."""
    return "\U0001f3fb" <= line[position] <= "\U0001f3ff" or line[position - 1] == "\u200d"


def _parts_not(line: str, position: int, running: str) -> bool:
    """Whether the mark stands within a word: behind a letter or digit (`running`) and before one of the same kind."""
    kind = _WITHIN.get(line[position])
    following = line[position + 1 : position + 2]
    return kind == running and bool(following) and unicodedata.category(following)[0] == kind
