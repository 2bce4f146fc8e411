"""A reader of passages: BERT's encoder, and two scores of each token, as the start and as the end of the answer.

Devlin et al. 2019, section 4.2: P_i = softmax_i(S · T_i), and the same of the end. Where a passage does not answer, the
answer is the line's end (there: [CLS]; section 4.3). A line is "question<passage>passage". Tokens of the two parts are
told apart by a learned vector, and by another those that occur in the other part too (Chen et al. 2017, section 3.2).

Sizes: B lines, S tokens of the longest with its end, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.errors import ModelError
from regard.language.stacks import embedding_of, initialise, stack_of
from regard.models.blocks import final_norm
from regard.models.choices import SMALL_STACK, Size, StackConfig, family_of
from regard.nn.attention import Lengths
from regard.nn.layers import Map
from regard.nn.state import Layout, Observer
from regard.recipe import Recipe
from regard.tasks.engine import USES, Use, exact_copy
from regard.tasks.lines import pad
from regard.text import END, Tokenizer
from regard.train import OBJECTIVES, Inputs, Objective, Outputs
from regard.train.objectives import LossSettings, Model

PASSAGE = "<passage>"
"""The token between a question and its passage."""
_NEVER = -1e9  # a score of what is no token: it has no chance, and a row of such scores no NaN


class SpanReaderConfig(StackConfig):
    """The encoder of BERT's page, smaller by default: it is trained from nothing."""

    family: Literal["span-reader"] = Field("span-reader", description="the model family")
    width: Size = Field(128, description="features of a token, a multiple of 2")
    layers: Size = Field(3, description="blocks")
    heads: Size = Field(4, description="attentions side by side")
    max_positions: Size = Field(384, description="positions that are learned: the longest question and passage")
    matches: bool = Field(True, description="tokens that occur in question and passage are marked (Chen et al. 2017)")


class SpanReader(nn.Module):
    """Encoder and span head: `output` gives the two scores of a token."""

    __call__: Callable[..., Tensor]

    def __init__(self, config: SpanReaderConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        super().__init__()
        self.embedding = embedding_of(config, nn.Embedding(source_vocabulary, config.width, padding_idx=pad))
        self.marks = nn.Embedding(4 if config.matches else 2, config.width)
        self.layers, self.norm = stack_of(config, causal=False), final_norm(config)
        self.output = Map(config.width, 2)
        self.matches, self.separator = config.matches, -1
        initialise(self, config.layers, pad)

    def spell(self, source: Sequence[str], target: Sequence[str]) -> None:
        """The vocabulary's tokens, among which the separator is found."""
        if PASSAGE not in source:
            raise ModelError(f"the vocabulary has no {PASSAGE}, which stands between a question and its passage.")
        self.separator = source.index(PASSAGE)

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        """Ids (B, S) -> hidden (B, S, D)."""
        x = self.embedding(source, layout.positions(), layout.width) + self.marks(self._marked(source, layout))
        mask = Lengths(layout.lengths)
        for layer in self.layers:
            x, _ = layer(x, layout, mask, observe=observe)
        return self.norm(x, layout)

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> scores (…, 2) of a token as the start and as the end."""
        return self.output(hidden)

    def _marked(self, source: Tensor, layout: Layout) -> Tensor:
        """Which part each token is of, and whether the other has it too, (B, S): 0 to 3."""
        second = (source == self.separator).cumsum(1) > 0
        if not self.matches:
            return second.long()
        inside = layout.inside()
        across = (second[:, :, None] != second[:, None, :]) & inside[:, None, :]
        there = ((source[:, :, None] == source[:, None, :]) & across).any(-1)
        return second.long() + 2 * there.long()


# -- training ----------------------------------------------------------------------------------------------------------


def answers_alone(batch: Batch, key: int) -> Batch:
    """The batch with one target a line: at the token that the answer starts with stands the place of its last one.

    Where a line has none, both are the line's end.
    """
    targets, last = batch.target_output.copy(), batch.target_lengths - 1
    rows = np.arange(len(targets))
    targets[np.arange(targets.shape[1]) > last[:, None]] = -1
    targets[rows, last] = -1
    targets[rows, last] = np.where((targets >= 0).any(1), -1, last)
    return replace(batch, target_output=targets)


def span_scores(model: SpanReader, hidden: Tensor, lengths: Tensor) -> Tensor:
    """Hidden (B, S, D) -> scores (B, S, 2) of start and end; beyond a line's end they have no chance."""
    inside = torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]
    return model.project(hidden).float().masked_fill(~inside[:, :, None], _NEVER)


