"""What goes wrong with translations and can be seen: words over and over, and numbers or addresses that are lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from regard.search.table import Options
from regard.tasks.translation import Translation
from regard.terminology.constraints import PLACEHOLDER
from regard.text.sentences import words

Translate = Callable[[Sequence[str], Options], list[Translation]]
MOST_AGAIN = 3
"""How often the same words may follow themselves where the source does not do so too."""
_LONGEST = 8
_NO_REPEAT = 3
"""`search.no_repeat_ngram_size` of the second search."""
_KEPT = re.compile(
    PLACEHOLDER.pattern + r"|[\w.+-]+@[\w-]+\.[\w.-]*\w"  # addresses of people
    r"|\d+(?:[.,:\u00a0\u202f']\d+)*"
)


def repeats(text: str) -> int:
    """How many times some words follow themselves at most: 1 where none do. Of one character, words are characters."""
    found = [word for start, end in words(text) if (word := text[start:end].casefold()).isalnum()]
    most = 1
    for size in range(1, min(_LONGEST, len(found) // 2) + 1):
        run = 0
        for at in range(size, len(found)):
            run = run + 1 if found[at] == found[at - size] else 0
            most = max(most, 1 + run // size)
    return most


def is_degenerate(source: str, found: Translation) -> bool:
    """Whether words are repeated that the source does not repeat, or the translation never came to an end."""
    return not found.ended or repeats(found.text) > max(MOST_AGAIN, repeats(source))


def guarded(
    lines: Sequence[str], found: Sequence[Translation], translate: Translate, options: Options
) -> list[Translation]:
    """The translations, those that are degenerate searched again without repetition, if that helps.

    `translate` is given the lines and the options of the second search.
    """
    again = [i for i, line in enumerate(lines) if is_degenerate(line, found[i])]
    if not again or "no_repeat_ngram_size" in options.search:
        return list(found)
    made = list(found)
    for i, one in zip(
        again, translate([lines[i] for i in again], Options.of(options, no_repeat_ngram_size=_NO_REPEAT)), strict=True
    ):
        if not is_degenerate(lines[i], one):
            made[i] = one
    return made


def lost(source: str, text: str) -> list[str]:
    """Numbers, addresses and placeholders that the translation has less often; 1,000 and 1.000 are the same."""
    there = Counter(map(_plain, _KEPT.findall(text)))
    missing = []
    for each in _KEPT.findall(source):
        if there[_plain(each)] > 0:
            there[_plain(each)] -= 1
        else:
            missing.append(each)
    return missing


def _plain(each: str) -> str:
    return re.sub(r"\D", "", each) if each[0].isdigit() else each
