"""A chart parser: every span of words is given a score for each label, and the best tree is found among all trees.

Stern et al. 2017 and Kitaev and Klein 2018 ("Constituency Parsing with a Self-Attentive Encoder"): an encoder alone
reads the sentence; a span is what its two ends say, and a label's score of it is learnt. No label at all has the score
0, so that a tree's score is the sum over its brackets, and Cocke, Kasami and Younger's algorithm finds the best one
without a beam. Here each span's label is learnt by itself, by cross-entropy (Teng and Zhang 2018), not the tree as a
whole by a margin. A chain of constituents, each of which holds the next alone, is one label: `regard trees --chains`.

Sizes: B sentences, S source tokens and N words of the longest, M spans, D width, L labels, of which the first is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ModelError
from regard.language.stacks import Body, initialise
from regard.models.blocks import Projecting
from regard.models.choices import SMALL_STACK, PositionName, Size, StackConfig, family_of
from regard.nn.layers import Dropout, LayerNorm, Map
from regard.nn.state import Layout, Observer, in_rows
from regard.recipe import Recipe
from regard.tasks.engine import USES, Use, exact_copy
from regard.tasks.lines import pad
from regard.text import END, Tokenizer
from regard.train import OBJECTIVES, Inputs, Objective, Outputs
from regard.train.objectives import LossSettings, Model

from .trees import DEEPEST

Ids = Sequence[int]
Grid = NDArray[np.float64]
_BATCH_TOKENS = 2048  # source tokens that are read together
_SPANS = 1 << 15  # spans that are scored together: those of a long sentence are many


class ChartParserConfig(StackConfig):
    """The sizes of the encoder; a span has as many features as a token."""

    family: Literal["chart-parser"] = Field("chart-parser", description="the model family")
    width: Size = Field(256, description="features of a token, a multiple of 2")
    layers: Size = Field(6, description="blocks")
    heads: Size = Field(4, description="attentions side by side")
    positions: PositionName = "rotary"


class Spans(NamedTuple):
    """The M spans of a batch: which sentence each is of, its first word, and the one behind its last."""

    rows: Tensor
    starts: Tensor
    ends: Tensor

    @classmethod
    def of(cls, counts: Sequence[int], device: torch.device) -> Spans:
        """Every span of sentences of so many words."""
        each = [np.triu_indices(count + 1, 1) for count in counts]
        rows = np.repeat(np.arange(len(counts)), [len(starts) for starts, _ in each])
        starts, ends = (np.concatenate([pair[i] for pair in each]) for i in (0, 1))
        return cls(*(torch.from_numpy(x).to(device) for x in (rows, starts, ends)))


class ChartParser(Projecting):
    """An encoder, what stands between its words, and the labels, which are the target's opening brackets."""

    begins: Tensor
    """(source vocabulary,) the tokens that a word begins with; every one, until it is told how tokens are spelt."""
    opening: Tensor
    """(L,) the tokens that open a bracket; the first, padding, is no bracket."""
    closing: Tensor
    """(L,) the tokens that close them."""
    tags: Tensor
    """(tags,) the tokens that stand for a word."""

    def __init__(self, config: ChartParserConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        super().__init__()
        c = config
        self.body = Body(c, source_vocabulary, pad)
        self.span, self.span_norm = Map(c.width, c.width, bias=False), LayerNorm(c.width)
        self.word, self.word_norm = Map(c.width, c.width), LayerNorm(c.width)
        self.dropout, self.output = Dropout(c.dropout), Map(c.width, target_vocabulary)
        initialise(self, c.layers, pad)
        for part in (self.span, self.word, self.output):
            nn.init.xavier_uniform_(part.weight)
        self.register_buffer("begins", torch.ones(source_vocabulary, dtype=torch.bool), persistent=False)
        one = torch.zeros(1, dtype=torch.long)
        for name in ("opening", "closing", "tags"):
            self.register_buffer(name, one.clone(), persistent=False)

    def spell(self, source: Sequence[str], target: Sequence[str]) -> None:
        """See `NeedsVocabulary`: a word begins with U+2581; (NP opens, )NP closes, all else stands for a word.

        Raises ModelError where nothing opens.
        """
        device = self.begins.device
        tokens = {token[1:]: i for i, token in enumerate(target) if token.startswith("\u2581") and len(token) > 1}
        labels = [token[1:] for token in tokens if token.startswith("(") and f"){token[1:]}" in tokens]
        if not labels:
            raise ModelError(
                "the target has no brackets such as (NP and )NP, which are a chart parser's labels; train it on what "
                '`regard trees --linear … --chains` writes of a treebank, with text.target_kind = "words".'
            )
        self.begins = torch.tensor([token.startswith("\u2581") for token in source], device=device)
        self.opening, self.closing = (
            torch.tensor([0, *(tokens[sign + label] for label in labels)], device=device) for sign in "()"
        )
        self.tags = torch.tensor([i for token, i in tokens.items() if token[0] not in "()"] or [0], device=device)

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        """Source ids (B, S) or (L,) -> hidden (…, D)."""
        return self.body(source, layout, observe)

    def counts(self, source: Tensor, layout: Layout) -> Tensor:
        """Source ids, padded (B, S) -> the words of each sentence (B,)."""
        return (self.begins[source] & in_rows(layout).inside()).sum(1)

    def between(self, hidden: Tensor, source: Tensor, layout: Layout) -> Tensor:
        """What stands before each word and behind the last, (B, N + 1, D), of hidden (B, S, D) and ids (B, S).

        The first half is of the last token of the word before (zeros before the first word), the second of the first
        token of the word that follows (behind the last word, of the end).
        """
        begins, counts = self.begins[source] & in_rows(layout).inside(), self.counts(source, layout)
        most, half = int(counts.max()), hidden.shape[-1] // 2
        order = begins.logical_not().to(torch.uint8).argsort(stable=True)  # the words' beginnings come first
        there = torch.arange(most + 1, device=order.device) < counts[:, None]
        ends = layout.lengths[:, None] - 1
        firsts = torch.where(there, F.pad(order, (0, 1))[:, : most + 1], ends)  # then the end
        before = hidden[..., :half].take_along_dim((firsts - 1).clamp(min=0)[..., None], 1)
        before = before * (torch.arange(most + 1, device=order.device) > 0)[:, None]
        return torch.cat((before, hidden[..., half:].take_along_dim(firsts[..., None], 1)), -1)

    def score_spans(self, between: Tensor, spans: Spans) -> Tensor:
        """Scores (M, L) of each span's labels, of what stands between words (B, N + 1, D); 0 of none."""
        half = between.shape[-1] // 2
        signed = torch.cat((between[..., :half], -between[..., half:]), -1)
        posts, width = self.span(self.dropout(signed)), between.shape[1]
        posts = posts.flatten(0, 1)
        difference = posts[spans.rows * width + spans.ends] - posts[spans.rows * width + spans.starts]
        scores = self._project(self.span_norm(difference), self.opening[1:])
        return torch.cat((scores.new_zeros(len(scores), 1), scores), -1)

    def score_tags(self, between: Tensor) -> Tensor:
        """Scores (B, N, tags) of each word's tag."""
        half = between.shape[-1] // 2
        words = torch.cat((between[:, 1:, :half], between[:, :-1, half:]), -1)
        return self._project(self.word_norm(self.word(self.dropout(words))), self.tags)

    def _project(self, features: Tensor, tokens: Tensor) -> Tensor:
        return F.linear(self.dropout(features.relu()), self.output.weight[tokens], self.output.bias[tokens])


# -- training ----------------------------------------------------------------------------------------------------------


class Gold(NamedTuple):
    """What lines of symbols say: of each sentence its words' tags, and brackets (label, start, end), all as numbers."""

    tags: list[list[int]]
    brackets: list[list[tuple[int, int, int]]]


def read_symbols(model: ChartParser, rows: Sequence[Ids]) -> Gold:
    """Target ids of each sentence as tags and brackets; what the vocabulary has not is left out."""
    opens, closes, words = (
        {token: number for number, token in enumerate(tokens.tolist())}
        for tokens in (model.opening, model.closing, model.tags)
    )
    gold = Gold([], [])
    for row in rows:
        tags: list[int] = []
        brackets: list[tuple[int, int, int]] = []
        stack: list[tuple[int, int]] = []
        for token in row:
            if opens.get(token):
                stack.append((opens[token], len(tags)))
            elif closes.get(token) and stack:
                label, start = stack.pop()
                brackets.append((label, start, len(tags)))
            elif token in words:
                tags.append(words[token])
        gold.tags.append(tags)
        gold.brackets.append(brackets)
    return gold


def _read(model: ChartParser, outputs: Outputs) -> tuple[Tensor, Gold, list[int]]:
    """Of a batch what stands between words, what is right, and how many words of each sentence count: all, or none."""
    x = outputs.inputs
    reading, writing = x.layout("source"), x.layout("target")
    sizes = len(x.source_lengths), x.widths[0]
    padded = x.kind == "padded"
    hidden = outputs.hidden.view(*sizes, -1) if padded else reading.pad(outputs.hidden)
    source = reading.pad(x.source[..., None])[..., 0]
    targets = writing.pad(x.targets[..., None])[..., 0].tolist()
    lengths = x.target_lengths.tolist()
    gold = read_symbols(model, [row[: length - 1] for row, length in zip(targets, lengths, strict=True)])
    counts = model.counts(source, reading).tolist()
    # A sentence with a tag that the vocabulary has not has too few; none is in what is trained on.
    counts = [count if count == len(tags) else 0 for count, tags in zip(counts, gold.tags, strict=True)]
    return model.between(hidden, source, reading), gold, counts


def _right(spans: Spans, gold: Gold, words: int, device: torch.device) -> Tensor:
    """The label of each span (M,). Raises ModelError for a span with two, as chains that are not one symbol have."""
    grid = np.zeros((len(gold.tags), words + 1, words + 1), np.int64)
    for row, brackets in enumerate(gold.brackets):
        for label, start, end in brackets:
            if start < end <= words:
                if grid[row, start, end]:
                    raise ModelError(
                        "a chart parser's span has one label, and here two brackets are around the same words; let "
                        "`regard trees` write such chains as one symbol, with --chains."
                    )
                grid[row, start, end] = label
    return torch.from_numpy(grid).to(device)[spans.rows, spans.starts, spans.ends]


def _losses(
    model: ChartParser, between: Tensor, gold: Gold, counts: Sequence[int], smoothing: float
) -> tuple[Tensor, Tensor]:
    """The summed cross-entropy of all spans' labels and all words' tags; and the scores (M, L) of the spans."""
    spans, device = Spans.of(counts, between.device), between.device
    wide = torch.promote_types(between.dtype, torch.float32)
    scores, tags = model.score_spans(between, spans).to(wide), model.score_tags(between).to(wide)
    right = _right(spans, gold, tags.shape[1], device)
    told = np.full(tags.shape[:2], -100, np.int64)
    for row, count in enumerate(counts):
        told[row, :count] = gold.tags[row][:count]
    of_tags = tags.flatten(0, 1), torch.from_numpy(told).to(device).flatten()
    losses = [F.cross_entropy(*each, reduction="sum", label_smoothing=smoothing) for each in ((scores, right), of_tags)]
    return losses[0] + losses[1], scores


def _hidden(model: Model, x: Inputs, observe: Observer | None = None) -> Tensor:
    found: Tensor = model.encode(x.source, x.layout("source"), observe)
    return found


def _loss(model: Model, outputs: Outputs, settings: LossSettings) -> Tensor:
    return _losses(model, *_read(model, outputs), settings.smoothing)[0]


def _judge(model: Model, batches: Iterable[Outputs], chunk: int) -> dict[str, float]:
    """The loss of a target symbol, and F1 of all labelled brackets, in per cent; EVALB leaves punctuation out."""
    total, symbols, both, brackets = 0.0, 0, 0, 0
    for outputs in batches:
        between, gold, counts = _read(model, outputs)
        loss, scores = _losses(model, between, gold, counts, 0.0)
        total += float(loss)
        symbols += int((outputs.targets >= 0).sum())
        of_each = scores.split([count * (count + 1) // 2 for count in counts])
        for row, count in enumerate(counts):
            theirs = set(gold.brackets[row])
            found = best_tree(*_filled(count, [of_each[row]])) if count else []
            ours = {(label, start, end) for start, end, label in found}
            both, brackets = both + len(ours & theirs), brackets + len(ours) + len(theirs)
    return {"loss": total / max(1, symbols), "f1": 200.0 * both / max(1, brackets)}


# -- use ---------------------------------------------------------------------------------------------------------------


def _filled(words: int, parts: Iterable[Tensor]) -> tuple[Grid, NDArray[np.int64]]:
    """Of the scores of one sentence's spans, in parts (M, L), the best of a label, and that label, (N + 1, N + 1)."""
    scores, labels = np.zeros((words + 1, words + 1)), np.zeros((words + 1, words + 1), np.int64)
    bests = [part[:, 1:].double().max(-1) for part in parts]
    at = np.triu_indices(words + 1, 1)
    scores[at], labels[at] = (torch.cat(each).cpu().numpy() for each in zip(*bests, strict=True))
    return scores, labels + 1


def best_tree(scores: Grid, labels: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """The brackets (start, end, label) of the tree with the highest sum of scores, outer ones first.

    Scores (N + 1, N + 1) are of the best label of the words from the row's number to before the column's. A bracket is
    kept where its score is above 0, that of no bracket, and around the whole.
    """
    words = len(scores) - 1
    gains = np.maximum(scores, 0.0)
    gains[0, words] = scores[0, words]
    best, split = np.zeros_like(gains), np.zeros(gains.shape, np.int64)
    single = np.arange(words)
    best[single, single + 1] = gains[single, single + 1]
    for size in range(2, words + 1):
        starts = np.arange(words - size + 1)
        middles = starts[:, None] + np.arange(1, size)
        sums = best[starts[:, None], middles] + best[middles, starts[:, None] + size]
        chosen = sums.argmax(1)
        split[starts, starts + size] = middles[starts, chosen]
        best[starts, starts + size] = gains[starts, starts + size] + sums[starts, chosen]
    brackets, todo = [], [(0, words)]
    while todo:
        start, end = todo.pop()
        if scores[start, end] > 0 or (start, end) == (0, words):
            brackets.append((start, end, int(labels[start, end])))
        if end - start > 1:
            middle = int(split[start, end])
            todo += [(middle, end), (start, middle)]
    return brackets


def _best(model: ChartParser, between: Tensor, words: int) -> tuple[list[tuple[int, int, int]], float]:
    """The brackets of one sentence (1, N + 1, D), and the sum of their scores."""
    if not words:
        return [], 0.0
    parts = zip(*(x.split(_SPANS) for x in Spans.of([words], between.device)), strict=True)
    scores, labels = _filled(words, (model.score_spans(between, Spans(*part)) for part in parts))
    brackets = best_tree(scores, labels)
    return brackets, float(sum(scores[start, end] for start, end, _ in brackets))


def _symbols(model: ChartParser, brackets: Sequence[tuple[int, int, int]], tags: Ids) -> list[int]:
    """A tree as target ids; no more than half of DEEPEST brackets are inside of one another, as chains count more."""
    opening, closing, words = (tokens.tolist() for tokens in (model.opening, model.closing, model.tags))
    found: list[int] = []
    ends: list[tuple[int, int]] = []
    inner = 0
    for word, tag in enumerate(tags):
        while inner < len(brackets) and brackets[inner][0] == word:
            _, end, label = brackets[inner]
            inner += 1
            if len(ends) < DEEPEST // 2:
                found.append(opening[label])
                ends.append((end, closing[label]))
        found.append(words[tag])
        while ends and ends[-1][0] == word + 1:
            found.append(ends.pop()[1])
    return found


@torch.inference_mode()
def parsed(
    model: ChartParser, rows: Sequence[Ids], progress: Callable[[int], None] | None = None
) -> list[tuple[list[int], float]]:
    """The tree of each row of source ids, without their end, as target ids, and its score: the sum of its brackets'."""
    device = next(model.parameters()).device
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))  # alike ones together, to pad less
    found: list[tuple[list[int], float]] = [([], 0.0)] * len(rows)
    start = 0
    while start < len(order):
        longest = len(rows[order[min(len(order), start + 64) - 1]]) + 1
        chosen = order[start : start + max(1, min(64, _BATCH_TOKENS // longest))]
        ids, layout = pad([[*rows[i], END] for i in chosen], device)
        between = model.between(model.encode(ids, layout), ids, layout)
        counts = model.counts(ids, layout).tolist()
        tags = model.score_tags(between).argmax(-1).tolist()
        for row, i in enumerate(chosen):
            brackets, score = _best(model, between[row : row + 1], counts[row])
            found[i] = _symbols(model, brackets, tags[row][: counts[row]]), score
        start += len(chosen)
        if progress:
            progress(start)
    return found


def answers(model: ChartParser, recipe: Recipe, source: Tokenizer, rows: Sequence[Ids]) -> list[list[int]]:
    """The tree of each row of ids as target ids: what a bundle is verified by."""
    return [symbols for symbols, _ in parsed(exact_copy(model), rows)]


FAMILIES = {
    "chart-parser": family_of(ChartParserConfig, ChartParser, SMALL_STACK, "chart", vectors=True, needs_vocabulary=True)
}
USES["chart"] = Use("parses", "parse", "regard.parsing.use")
OBJECTIVES["chart"] = Objective(
    ("chart",),
    "pairs",
    _hidden,
    "encoder",
    targets="spans",
    target="trees",
    loss=_loss,
    judge=_judge,
    measures=("loss", "f1"),
    scored="predictions",
)
