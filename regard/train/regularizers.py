"""Regularisers: what training is given beside the loss. One more is one more entry of `REGULARIZERS`.

A recipe names those that it wants with a strength each: `train.regularizers = {word-dropout = 0.1}`.
Sizes: V vocabulary, N targets, B lines, T queries, S keys, H heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.errors import ModelError
from regard.extensions import entry as found
from regard.nn.positions import scale_rows
from regard.text.tokenizer import END, UNK

from .objectives import Inputs, Model, Outputs


@dataclass(frozen=True)
class Counts:
    """How often each token occurs in the text that is trained on."""

    read: Tensor  # (V,) of the side that is read; the ends of lines count 0, since they are no words
    written: Tensor  # (V,) of the targets, the ends of lines included


@dataclass(frozen=True)
class Regularizer:
    """What the rest of the program needs to know of a regulariser; parts that it does not need are left out.

    Each part is given what `prepare` made of the strength, or without one the strength as a tensor.
    """

    description: str  # what its strength means
    prepare: Callable[[float, Counts], Tensor] | None = None
    """Made once, before training, from the strength and the counts of the tokens."""
    model: Callable[[Tensor, nn.Module], None] | None = None
    """Changes the model before training; parameter names must stay."""
    inputs: Callable[[Tensor, Inputs], Inputs] | None = None  # changes each batch that is trained on
    weigh: Callable[[Tensor, Tensor], Tensor] | None = None
    """Targets (N,), those below 0 set to 0 -> what each counts in the loss, (N,)."""
    add: Callable[[Tensor, Model, Outputs], Tensor] | None = None
    """The model and what it computed -> what is added to the summed loss. It shows in the gradient, not in the log."""
    attention: bool = False  # whether `add` needs the attention weights, which takes the slower way of computing them


@dataclass(frozen=True)
class Term:
    """A regulariser with what was prepared for it."""

    entry: Regularizer
    value: Tensor


def terms_of(strengths: Mapping[str, float], counts: Counts | None, device: torch.device) -> list[Term]:
    """The regularisers that a recipe asks for, made ready on a device; those of strength 0 are left out."""
    terms = []
    for name, strength in strengths.items():
        entry = found(REGULARIZERS, name, "train.regularizers", ModelError)
        if not strength:
            continue
        if entry.prepare and counts is None:
            raise ModelError(f"train.regularizers: {name} needs to know how often each token occurs; give its counts.")
        value = entry.prepare(strength, counts) if entry.prepare and counts else torch.tensor(strength)
        terms.append(Term(entry, value.to(device)))
    return terms


def rarity(counts: Tensor, half: float) -> Tensor:
    """a / (a + p) of each token's share p, (V,): 1 of what never occurs, a half at a share of a = `half`.

    Arora et al. 2017 weight the words of a sentence by it.
    """
    share = counts.double() / counts.sum()
    return (half / (half + share)).float()


def token_weights(counts: Tensor, half: float) -> Tensor:
    """What a target of each token counts in the loss (Gu et al. 2020), (V,): its rarity, 1 on average."""
    weights = rarity(counts, half).double()
    return (weights * counts.sum() / (counts * weights).sum()).float()


def _attention_cost(cost: Tensor, model: Model, outputs: Outputs) -> Tensor:
    """What the targets pay for where their line's queries attended: the mean over layers, heads and queries."""
    if not outputs.weights:
        raise ModelError(
            "train.regularizers: attention-cost is a cost of attention, and this model has no attention; leave it out."
        )
    x = outputs.inputs
    queries = x.layout("source" if outputs.attention == "encoder" else "target")
    keys, ids = (x.layout("target"), x.tokens) if outputs.attention == "decoder" else (x.layout("source"), x.source)
    costs = keys.pad(cost[ids][..., None])[..., 0]  # (B, S)
    paid = []
    for weights in outputs.weights:  # (B, H, T, S)
        inside = torch.arange(weights.shape[2], device=cost.device) < queries.lengths[:, None]
        each = (weights * costs[:, None, None]).sum(-1).mean(1)  # (B, T)
        paid.append((each * inside).sum(1) / inside.sum(1).clamp(min=1))
    return (torch.stack(paid).mean(0) * outputs.sum_lines((outputs.targets >= 0).float())).sum()


def _drop_words(share: Tensor, x: Inputs) -> Inputs:
    """Replace a share of the tokens that the model is given by the unknown one, special tokens aside."""

    def dropped(ids: Tensor) -> Tensor:
        drawn = torch.rand(ids.shape, device=ids.device) < share
        return ids.masked_fill(drawn & (ids > END), UNK)

    return replace(x, source=dropped(x.source), tokens=dropped(x.tokens))


REGULARIZERS: dict[str, Regularizer] = {
    "token-weights": Regularizer(
        "frequent target tokens count less in the loss: a token of share p has the weight a / (a + p), scaled so that "
        "the corpus has a mean of 1; this is a (try 0.01; smaller values lower frequent tokens more)",
        prepare=lambda half, counts: token_weights(counts.written, half),
        weigh=lambda weights, targets: weights[targets],
    ),
    "input-weights": Regularizer(
        "vectors of frequent source tokens are scaled by a / (a + p) where they are read; this is a; for models whose "
        "source has a table of its own",
        prepare=lambda half, counts: rarity(counts.read, half),
        model=lambda scale, model: scale_rows(model, scale),
    ),
    "attention-cost": Regularizer(
        "nats that a target adds to the objective for attending to frequent tokens alone: p / (0.01 + p) of it for "
        "attention to a token of share p, none to the end of a line",
        prepare=lambda nats, counts: nats * (1.0 - rarity(counts.read, 0.01)),
        add=_attention_cost,
        attention=True,
    ),
    "word-dropout": Regularizer(
        "share of the tokens that the model is given which are replaced by the unknown token (Bowman et al. 2016, "
        "section 3.1); try 0.1",
        inputs=_drop_words,
    ),
}
"""What the keys of `train.regularizers` name."""
