"""Regularisers: what training is given beside the loss. One more is one more entry of `REGULARIZERS`.

A recipe names those that it wants with a strength each: `train.regularizers = {word-dropout = 0.1}`.
Sizes: V vocabulary, N targets, B lines, T queries, S keys, H heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.store import Progress, Store
from regard.errors import ModelError
from regard.extensions import entry as found
from regard.nn.layers import PostNorm, Saves, applied, stand_in
from regard.nn.positions import scale_rows
from regard.text.tokenizer import END, UNK

from .objectives import Inputs, Model, Outputs

Value = Any  # what `prepare` makes: a tensor, or what goes to a device as one does


@dataclass(frozen=True)
class Counts:
    """How often each token occurs in the text that is trained on, and that text."""

    read: Tensor  # (V,) of the side that is read; the ends of lines count 0, since they are no words
    written: Tensor  # (V,) of the targets, the ends of lines included
    store: Store | None = None
    progress: Progress = lambda what, count: None


@dataclass(frozen=True)
class Regularizer:
    """What the rest of the program needs to know of a regulariser; parts that it does not need are left out.

    Each part is given what `prepare` made of the strength, or without one the strength as a tensor.
    """

    description: str  # what its strength means
    prepare: Callable[[float, Counts], Value] | None = None
    """Made once, before training, from the strength and the counts of the tokens."""
    model: Callable[[Value, nn.Module], None] | None = None
    """Changes the model before training; parameter names must stay."""
    inputs: Callable[[Value, Inputs], Inputs] | None = None  # changes each batch that is trained on
    weigh: Callable[[Value, Tensor], Tensor] | None = None
    """Targets (N,), those below 0 set to 0 -> what each counts in the loss, (N,)."""
    add: Callable[[Value, Model, Outputs], Tensor] | None = None
    """The model and what it computed -> what is added to the summed loss. It shows in the gradient, not in the log."""
    agree: Callable[[Value, Model, Outputs, Outputs, int], Tensor] | None = None
    """The model, what it computed of a batch with one dropout and with another, and how many targets may be projected
    at a time -> what is added to the summed loss, which is the mean of both. Takes each batch twice."""
    attention: bool = False  # whether `add` needs the attention weights, which takes the slower way of computing them


@dataclass(frozen=True)
class Term:
    """A regulariser with what was prepared for it."""

    entry: Regularizer
    value: Value


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
        return ids.masked_fill((torch.rand(ids.shape, device=ids.device) < share) & (ids > END), UNK)

    return replace(x, source=dropped(x.source), tokens=dropped(x.tokens))


def _replace_words(drawn: Tensor, x: Inputs) -> Inputs:
    """Replace a share of the tokens that the model is given by others, as frequent as they are in the corpus."""
    share, read, written = drawn[0], *drawn[1:].chunk(2)

    def replaced(ids: Tensor, cumulated: Tensor) -> Tensor:
        places = (torch.rand(ids.shape, device=ids.device) < share) & (ids > END)
        others = torch.searchsorted(cumulated, torch.rand(ids.shape, device=ids.device))
        return torch.where(places, others.clamp(max=len(cumulated) - 1), ids)

    return replace(x, source=replaced(x.source, read), tokens=replaced(x.tokens, written))


def _cumulated(counts: Tensor, size: int) -> Tensor:
    """The cumulated shares of the tokens that are words, (size,), those beyond the vocabulary included as ones."""
    words = counts.double().clone()
    words[: END + 1] = 0
    return F.pad((words.cumsum(0) / words.sum()).float(), (0, size - len(words)), value=1.0)


def _word_shares(share: float, counts: Counts) -> Tensor:
    """(1 + 2 V,): the share that is replaced, and the cumulated shares of the tokens read and of those written."""
    size = max(len(counts.read), len(counts.written))
    return torch.cat([torch.tensor([share]), _cumulated(counts.read, size), _cumulated(counts.written, size)])


def _diverging(one: Tensor, other: Tensor, targets: Tensor) -> Tensor:
    """KL(p, q) + KL(q, p) of two predictions' logits (n, V), (n,), and its gradients in their place; 0 for padding."""
    if (fast := stand_in("divergence", one, other)) is not None:
        return fast(one, other, targets)
    exact = torch.promote_types(one.dtype, torch.float32)
    p, q = (logits.log_softmax(-1, dtype=exact) for logits in (one, other))
    odds = p - q
    p, q = p.exp_(), q.exp_()
    seen = targets[:, None] >= 0
    means = [(side * odds).sum(-1, keepdim=True) for side in (p, q)]
    # d/dz of the sum over tokens of (p - q)(log p - log q) is p (log p - log q - KL(p, q)) + p - q.
    one.copy_((p * (odds - means[0]) + p - q) * seen)
    other.copy_((q * (means[1] - odds) + q - p) * seen)
    return ((means[0] - means[1]) * seen)[:, 0]