def _losses(model: SpanReader, outputs: Outputs) -> Tensor:
    """-log p(start) - log p(end) of each line that has a target."""
    x = outputs.inputs
    targets = outputs.targets.view(len(x.source_lengths), -1)  # (B, S)
    scores = span_scores(model, outputs.hidden.view(*targets.shape, -1), x.source_lengths)
    rows, starts = (targets >= 0).nonzero(as_tuple=True)
    ends = targets[rows, starts]
    of_starts, of_ends = (
        F.cross_entropy(scores[rows, :, i], at, reduction="none") for i, at in ((0, starts), (1, ends))
    )
    return of_starts + of_ends


def _hidden(model: Model, x: Inputs, observe: Observer | None = None) -> Tensor:
    found: Tensor = model.encode(x.source, x.layout("source"), observe)
    return found


def _loss(model: Model, outputs: Outputs, settings: LossSettings) -> Tensor:
    return _losses(model, outputs).sum()


def _judge(model: Model, batches: Iterable[Outputs], chunk: int) -> dict[str, float]:
    each = torch.cat([_losses(model, outputs) for outputs in batches])
    return {"loss": float(each.double().mean())}


def _not_by_train(tokenizer: Tokenizer) -> None:
    raise ModelError("a span reader learns from questions, not from lines: train it with `regard read train`.")


# -- use ---------------------------------------------------------------------------------------------------------------


def best_span(scores: NDArray[np.float64], first: int, longest: int) -> tuple[float, int, int]:
    """The best score of a span of at most `longest` tokens, its first and its last token.

    Scores (S, 2) of a line, of which the tokens from `first` to before the last are the passage.
    """
    start, end = scores[first:-1, 0], scores[first:-1, 1]
    if not len(start):
        return -np.inf, 0, 0
    best, size = (-np.inf, 0, 0), len(start)
    for length in range(min(longest, size)):
        both = start[: size - length] + end[length:]
        i = int(both.argmax())
        if both[i] > best[0]:
            best = float(both[i]), first + i, first + i + length
    return best


@torch.inference_mode()
def scores_of_rows(model: SpanReader, rows: Sequence[Sequence[int]], batch_size: int = 32) -> list[NDArray[np.float64]]:
    """Scores (S, 2) of each row of ids, its end among them."""
    found: list[NDArray[np.float64]] = []
    for start in range(0, len(rows), batch_size):
        ids, layout = pad(rows[start : start + batch_size], next(model.parameters()).device)
        scores = model.project(model.encode(ids, layout)).double().cpu().numpy()
        found += [one[:length] for one, length in zip(scores, layout.lengths.tolist(), strict=True)]
    return found


LONGEST = 30
"""Tokens of an answer, the most: SQuAD's readers take as many."""


def answers(model: SpanReader, recipe: Recipe, source: Tokenizer, rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """The tokens of the answer to each row of ids, none where it has none: what a bundle is verified by."""
    separator = source.id_of(PASSAGE)
    found = []
    for row in rows:
        [scores] = scores_of_rows(exact_copy(model), [[*row, END]])
        best, start, end = best_span(scores, row.index(separator) + 1 if separator in row else 0, LONGEST)
        found.append(list(row[start : end + 1]) if best > scores[-1].sum() else [])
    return found


FAMILIES = {
    "span-reader": family_of(
        SpanReaderConfig, SpanReader, SMALL_STACK, "span-reader", vectors=True, needs_vocabulary=True
    )
}
USES["span-reader"] = Use("finds answers in passages", "read answer", "regard.reading.model")
SPAN = Objective(
    ("span-reader",),
    "pairs",
    _hidden,
    "encoder",
    symbols=(PASSAGE,),
    view=_not_by_train,
    loss=_loss,
    judge=_judge,
    measures=("loss", "exact", "f1"),
)
OBJECTIVES["span"] = SPAN
