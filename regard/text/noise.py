"""Mistakes that people make, put into lines that are trained on, so that they are translated in spite of them.

One more kind is one more entry of `NOISES`. What a recipe names, `text.noise = {typos = 0.1, case = 0.05}`, gives the
share of the lines that get it, drawn anew every epoch. Tokens in angle brackets, such as language tags, stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random

Noise = Callable[[str, str, Random], tuple[str, str]]
"""A source line, its target and what draws -> both with the mistake in them; mostly the source's alone."""

_SYMBOLS = re.compile(r"(<[^<>\s]+>)")
_NEIGHBOURS = {
    key: row[max(0, i - 1) : i] + row[i + 1 : i + 2]
    for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm", "1234567890")
    for i, key in enumerate(row)
}
_EMOJI = ("🙂", "😀", "😂", "😍", "😢", "👍", "🎉", "❤️", "🔥", "🙏")
_LETTERS_A_TYPO = 15
"""A line with mistakes has one for so many of its letters, and one at least."""


def typos(source: str, target: str, draw: Random) -> tuple[str, str]:
    """Letters swapped with the next, left out, written twice, or taken from beside them on the keyboard."""
    letters = list(source)
    places = [i for i, letter in enumerate(letters) if letter.isalnum()]
    for i in draw.sample(places, min(len(places), 1 + len(places) // _LETTERS_A_TYPO)):
        kind = draw.randrange(4)
        beside = _NEIGHBOURS.get(letters[i].lower(), "")
        if kind == 0 and i + 1 < len(letters) and len(letters[i + 1]) == 1:
            letters[i], letters[i + 1] = letters[i + 1], letters[i]
        elif kind == 1 and len(places) > 1:
            letters[i] = ""
        elif kind == 2 or not beside:
            letters[i] *= 2
        else:
            letters[i] = draw.choice(beside)
    return "".join(letters), target


def case(source: str, target: str, draw: Random) -> tuple[str, str]:
    """All of it in small letters, in capitals, or with capitals at the beginnings of words."""
    return draw.choice((str.lower, str.upper, str.title))(source), target


def punctuation(source: str, target: str, draw: Random) -> tuple[str, str]:
    """Marks at the end left out or written several times, or all marks inside of the line left out."""
    body = source.rstrip(".!?。！？…")
    mark = source[len(body) : len(body) + 1]
    kind = draw.randrange(3)
    if kind == 0 or not mark:
        return body or source, target
    return (body + mark * draw.randint(2, 4) if kind == 1 else re.sub(r"[,;:，；：、]", "", body) + mark), target


def spaces(source: str, target: str, draw: Random) -> tuple[str, str]:
    """A space more or less than there should be between two words."""
    places = [i for i, letter in enumerate(source) if letter == " "]
    if not places:
        return source, target
    i = draw.choice(places)
    return source[:i] + draw.choice(("", "  ")) + source[i + 1 :], target


def emoji(source: str, target: str, draw: Random) -> tuple[str, str]:
    """The same picture behind both lines, so that it is kept."""
    drawn = draw.choice(_EMOJI)
    return f"{source} {drawn}", f"{target} {drawn}"


NOISES: dict[str, Noise] = {"typos": typos, "case": case, "punctuation": punctuation, "spaces": spaces, "emoji": emoji}
"""What the keys of `text.noise` name."""


def check(shares: Mapping[str, float]) -> None:
    """Raises ValueError for a kind of noise that is not there, and for a share that is none."""
    for name, share in shares.items():
        if name not in NOISES:
            raise ValueError(f"noise has no {name!r}; choose among {', '.join(NOISES)}.")
        if not 0 <= share <= 1:
            raise ValueError(f"noise: {name} = {share} is no share of the lines; choose from 0 to 1.")


def noised(pair: tuple[str, str], shares: Mapping[str, float], draw: Random) -> tuple[str, str]:
    """Source and target with each kind of noise that is drawn for them, in the order in which `shares` names them."""
    source, target = pair
    for name, share in shares.items():
        if draw.random() >= share or not source.strip():
            continue
        parts = _SYMBOLS.split(source)
        longest = max(range(0, len(parts), 2), key=lambda i: len(parts[i]))  # every other part is a symbol
        parts[longest], target = NOISES[name](parts[longest], target, draw)
        source = "".join(parts)
    return source, target