class _Divergence(torch.autograd.Function):
    """Makes the gradients beside the divergence, `chunk` targets at a time, so that N V logits never stand at once."""

    @staticmethod
    def forward(
        ctx: Saves, one: Tensor, other: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, chunk: int
    ) -> Tensor:
        total = one.new_zeros((), dtype=torch.promote_types(one.dtype, torch.float32))
        project = stand_in("linear", one, weight, bias) or F.linear
        of_weight, of_bias = torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
        both = torch.empty_like(one), torch.empty_like(other)
        for start in range(0, len(one), chunk):
            part = slice(start, start + chunk)
            p, q = (project(hidden[part], weight, bias) for hidden in (one, other))
            total += _diverging(p, q, targets[part]).sum()
            for gradient, hidden, into in zip((p, q), (one, other), both, strict=True):
                torch.mm(gradient, weight, out=into[part])
                of_weight.addmm_(gradient.T, hidden[part])
                if of_bias is not None:
                    of_bias.add_(gradient.sum(0))
        ctx.save_for_backward(*both, of_weight, *([] if of_bias is None else [of_bias]))
        return total

    @staticmethod
    def backward(ctx: Saves, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        made = [gradient * gradients[0].to(gradient.dtype) for gradient in ctx.saved_tensors]
        return (*made, *[None] * (6 - len(made)))


def divergence(one: Tensor, other: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, chunk: int) -> Tensor:
    """The sum over targets of KL(p, q) + KL(q, p) between what two hidden states (N, D) predict -> a scalar.

    Projected by weight (V, D) and bias (V,), `chunk` targets at a time. Targets (N,) below 0 are padding.
    """
    return applied(_Divergence, one, other, weight, bias, targets, chunk)


def _r_drop(strength: Tensor, model: Model, one: Outputs, other: Outputs, chunk: int) -> Tensor:
    output = model.output
    return strength / 4 * divergence(one.hidden, other.hidden, output.weight, output.bias, one.targets, chunk)


def _activations(strength: Tensor, model: Model, outputs: Outputs) -> Tensor:
    """The mean square of each target's features, summed over the targets (Merity et al. 2017, equation 1)."""
    squares = outputs.hidden.float().square().mean(-1)
    return strength * squares.masked_fill(outputs.targets < 0, 0.0).sum()


def _changes(strength: Tensor, model: Model, outputs: Outputs) -> Tensor:
    """The same of the difference between each target's features and those before it in its line (ibid., equation 2)."""
    assert outputs.lines is not None
    together = (outputs.lines[1:] == outputs.lines[:-1]) & (outputs.targets[1:] >= 0)
    squares = outputs.hidden.float().diff(dim=0).square().mean(-1)
    return strength * squares.masked_fill(~together, 0.0).sum()


def _skip_branches(strength: Tensor, model: nn.Module) -> None:
    """Lets the residual branches of each stack be skipped, the last block's most often (Huang et al. 2016, sec. 3)."""
    stacks = [part for part in model.modules() if isinstance(part, nn.ModuleList)]
    found = [(i, len(stack), part) for stack in stacks for i, block in enumerate(stack) for part in block.modules()]
    branches = [(i, depth, part) for i, depth, part in found if isinstance(part, PostNorm)]
    if not branches or not 0 < float(strength) < 1:
        raise ModelError(
            f"train.regularizers: stochastic-depth = {float(strength):g} is for families made of blocks with residual "
            "connections, and from 0 to below 1; choose another strength or family, or leave it out."
        )
    for i, depth, part in branches:
        part.skipped = float(strength) * (i + 1) / depth


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
    "word-replacement": Regularizer(
        "share of the tokens that the model is given which are replaced by other words, drawn as often as they occur "
        "(after Wang et al. 2018, SwitchOut); try 0.1",
        prepare=_word_shares,
        inputs=_replace_words,
    ),
    "activation": Regularizer(
        "weight of the mean square of the features that are projected to the vocabulary, dropout included (Merity et "
        "al. 2017); they use 2 in recurrent language models",
        add=_activations,
    ),
    "activation-change": Regularizer(
        "weight of the mean square of how much these change from one token to the next (Merity et al. 2017, who use 1, "
        "without dropout; with locked dropout the same features are dropped at both)",
        add=_changes,
    ),
    "stochastic-depth": Regularizer(
        "how often a batch goes past what the last block's attention or feed-forward network makes, blocks before it "
        "less often in proportion (Huang et al. 2016; Pham et al. 2019); try 0.1 to 0.3 in stacks of 6 and more",
        model=_skip_branches,
    ),
    "r-drop": Regularizer(
        "weight of the disagreement between two passes of each batch with different dropout, as alpha of Liang et al. "
        "2021 (R-Drop), who use 5; takes twice the time",
        agree=_r_drop,
    ),
}
"""What the keys of `train.regularizers` name."""
