"""Masked text filled in, lines classified, and lines as vectors. Sizes: B lines, S tokens, D width, V vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import ModelError, TextError
from regard.models import FAMILIES
from regard.models.blocks import device_of
from regard.models.interface import Classifier, HasParameters, MaskedLM
from regard.nn.convolution import POOLS
from regard.nn.state import Layout
from regard.tasks.lines import pad
from regard.text import BEGIN, END, MASK, PAD, UNK

from .open import Pipeline, open_bundle


@dataclass(frozen=True)
class Choice:
    """A filling or a label, and how probable the model finds it."""

    text: str
    probability: float

    def __str__(self) -> str:
        return f"{self.text} {self.probability:.4f}"


@torch.inference_mode()
def fill(
    bundle: str | Path | Pipeline,
    lines: Sequence[str],
    *,
    top: int = 5,
    batch_size: int = 32,
    precision: str = "auto",
    device: str = "cpu",
) -> list[list[list[Choice]]]:
    """For each line and each `<mask>` in it the `top` likeliest tokens, best first; each mask is filled by itself.

    Raises TextError, naming the line, for one without a mask, and ModelError for a bundle that fills nothing in.
    """
    opened = open_bundle(bundle, ["reader"], device=device)
    rows = [_masked(opened, line, number) for number, line in enumerate(lines, start=1)]
    model = cast(MaskedLM, opened.model_for(precision))
    return [_likeliest(opened, chances, top) for chances in filled(model, rows, mask_of(opened), batch_size)]


def _batches(model: HasParameters, rows: Sequence[Sequence[int]], size: int) -> Iterator[tuple[Tensor, Layout]]:
    for start in range(0, len(rows), size):
        yield pad(rows[start : start + size], device_of(model))


def _likeliest(opened: Pipeline, chances: Tensor, top: int) -> list[list[Choice]]:
    """The choices of each row of probabilities (N, V), best first."""
    if top < 1:
        raise ModelError(f"top is {top}; it must be at least 1.")
    best = chances.topk(min(top, chances.shape[-1]))
    each = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [[Choice(opened.target.decode([i]), value) for i, value in zip(*pair, strict=True)] for pair in each]


@torch.inference_mode()
def filled(model: MaskedLM, rows: Sequence[Sequence[int]], mask: int, batch_size: int) -> list[Tensor]:
    """Of each row of ids the probabilities of the tokens at its masks, (masks, V); special ones have none."""
    found = []
    for ids, layout in _batches(model, rows, batch_size):
        hidden = model.encode(ids, layout)
        for row, states in zip(ids, hidden, strict=True):
            logits = model.project(states[row == mask])
            logits[:, [PAD, UNK, BEGIN, END, mask]] = float("-inf")
            found.append(logits.softmax(-1))
    return found


def _masked(opened: Pipeline, line: str, number: int) -> list[int]:
    """Ids of a line with its masks, each standing for a token: the space before one belongs to what it stands for."""
    parts = line.split(MASK)
    if len(parts) == 1:
        raise TextError(f"line {number} ({line[:40]!r}) has no {MASK}; write one where a token is to be filled in.")
    by_word = opened.recipe.text.kind != "characters"
    ids: list[int] = []
    for part in parts:
        text = part.strip(" ") if by_word else part
        ids += [*(opened.encode(text, number) if text else []), mask_of(opened)]
    ids[-1] = END
    opened.check_length(ids, number)
    return ids


def mask_of(opened: Pipeline) -> int:
    """The id of the mask; ModelError where the vocabulary has none."""
    mask = opened.source.id_of(MASK)
    if mask is None:
        raise ModelError(f"this bundle's vocabulary has no {MASK}; it was not trained to fill it in.")
    return mask


@torch.inference_mode()
def classify(
    bundle: str | Path | Pipeline,
    lines: Sequence[str],
    *,
    top: int = 0,
    batch_size: int = 32,
    precision: str = "auto",
    device: str = "cpu",
) -> list[list[Choice]]:
    """The labels of each line with their probabilities, likeliest first; the `top` likeliest, or all (0)."""
    opened = open_bundle(bundle, ["classifier"], device=device)
    chances = labels_of(cast(Classifier, opened.model_for(precision)), _whole(opened, lines), batch_size)
    found = _likeliest(opened, chances, top or chances.shape[-1])
    return [[choice for choice in choices if choice.probability > 0] for choices in found]


@torch.inference_mode()
def labels_of(model: Classifier, rows: Sequence[Sequence[int]], batch_size: int) -> Tensor:
    """Probabilities of the classes, (B, V), for rows of ids with their ends; special tokens are no class."""
    found = []
    for ids, layout in _batches(model, rows, batch_size):
        logits = model.project(model.classify(ids, layout))
        logits[:, [PAD, UNK, BEGIN, END]] = float("-inf")
        found.append(logits.softmax(-1))
    return torch.cat(found)


@torch.inference_mode()
def embed(
    bundle: str | Path | Pipeline,
    lines: Sequence[str],
    *,
    pool: str = "mean",
    batch_size: int = 32,
    precision: str = "auto",
    device: str = "cpu",
) -> NDArray[np.float32]:
    """A vector of each line, (B, D): the mean of the model's vectors over its positions, or the one at its end.

    An encoder-decoder gives its encoder's vectors; a language model's have seen the positions up to their own.
    """
    opened = open_bundle(bundle, ["encoder-decoder", "language-model", "reader", "classifier"], device=device)
    if pool not in POOLS:
        raise ModelError(f"pool {pool!r} is unknown; choose {' or '.join(POOLS)}.")
    rows = _whole(opened, lines)
    model: Any = opened.model_for(precision)
    family = FAMILIES[opened.recipe.model.family]
    if not family.vectors:
        others = ", ".join(name for name, each in FAMILIES.items() if each.vectors)
        raise ModelError(
            f'model.family = "{opened.recipe.model.family}" keeps no tensor of a vector for each position, so there is '
            f"nothing to pool; take one of {others}."
        )
    found = []
    for ids, layout in _batches(model, rows or [[END]], batch_size):  # no lines have vectors of that size too
        writes = family.kind == "language-model"
        hidden = model.decode(ids, model.start(), layout)[0] if writes else model.encode(ids, layout)
        found.append(POOLS[pool](hidden, layout).float().cpu().numpy())
    return np.concatenate(found)[: len(rows)]


def _whole(opened: Pipeline, lines: Sequence[str]) -> list[list[int]]:
    rows = []
    for number, line in enumerate(lines, start=1):
        rows.append([*opened.encode(line, number), END])
        opened.check_length(rows[-1], number)
    return rows
