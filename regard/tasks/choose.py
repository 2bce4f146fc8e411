"""A recipe for raw parallel text, from the size of the data and the machine: what `regard train SOURCE TARGET` runs.

Rules of thumb, not results: with more time, `val` decides better. Each choice comes with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard import recipe as recipes
from regard.data.store import pairs_of
from regard.recipe import Recipe
from regard.settings import DataConfig

_CHARACTERS_A_TOKEN = 3.5
_SAMPLE = 200_000


@dataclass(frozen=True)
class _Size:
    """What a Transformer gets for up to `pairs` pairs of lines."""

    pairs: float
    width: int
    feedforward: int
    layers: int
    heads: int
    dropout: float
    tokens: int
    epochs: int


_SIZES = (
    _Size(5_000, 128, 512, 2, 4, 0.3, 1_000, 120),
    _Size(20_000, 256, 512, 3, 4, 0.3, 4_000, 60),
    _Size(100_000, 256, 1024, 3, 4, 0.3, 8_000, 40),
    _Size(1_000_000, 512, 1024, 6, 8, 0.2, 16_000, 30),
    _Size(float("inf"), 512, 2048, 6, 8, 0.1, 32_000, 10),
)
_WIDEST_ON_CPU = 256


@dataclass
class Counts:
    """What was counted in a corpus; characters are counted in its first 200,000 pairs."""

    pairs: int
    characters: int  # of the longer side, estimated for the whole corpus
    alphabet: int  # different characters on both sides
    shared: float  # of the target's letters, how many the source uses too


@dataclass(frozen=True)
class Choice:
    """A recipe, and why it is as it is."""

    recipe: Recipe
    reasons: tuple[str, ...]


def choose(data: DataConfig, *, name: str = "", gpu: bool | None = None) -> Choice:
    """A recipe for the files of `data`, all of which are read once; `gpu` None asks the machine.

    Raises TextError, naming file and line, for text that cannot be used.
    """
    gpu = torch.cuda.is_available() if gpu is None else gpu
    counts = count(data)
    size = next(s for s in _SIZES if counts.pairs <= s.pairs)
    body = size if gpu or size.width <= _WIDEST_ON_CPU else next(s for s in _SIZES[::-1] if s.width <= _WIDEST_ON_CPU)
    joint = counts.shared >= 0.5
    batch_tokens = 16_384 if gpu else 4096 if counts.pairs > 5_000 else 2048
    epoch = max(1, round((counts.characters / _CHARACTERS_A_TOKEN + counts.pairs) / batch_tokens))
    updates = min(100_000, max(600, size.epochs * epoch))
    often = min(1000, max(50, epoch))
    tables: dict[str, object] = {
        "name": name,
        "data": {**data.model_dump(mode="json", exclude_defaults=True), "batch_tokens": batch_tokens},
        "text": {
            "size": size.tokens,
            "joint": joint,
            "shrink": True,
            "character_coverage": 0.9995 if counts.alphabet > size.tokens // 4 else 1.0,
            "sampling": 0.1 if counts.pairs <= 100_000 else 0.0,
        },
        "model": {
            "width": body.width,
            "feedforward": body.feedforward,
            "encoder_layers": body.layers,
            "decoder_layers": body.layers,
            "heads": body.heads,
            "dropout": size.dropout,
            "share": "all" if joint else "target",
        },
        "train": {
            "max_updates": updates,
            "schedule": "inverse-sqrt",
            "learning_rate": {128: 2e-3, 256: 1.5e-3}.get(body.width, 7e-4),
            "warmup": min(4000, max(100, updates // 10)),
            "average": "ema",
            "keep": "best",
            "patience": 10,
            "validate_every": often,
            "save_every": often,
            "log_every": max(1, min(50, often // 5)),
        },
    }
    return Choice(recipes.validate(tables), tuple(_reasons(counts, body, size, joint, gpu, updates)))


def count(data: DataConfig) -> Counts:
    """Read all pairs of the training files; every line is checked on the way."""
    sides: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    pairs = 0
    for pairs, pair in enumerate(pairs_of(data), start=1):
        for side, line in zip(sides, pair, strict=True) if pairs <= _SAMPLE else ():
            side.update(line)
    longer = max(side.total() for side in sides) * pairs // max(1, min(pairs, _SAMPLE))
    letters = Counter({letter: n for letter, n in sides[1].items() if letter.isalpha()})
    shared = sum(n for letter, n in letters.items() if letter in sides[0])
    return Counts(pairs, longer, len({*sides[0], *sides[1]}), shared / letters.total() if letters else 1.0)


def _reasons(counts: Counts, body: _Size, size: _Size, joint: bool, gpu: bool, updates: int) -> Sequence[str]:
    reasons = [
        f"{counts.pairs:,} pairs: {size.tokens:,} tokens, dropout {size.dropout}, "
        f"at most {size.epochs} epochs (about {updates:,} updates), stopping when validation no longer gains",
        f"{body.layers} + {body.layers} layers of width {body.width}"
        + ("" if gpu or body is size else ", not more, because there is no GPU here"),
        f"{counts.shared:.0%} of the target's letters occur in the source: "
        + ("one vocabulary for both" if joint else "a vocabulary for each side"),
    ]
    if counts.alphabet > size.tokens // 4:
        reasons.append(f"{counts.alphabet:,} different characters: the rarest 0.05 % of the text is spelt in bytes")
    return reasons
