"""The tokenizers of a run: learnt from its pairs, found as they were left, or those of the bundle it starts from."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from regard import bundle as bundles
from regard.errors import TextError
from regard.recipe import Recipe
from regard.settings.data import DataConfig
from regard.text.config import Kind, TextConfig
from regard.text.formats import Pair
from regard.text.languages import tag
from regard.text.tokenizer import Tokenizer

Progress = Callable[[str, int], None]
"""Called with what is being counted and how many so far."""
Given = tuple[Tokenizer | None, Tokenizer | None]

MOST_PAIRS = 2_000_000
"""Subwords need no more text than this, and learning them holds it in memory."""
_SIDES = ("source.model", "target.model")


class Notes:
    """What is known about the files in a directory, on disk: each entry with the fingerprint it holds for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            found = {}
        self.folder = path.parent
        self._entries: dict[str, Any] = found if isinstance(found, dict) else {}

    def get(self, name: str, fingerprint: str) -> Any:
        entry = self._entries.get(name)
        return entry["value"] if isinstance(entry, dict) and entry.get("fingerprint") == fingerprint else None

    def put(self, name: str, fingerprint: str, value: Any) -> None:
        self._entries[name] = {"fingerprint": fingerprint, "value": value}
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self._entries, indent=1) + "\n", "utf-8")
        os.replace(part, self.path)


def given_by(recipe: Recipe) -> Given:
    """The vocabularies of the bundle that training starts from; the labels of a classifier are the data's own."""
    if not recipe.train.start_from:
        return None, None
    bundle = bundles.load(recipe.train.start_from)
    return bundle.source, None if recipe.corpus.target_kind.one_token else bundle.target


def tokenizers(
    data: DataConfig,
    text: TextConfig,
    pairs: Iterable[Pair],
    notes: Notes,
    fingerprint: str,
    *,
    given: Given = (None, None),
    progress: Progress | None = None,
) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of both sides: those given, those beside `notes` if their fingerprint is the same, or new ones."""
    wanted: dict[str, tuple[Kind, tuple[int, ...]]] = {
        "source.model": (text.kind, (0,)),
        "target.model": (text.target_kind or text.kind, (1,)),
    }
    if given != (None, None):
        wanted = {name: wanted[name] for name, model in zip(_SIDES, given, strict=True) if model is None}
    elif text.joint or data.texts:
        wanted = {"subwords.model": (text.kind, (0, 1))}
    if (models := _known(notes.folder, list(wanted), notes.get("subwords", fingerprint))) is None:
        sample = _thinned(pairs, MOST_PAIRS)
        if progress is not None:
            progress("pairs to learn subwords from", len(sample))
        models = []
        for name, (kind, sides) in wanted.items():
            models.append(_learn([pair[side] for side in sides for pair in sample], kind, data, text))
            models[-1].save(notes.folder / name)
        notes.put("subwords", fingerprint, [model.digest for model in models])
    return given[0] or models[0], given[1] or models[-1]


def _known(folder: Path, names: list[str], digests: object) -> list[Tokenizer] | None:
    if not isinstance(digests, list) or len(digests) != len(names):
        return None
    try:
        models = [Tokenizer.load(folder / name) for name in names]
    except TextError:
        return None
    return models if [model.digest for model in models] == digests else None


def _learn(lines: list[str], kind: Kind, data: DataConfig, text: TextConfig) -> Tokenizer:
    tags = [tag(code) for code in data.target_languages]
    return Tokenizer.train(
        lines,
        size=text.size,
        kind=kind,
        symbols=list(dict.fromkeys([*tags, *text.symbols])),
        shrink=text.shrink,
        settings=text,
    )


def _thinned(pairs: Iterable[Pair], most: int) -> list[Pair]:
    """Every pair, or every 2nd, 4th, 8th … so that at most `most` are kept; spread evenly over the corpus."""
    kept: list[Pair] = []
    step = 1
    for index, pair in enumerate(pairs):
        if index % step == 0:
            kept.append(pair)
            if len(kept) > most:
                kept = kept[::2]
                step *= 2
    return kept
