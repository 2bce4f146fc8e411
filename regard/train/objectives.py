"""Objectives: what training makes small, and the losses. One more is one more entry of `OBJECTIVES`.

Sizes: B lines, S and T longest source and target, N targets, D width, V vocabulary. Losses are sums over targets in
natural logarithms; who reports divides. A target below 0 is padding: it is not scored and gives no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import View
from regard.data.views import CMLMMask, Label, Masks, SpanCorruption
from regard.errors import ModelError
from regard.models.interface import Carries, Classifier, EncoderDecoder, Kind, LanguageModel, MaskedLM
from regard.nn.layers import Saves, applied, stand_in
from regard.nn.state import Layout, Observer, Packed, Padded, Part
from regard.text.tokenizer import GAPS, MASK, Tokenizer

Model = Any
"""A model of one of the objective's kinds, each of which has a protocol of its own in `regard.models.interface`."""


@dataclass(frozen=True)
class Inputs:
    """A batch as tensors on the model's device: ids (B, S) and (B, T), or packed (L,); targets below 0 are padding."""

    kind: str  # "padded" or "packed"
    source: Tensor
    source_lengths: Tensor
    tokens: Tensor
    targets: Tensor
    target_lengths: Tensor
    widths: tuple[int, int]  # S and T
    before: Tensor | None = None  # the packed state that its rows go on from: see `regard.models.interface.Carries`
    continues: bool = False  # its rows go on where those of the batch before it ended
    lines: Tensor | None = None  # (B,) which lines of the store its rows are, -1 for padding

    @classmethod
    def of_size(cls, rows: int, source: int, target: int) -> Inputs:
        """Padded rows of zeros of these lengths, with which a model is probed."""
        read, written = (torch.zeros(rows, size, dtype=torch.long) for size in (source, target))
        lengths = [torch.full((rows,), size) for size in (source, target)]
        return cls("padded", read, lengths[0], written, written, lengths[1], (source, target))

    def layout(self, side: Literal["source", "target"]) -> Layout:
        """Where the lines of a side lie."""
        ids, lengths, width = (
            (self.source, self.source_lengths, self.widths[0])
            if side == "source"
            else (self.tokens, self.target_lengths, self.widths[1])
        )
        return Padded(lengths, width) if self.kind == "padded" else Packed(lengths, width, len(ids))


@dataclass(frozen=True)
class Constant:
    """What is the same of all packs, so that a compiled step meets one shape; how many lines there are may differ."""

    tokens: int  # of which a pack has a multiple
    widths: tuple[int, int]  # tokens of the longest source and target that there are

    def part(self, part: int) -> Constant:
        """That of a part of a batch: parts 2 and 3 are halves, 4 to 7 quarters, and so on."""
        return replace(self, tokens=-(-self.tokens >> part.bit_length() - 1))


@dataclass(frozen=True)
class Outputs:
    """What a model computed for the N targets of a batch: what losses and regularisers are given."""

    inputs: Inputs
    hidden: Tensor  # (N, D), what the model's `output` projects
    targets: Tensor  # (N,), below 0 for padding
    attention: Part  # whose attention the objective trains: see `weights`
    lines: Tensor | None = None
    """(N,), which line of the batch each target is of, B for padding; only in training, where something asks."""
    weights: Sequence[Tensor] | None = None
    """Weights (B, H, T, S) of each layer of that attention, where something asks."""

    def sum_lines(self, each: Tensor) -> Tensor:
        """Values of the targets (N,) -> their sum over each line (B,)."""
        assert self.lines is not None
        count = len(self.inputs.source_lengths)
        return each.new_zeros(count + 1).index_add(0, self.lines, each)[:count]


# -- losses ------------------------------------------------------------------------------------------------------------


