"""What a worker of the cluster does: lines in, translations out, by a bundle that it keeps for its next shard."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from regard.errors import RegardError
from regard.search.table import Options
from regard.tasks.engine import stamp_of
from regard.tasks.lines import translate_long
from regard.tasks.translate import Translator, load
from regard.tasks.translation import Translation

_TOGETHER = 4096
Done = tuple[list[str], list[str], str]
"""Translations, and which lines' were cut off; or none, and what is wrong with the lines."""
_TRANSLATORS: dict[tuple[str, tuple[int, ...] | None], Translator] = {}


def translated(bundle: str, options: dict[str, object], split: bool, lines: list[str], first: int) -> Done:
    """The translations of lines, of which the first has this number in its file."""
    asked, found = Options.model_validate(options), list[Translation]()
    keep = asked.constraints
    whole = not isinstance(keep, tuple) and bool(keep.include or keep.prefix)  # phrases are of whole lines
    try:
        translator = _loaded(bundle)
        for start in range(0, len(lines), _TOGETHER):
            some, number = lines[start : start + _TOGETHER], first + start
            each = partial(translator.translate, options=asked, first_line=number)
            if whole:
                found += each(some)
            else:
                found += translate_long(translator, some, each, always=split, to=asked.to, first_line=number)
    except RegardError as error:
        return [], [], str(error)
    cut = [f"line {number}" for number, one in enumerate(found, first) if not one.ended]
    return [one.text for one in found], cut, ""


def _loaded(bundle: str) -> Translator:
    key = bundle, stamp_of(Path(bundle))
    if key not in _TRANSLATORS:
        _TRANSLATORS.clear()
        _TRANSLATORS[key] = load(bundle, device="cpu")
    return _TRANSLATORS[key]
