"""Objectives: what training makes small. One more is one more entry of `OBJECTIVES`.

An entry carries all that the rest of the program needs to know of an objective: how it sees a batch, what a model
computes for it, its loss, how validation judges it, and what a trained bundle is asked as its golden question.
Sizes: B lines, S and T longest source and target, N targets, D width. Losses are sums over targets in natural
logarithms. A target below 0 is padding: it is not scored and gives no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch import Tensor

from regard.data.batches import View
from regard.data.views import CMLMMask, Label, Masks, SpanCorruption
from regard.errors import ModelError
from regard.models.interface import Classifier, EncoderDecoder, Kind, LanguageModel, MaskedLM
from regard.nn.state import Layout, Observer, Packed, Padded, Part
from regard.text.tokenizer import GAPS, MASK, Tokenizer

from .losses import projected_loss, token_log_probabilities

Side = Literal["source", "target"]
Model = Any
"""A model of one of the objective's kinds, each of which has a protocol of its own in `regard.models.interface`."""


@dataclass(frozen=True)
class Inputs:
    """A batch as tensors on the model's device: ids (B, S) and (B, T), or packed (L,); targets below 0 are padding."""

    kind: str
    source: Tensor
    source_lengths: Tensor
    tokens: Tensor
    targets: Tensor
    target_lengths: Tensor
    widths: tuple[int, int]
    """S and T."""

    def layout(self, side: Side) -> Layout:
        """Where the lines of a side lie."""
        source = side == "source"
        lengths, width = (self.source_lengths, self.widths[0]) if source else (self.target_lengths, self.widths[1])
        if self.kind == "padded":
            return Padded(lengths, width)
        return Packed(lengths, width, len(self.source if source else self.tokens))


@dataclass(frozen=True)
class Outputs:
    """What a model computed for the N targets of a batch: what losses and regularisers are given."""

    inputs: Inputs
    hidden: Tensor
    """(N, D), what the model's `output` projects."""
    targets: Tensor
    """(N,), below 0 for padding."""
    attention: Part
    """Whose attention the objective trains: see `weights`."""
    lines: Tensor | None = None
    """(N,), which line of the batch each target is of, B for padding; only in training, where something asks."""
    weights: Sequence[Tensor] | None = None
    """Weights (B, H, T, S) of each layer of that attention, where something asks."""

    def sum_lines(self, each: Tensor) -> Tensor:
        """Values of the targets (N,) -> their sum over each line (B,)."""
        assert self.lines is not None
        count = len(self.inputs.source_lengths)
        return each.new_zeros(count + 1).index_add(0, self.lines, each)[:count]


@dataclass(frozen=True)
class LossSettings:
    """What a recipe says to a loss."""

    smoothing: float
    """Mass of label smoothing."""
    chunk: int
    """Targets whose logits may stand in memory at a time."""
    compiled: bool = False
    """Whether PyTorch is to compile it."""
    token_weights: Tensor | None = None
    """(N,), what each target counts; None: all count 1."""


class Forward(Protocol):
    """What a model computes for an objective."""

    def __call__(
        self,
        model: Model,
        source: Tensor,
        reading: Layout,
        tokens: Tensor,
        writing: Layout,
        observe: Observer | None = None,
    ) -> Tensor:
        """Source ids and where they lie, target ids and where they lie -> hidden (…, D) for each target.

        `observe` is given the weights and auxiliary losses that it wants.
        """
        ...


def cross_entropy(model: Model, outputs: Outputs, settings: LossSettings) -> Tensor:
    """The summed cross-entropy of the targets with label smoothing, projected by the model's `output`."""
    output, s = model.output, settings
    return projected_loss(
        outputs.hidden, output.weight, output.bias, outputs.targets, s.smoothing, s.chunk, s.compiled, s.token_weights
    )


def perplexity(model: Model, batches: Iterable[Outputs], chunk: int) -> dict[str, float]:
    """The mean negative log-probability of a target ("loss") and its exponential ("perplexity")."""
    return _judged(model, batches, chunk, classes=False)


def accuracy(model: Model, batches: Iterable[Outputs], chunk: int) -> dict[str, float]:
    """What `perplexity` gives, and how many targets of a hundred are the likeliest token ("accuracy")."""
    return _judged(model, batches, chunk, classes=True)


def _judged(model: Model, batches: Iterable[Outputs], chunk: int, *, classes: bool) -> dict[str, float]:
    total, count, right = 0.0, 0, 0
    for each in batches:
        hidden, targets = each.hidden[each.targets >= 0], each.targets[each.targets >= 0]
        total += float(token_log_probabilities(model.output, hidden, targets, chunk).double().sum())
        if classes:
            right += int((model.output(hidden).argmax(-1) == targets).sum())
        count += len(targets)
    loss = -total / max(1, count)
    scores = {"loss": loss, "perplexity": math.exp(min(50.0, loss))}
    return {**scores, "accuracy": 100.0 * right / max(1, count)} if classes else scores