def _smoothed(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Of each token (N,) what `label_smoothed` sums."""
    log_probabilities = logits.float().log_softmax(-1)
    right = log_probabilities.gather(-1, targets.clamp(min=0)[:, None])[:, 0]
    losses = -((1.0 - smoothing) * right + smoothing * log_probabilities.mean(-1))
    return losses.masked_fill(targets < 0, 0.0)


def label_smoothed(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Sum over tokens of cross-entropy with `smoothing` of the mass spread over V (Szegedy et al. 2016, section 7)."""
    return _smoothed(logits, targets, smoothing).sum()


def _loss_and_gradient(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """What `label_smoothed` sums, (n,), of logits (n, V), and its gradient in their own type, in few passes over V.

    The logits are spent.
    """
    if (fast := stand_in("loss", logits)) is not None:
        return fast(logits, targets, smoothing), logits
    real = targets >= 0
    right = targets.clamp(min=0)[:, None]
    largest, where = logits.max(-1, keepdim=True)
    gradient = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    # The likeliest token has at least 1 / V, so its logarithm is always finite.
    normalizer = largest.to(gradient.dtype) - gradient.gather(-1, where).log()
    chosen = logits.gather(-1, right).to(gradient.dtype)
    losses = normalizer - (1.0 - smoothing) * chosen - smoothing * logits.mean(-1, keepdim=True, dtype=gradient.dtype)
    gradient -= smoothing / logits.shape[-1]
    gradient.scatter_add_(-1, right, gradient.new_full(right.shape, smoothing - 1.0))
    gradient *= real[:, None]
    return losses[:, 0].masked_fill(~real, 0.0), gradient.to(logits.dtype)


class _ProjectedLoss(torch.autograd.Function):
    """Makes the gradients beside the loss, `chunk` tokens at a time, so that N·V logits never stand at once."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *settings: Any
    ) -> Tensor:
        smoothing, chunk, token_weights = settings
        fast = None if token_weights is not None else stand_in("projected_loss", hidden, weight, bias)
        if fast is not None:
            losses, *made = fast(hidden, weight, bias, targets, smoothing)
            ctx.save_for_backward(*made)
            return cast(Tensor, losses.sum())
        total = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        into = torch.empty_like(hidden), torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
        for start in range(0, len(hidden), chunk):
            token = hidden[start : start + chunk]
            logits = F.linear(token, weight, bias)
            losses, gradient = _loss_and_gradient(logits, targets[start : start + chunk], smoothing)
            if token_weights is not None:
                counts = token_weights[start : start + chunk]
                losses, gradient = losses * counts, gradient * counts[:, None].to(gradient.dtype)
            total += losses.sum()
            torch.mm(gradient, weight, out=into[0][start : start + chunk])
            into[1].addmm_(gradient.T, token)
            if into[2] is not None:
                into[2].add_(gradient.sum(0))
        ctx.save_for_backward(*into)
        return total

    @staticmethod
    def backward(ctx: Saves, *gradients: Tensor) -> Any:
        scale = gradients[0]
        if scale.device.type == "cpu" and scale == 1:  # as in training: no need to go through them all
            return (*ctx.saved_tensors, *[None] * 4)
        made = (None if g is None else g * scale.to(g.dtype) for g in ctx.saved_tensors)
        return (*made, *[None] * 4)


def projected_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    chunk: int,
    token_weights: Tensor | None = None,
) -> Tensor:
    """`label_smoothed` of hidden (N, D) projected by weight (V, D) and bias (V,), targets (N,) -> a scalar sum.

    Equal to the plain composition, but needs memory for `chunk` tokens' logits only. Each token's loss is multiplied
    with its `token_weights` (N,).
    """
    if torch.is_grad_enabled():
        return applied(_ProjectedLoss, hidden, weight, bias, targets, smoothing, chunk, token_weights)
    losses = token_losses(hidden, weight, bias, targets, smoothing, chunk)
    return (losses if token_weights is None else losses * token_weights).sum()


@torch.no_grad()
def token_losses(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, chunk: int
) -> Tensor:
    """Of each token (N,) what `projected_loss` sums; no gradient flows."""
    chunks = zip(hidden.split(chunk), targets.split(chunk), strict=True)
    return torch.cat([_smoothed(F.linear(h, weight, bias), t, smoothing) for h, t in chunks])


def token_log_probabilities(project: Callable[[Tensor], Tensor], hidden: Tensor, targets: Tensor, chunk: int) -> Tensor:
    """log p of each target: hidden (N, D), targets (N,) -> (N,) float32."""
    chunks = zip(hidden.split(chunk), targets.split(chunk), strict=True)
    return torch.cat([-F.cross_entropy(project(h).float(), t, reduction="none") for h, t in chunks])


@dataclass(frozen=True)
class LossSettings:
    """What a recipe says to a loss."""

    smoothing: float  # mass of label smoothing
    chunk: int  # targets whose logits may stand in memory at a time
    token_weights: Tensor | None = None  # (N,), what each target counts; None: all count 1


def cross_entropy(model: Model, outputs: Outputs, settings: LossSettings) -> Tensor:
    """The summed cross-entropy of the targets with label smoothing, projected by the model's `output`."""
    output, hidden, s = model.output, outputs.hidden, settings
    return projected_loss(hidden, output.weight, output.bias, outputs.targets, s.smoothing, s.chunk, s.token_weights)


def perplexity(model: Model, batches: Iterable[Outputs], chunk: int, *, classes: bool = False) -> dict[str, float]:
    """The mean negative log-probability of a target ("loss") and its exponential ("perplexity").

    With `classes` also how many targets of a hundred are the likeliest token ("accuracy").
    """
    total, count, right = 0.0, 0, 0
    for each in batches:
        hidden, targets = each.hidden[each.targets >= 0], each.targets[each.targets >= 0]
        total += float(token_log_probabilities(model.output, hidden, targets, chunk).double().sum())
        right += int((model.output(hidden).argmax(-1) == targets).sum()) if classes else 0
        count += len(targets)
    loss = -total / max(1, count)
    scores = {"loss": loss, "perplexity": math.exp(min(50.0, loss))}
    return {**scores, "accuracy": 100.0 * right / max(1, count)} if classes else scores


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """What a model learns to do, and all that the rest of the program needs to know of it."""

    kinds: tuple[Kind, ...]  # kinds of model families that can learn it
    reads: Literal["pairs", "text"]  # whether it learns from pairs of lines or from text of one side
    hidden: Callable[[Model, Inputs, Observer | None], Tensor]
    """The model, a batch, what is given the weights and auxiliary losses that it wants -> (…, D) for each target."""
    attention: Part
    """Whose attention it trains: the encoder's or the decoder's to its own side, or the decoder's to the source."""
    targets: Literal["every", "some", "one", "spans"] = "every"
    """What has a target: every position of a line, few of them, the line as a whole, or spans that `loss` finds."""
    target: str = "text"  # what a target line must be, as `data.targets` says; "text": whatever the recipe says
    symbols: tuple[str, ...] = ()  # tokens that the text is changed with; the vocabulary gets them
    share: float = 1.0
    """Of the positions that `hidden` is of, how many have a target, on average: what is projected to the vocabulary."""
    stream: bool = False  # whether it can learn from one stream of text cut into windows (data.context)
    view: Callable[[Tokenizer], View | None] = lambda tokenizer: None
    """The target's tokenizer -> how batches are changed before the model is given them; None: they are not."""
    loss: Callable[[Model, Outputs, LossSettings], Tensor] = cross_entropy
    """The model, what it computed, settings -> the summed loss."""
    judge: Callable[[Model, Iterable[Outputs], int], dict[str, float]] = perplexity
    """The model, what it computed of each dev batch, the chunk -> scores, "loss" among them (lower is better)."""
    measures: tuple[str, ...] = ("loss",)
    """What `train.validate_with` may name: scores of `judge`, and "bleu" for what writes translations."""
    example: Callable[[Tokenizer, str], str] = lambda tokenizer, line: line
    """The source's tokenizer, a line of the corpus -> what a bundle is asked as its golden question."""
    scored: Literal["outputs", "predictions", ""] = ""
    """How dev and test sets are scored in the end: by what the bundle writes, by the probabilities that it gives, or
    by the dev loss alone."""


def _translate(model: EncoderDecoder, x: Inputs, observe: Observer | None = None) -> Tensor:
    reading = x.layout("source")
    memory = model.encode(x.source, reading, observe)
    return model.decode(x.tokens, model.start(memory, reading), x.layout("target"), observe)[0]


def _continue(model: LanguageModel, x: Inputs, observe: Observer | None = None) -> Tensor:
    start = model.start() if x.before is None else cast(Carries, model).resume(x.before)
    hidden, state = model.decode(x.tokens, start, x.layout("target"), observe)
    if observe is not None:
        observe.state = state
    return hidden


def _fill(model: MaskedLM, x: Inputs, observe: Observer | None = None) -> Tensor:
    return model.head(model.encode(x.source, x.layout("source"), observe))


def _classify(model: Classifier, x: Inputs, observe: Observer | None = None) -> Tensor:
    return model.classify(x.source, x.layout("source"), observe)


def _ids(tokenizer: Tokenizer, symbols: tuple[str, ...]) -> tuple[int, ...]:
    """The ids of those symbols that a vocabulary has; raises ModelError if it has none of them."""
    found = tuple(i for symbol in symbols if (i := tokenizer.id_of(symbol)) is not None)
    if not found:
        raise ModelError(
            f"the vocabulary has no {symbols[0]}, which the objective needs; leave train.start_from out, or start from "
            f'a bundle whose recipe has text.symbols = ["{symbols[0]}"].'
        )
    return found


def _beginning(tokenizer: Tokenizer, line: str) -> str:
    """The first half of the line, at most 8 tokens."""
    ids = tokenizer.encode(line)
    return tokenizer.decode(ids[: max(1, min(8, len(ids) // 2))])


def _masked(tokenizer: Tokenizer, line: str) -> str:
    """The line with its middle token masked."""
    ids = tokenizer.encode(line)
    return tokenizer.decode([*ids[: len(ids) // 2], *_ids(tokenizer, (MASK,)), *ids[len(ids) // 2 + 1 :]])


_WRITTEN: dict[str, Any] = {"measures": ("loss", "bleu"), "scored": "outputs"}

OBJECTIVES: dict[str, Objective] = {
    "translate": Objective(("encoder-decoder",), "pairs", _translate, "cross", **_WRITTEN),
    "cmlm": Objective(
        ("mask-predictor",),
        "pairs",
        _translate,
        "cross",
        targets="some",
        symbols=(MASK,),
        share=0.5,
        view=lambda tokenizer: CMLMMask(*_ids(tokenizer, (MASK,))),
        **_WRITTEN,
    ),
    "denoise": Objective(
        ("encoder-decoder",),
        "text",
        _translate,
        "cross",
        symbols=GAPS,
        view=lambda tokenizer: SpanCorruption(_ids(tokenizer, GAPS)),
    ),
    "language-model": Objective(
        ("language-model",), "text", _continue, "decoder", stream=True, example=_beginning, scored="predictions"
    ),
    "masked-lm": Objective(
        ("reader",),
        "text",
        _fill,
        "encoder",
        targets="some",
        symbols=(MASK,),
        share=0.15,
        view=lambda tokenizer: Masks(_ids(tokenizer, (MASK,))[0], len(tokenizer)),
        example=_masked,
    ),
    "classify": Objective(
        ("classifier",),
        "pairs",
        _classify,
        "encoder",
        targets="one",
        target="labels",
        view=lambda tokenizer: Label(),
        judge=partial(perplexity, classes=True),
        measures=("loss", "accuracy"),
        scored="predictions",
    ),
}
"""What `train.objective` names; the first that is for a model's kind and for the data is the default."""