def _unchanged(tokenizer: Tokenizer) -> View | None:
    """Batches are used as they are."""
    return None


def _whole_line(tokenizer: Tokenizer, line: str) -> str:
    return line


@dataclass(frozen=True)
class Objective:
    """What a model learns to do, and all that the rest of the program needs to know of it."""

    kinds: tuple[Kind, ...]
    """Kinds of model families that can learn it."""
    reads: Literal["pairs", "text"]
    """Whether it learns from pairs of lines or from text of one side."""
    hidden: Forward
    attention: Part
    """Whose attention it trains: the encoder's or the decoder's to its own side, or the decoder's to the source."""
    targets: Literal["every", "some", "one"] = "every"
    """Which positions of a line have a target: every one, few of them, or the line as a whole."""
    target: str = "text"
    """What a target line must be, as `data.targets` says; "text": whatever the recipe says."""
    symbols: tuple[str, ...] = ()
    """Tokens that the text is changed with; the vocabulary gets them."""
    share: float = 1.0
    """Of the positions that `hidden` is of, how many have a target, on average: what is projected to the vocabulary."""
    stream: bool = False
    """Whether it can learn from one stream of text cut into windows (data.context)."""
    view: Callable[[Tokenizer], View | None] = _unchanged
    """The target's tokenizer -> how batches are changed before the model is given them; None: they are not."""
    loss: Callable[[Model, Outputs, LossSettings], Tensor] = cross_entropy
    """The model, what it computed, settings -> the summed loss."""
    judge: Callable[[Model, Iterable[Outputs], int], dict[str, float]] = perplexity
    """The model, what it computed of each dev batch, the chunk -> scores by name, "loss" among them (lower is better).
    """
    measures: tuple[str, ...] = ("loss",)
    """What `train.validate_with` may name: scores of `judge`, and "bleu" for what writes translations."""
    example: Callable[[Tokenizer, str], str] = _whole_line
    """The source's tokenizer, a line of the corpus -> what a bundle is asked as its golden question."""
    scored: Literal["outputs", "predictions", ""] = ""
    """How dev and test sets are scored in the end: by what the bundle writes, by the probabilities that it gives, or
    by the dev loss alone."""


def _translate(
    model: EncoderDecoder,
    source: Tensor,
    reading: Layout,
    tokens: Tensor,
    writing: Layout,
    observe: Observer | None = None,
) -> Tensor:
    memory = model.encode(source, reading, observe)
    return model.decode(tokens, model.start(memory, reading), writing, observe)[0]


def _continue(
    model: LanguageModel,
    source: Tensor,
    reading: Layout,
    tokens: Tensor,
    writing: Layout,
    observe: Observer | None = None,
) -> Tensor:
    return model.decode(tokens, model.start(), writing, observe)[0]


def _fill(
    model: MaskedLM, source: Tensor, reading: Layout, tokens: Tensor, writing: Layout, observe: Observer | None = None
) -> Tensor:
    return model.head(model.encode(source, reading, observe))


def _classify(
    model: Classifier, source: Tensor, reading: Layout, tokens: Tensor, writing: Layout, observe: Observer | None = None
) -> Tensor:
    return model.classify(source, reading, observe)


def _ids(tokenizer: Tokenizer, symbols: tuple[str, ...]) -> tuple[int, ...]:
    """The ids of those symbols that a vocabulary has; raises ModelError if it has none of them."""
    found = [i for symbol in symbols if (i := tokenizer.id_of(symbol)) is not None]
    if not found:
        raise ModelError(
            f"the vocabulary has no {symbols[0]}, which the objective needs; leave train.start_from out, or start from "
            f'a bundle whose recipe has text.symbols = ["{symbols[0]}"].'
        )
    return tuple(found)


def _beginning(tokenizer: Tokenizer, line: str) -> str:
    """The first half of the line, at most 8 tokens."""
    ids = tokenizer.encode(line)
    return tokenizer.decode(ids[: max(1, min(8, len(ids) // 2))])


def _masked(tokenizer: Tokenizer, line: str) -> str:
    """The line with its middle token masked."""
    ids, (mask,) = tokenizer.encode(line), _ids(tokenizer, (MASK,))
    return tokenizer.decode([*ids[: len(ids) // 2], mask, *ids[len(ids) // 2 + 1 :]])


OBJECTIVES: dict[str, Objective] = {
    "translate": Objective(
        ("encoder-decoder",), "pairs", _translate, "cross", measures=("loss", "bleu"), scored="outputs"
    ),
    "cmlm": Objective(
        ("mask-predictor",),
        "pairs",
        _translate,
        "cross",
        targets="some",
        symbols=(MASK,),
        share=0.5,
        view=lambda tokenizer: CMLMMask(*_ids(tokenizer, (MASK,))),
        measures=("loss", "bleu"),
        scored="outputs",
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
        judge=accuracy,
        measures=("loss", "accuracy"),
        scored="predictions",
    ),
}
"""What `train.objective` names; the first that is for a model's kind and for the data is the default."""
