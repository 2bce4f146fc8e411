"""Where a model looks: the attention of every layer and head over one line, as numbers.

Sizes: L layers, H heads, T rows (tokens that look), S columns (tokens that are looked at); N words of T or S tokens.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import DataError, ModelError, TextError
from regard.language.open import Pipeline, open_bundle
from regard.models import FAMILIES
from regard.models.blocks import device_of
from regard.models.interface import EncoderDecoder, Kind
from regard.nn.state import Observer
from regard.recipe import Recipe
from regard.tasks.details import shares_of, target_spans
from regard.tasks.engine import context_of
from regard.tasks.lines import check_length, check_line, pad
from regard.tasks.translate import Translator
from regard.text import BEGIN, END
from regard.text.sentences import words as words_in

PartName = Literal["encoder", "cross", "decoder", "hops"]
Span = tuple[int, int]

_TITLES: dict[PartName, str] = {
    "encoder": "Input - Input",
    "cross": "Input - Output",
    "decoder": "Output - Output",
    "hops": "Hops - Input",
}
"""The first three as the viewer of Tensor2Tensor calls them."""
_AXES = ("layer", "head", "row", "column")


@dataclass(frozen=True)
class Side:
    """What stands at the rows, or at the columns."""

    names: tuple[str, ...]  #: Tokens as the model reads them, U+2581 for a space; or words.
    words: tuple[str, ...]
    shares: NDArray[np.float64]
    """(names, words): how much of each token belongs to each word; a token's shares sum to 1."""
    numbers: tuple[int, ...] = ()
    """Of each word its number in the line, from 0; -1 for what is not of the line: begin, end, a language's tag."""

    def merged(self) -> Side:
        """The words in the place of the tokens."""
        return Side(self.words, self.words, np.eye(len(self.words)), self.numbers)


@dataclass(frozen=True)
class Part:
    """An attention of a model: encoder (source to source), cross (target to source), decoder (target to target), hops
    (learned queries to source).

    A row is what looks and sums to 1, a column is what is looked at. A row of cross-attention is the token that the
    step writes, a row of the decoder's the token that it reads. Two kinds of rows sum to less: those of local attention
    with a Gaussian, and the first of an LSTMN, which has nothing to look at.
    """

    name: PartName
    weights: NDArray[np.float32]  #: (L, H, T, S)
    rows: Side
    columns: Side

    def title(self, layer: int = 0) -> str:
        """As the lectures write it; layers count from 1, and 0 is the mean of all."""
        return f"Layer: {layer or 'mean'} Attention: {_TITLES[self.name]}"

    def matrix(self, layer: int = 0, head: int = 0) -> NDArray[np.float32]:
        """Weights (T, S) of a layer and a head, both from 1; 0 is the mean of all. Raises DataError for others."""
        for what, asked, most in zip(("layer", "head"), (layer, head), self.weights.shape, strict=False):
            if not 0 <= asked <= most:
                raise DataError(f"{what} {asked}: this attention has {most}; take 1 to {most}, or 0 for the mean.")
        chosen = self._chosen([layer] if layer else None, [head] if head else None)
        there = max(1, np.count_nonzero(chosen.any(axis=(2, 3))))  # a head that was pruned or is off has no weights
        return np.asarray(chosen.sum(axis=(0, 1), dtype=np.float64) / there, dtype=np.float32)

    def summed(self, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None) -> NDArray[np.float64]:
        """The sum (T, S) over chosen layers and heads, from 1, all without a choice. Raises DataError for others."""
        return np.asarray(self._chosen(layers, heads).sum(axis=(0, 1), dtype=np.float64))

    def total(
        self,
        *,
        rows: Sequence[int] | None = None,
        columns: Sequence[int] | None = None,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
    ) -> float:
        """The sum over chosen rows, columns, layers and heads, all from 1 as in `to_csv`, all without a choice.

        Raises DataError for a row or column that does not exist.
        """
        return float(self._chosen(layers, heads, rows, columns).sum(dtype=np.float64))

    def _chosen(self, *asked: Sequence[int] | None) -> NDArray[np.float32]:
        """The weights of the layers, heads, rows and columns that are asked for, each once; None stands for all."""
        chosen = self.weights
        for axis, (what, numbers, most) in enumerate(zip(_AXES, asked, self.weights.shape, strict=False)):
            for number in numbers or ():
                if not 1 <= number <= most:
                    raise DataError(f"{what} {number}: this attention has {most}; take 1 to {most}.")
            if numbers is not None:
                chosen = chosen.take(sorted({number - 1 for number in numbers}), axis)
        return chosen

    def merged(self) -> Part:
        """Between words: the weight of one looked at is the sum over its tokens, of one that looks their mean."""
        looking = self.rows.shares / self.rows.shares.sum(axis=0)  # (T, N)
        weights = np.einsum("tn,lhts,sm->lhnm", looking, self.weights, self.columns.shares, optimize=True)
        return replace(self, weights=weights.astype(np.float32), rows=self.rows.merged(), columns=self.columns.merged())


@dataclass(frozen=True)
class Attention:
    """All that a model looked at while it read a line, and wrote another."""

    source: str  #: Empty for a language model.
    target: str  #: Empty for a model that only reads.
    parts: tuple[Part, ...]
    unit: Literal["tokens", "words"] = "tokens"

    def part(self, name: str = "") -> Part:
        """The part of this name; without one the cross-attention, or what there is. Raises DataError for others."""
        by_name: dict[str, Part] = {part.name: part for part in self.parts}
        if not name:
            return by_name.get("cross", self.parts[0])
        if name not in by_name:
            raise DataError(f"part {name}: this model has {', '.join(by_name)}.")
        return by_name[name]

    def words(self) -> Attention:
        """The same between words (`regard.text.sentences`); begin, end and language tags are words by themselves."""
        if self.unit == "words":
            return self
        return replace(self, parts=tuple(part.merged() for part in self.parts), unit="words")

    def _repr_html_(self) -> str:
        """The page of it in a frame, as a notebook shows it."""
        # What shows stands above what is shown: it is named here, and loaded when a notebook asks.
        shown: str = import_module("regard.explore.page").page(self)._repr_html_()
        return shown

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; weights are [layer][head][row][column]."""
        parts = [
            {"name": p.name, "rows": p.rows.names, "columns": p.columns.names, "weights": p.weights.tolist()}
            for p in self.parts
        ]
        return {"source": self.source, "target": self.target, "unit": self.unit, "parts": parts}

    def to_json(self) -> str:
        """`to_dict` as JSON, all digits kept."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_csv(self) -> str:
        """A line a weight, all digits kept; layer, head, row and column count from 1."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["part", "layer", "head", "row", "column", "row_name", "column_name", "weight"])
        for part in self.parts:
            for (*before, row, column), weight in np.ndenumerate(part.weights):
                names = part.rows.names[row], part.columns.names[column]
                writer.writerow([part.name, *(at + 1 for at in (*before, row, column)), *names, float(weight)])
        return text.getvalue()


@torch.inference_mode()
def look(
    bundle: str | Path | Pipeline | Translator,
    line: str,
    *,
    target: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    beam: int | None = None,
    device: str = "cpu",
    precision: str = "exact",
) -> Attention:
    """Where a bundle's model looks: a translator while it writes `target`, or its own translation of the line.

    A language model looks at what it has read of the line, a masked one or a classifier at all of it. Who fills in
    masks is given the whole target without any, so that its decoder looks to both sides. Computed in float64, or of a
    translator in the `precision` asked for. A translator that is open already keeps what it computes with.
    Raises TextError for a line that cannot be read, ModelError for a model that has no attention.
    """
    if isinstance(bundle, Translator):
        return _found(_translation(bundle, line, target, from_, to, beam, precision), bundle.recipe)
    opened = open_bundle(bundle, get_args(Kind), device=device)
    kind = FAMILIES[opened.recipe.model.family].kind
    if kind in ("encoder-decoder", "mask-predictor"):
        translator = Translator(cast(EncoderDecoder, opened.model), opened.recipe, opened.source, opened.target)
        return _found(_translation(translator, line, target, from_, to, beam, precision), opened.recipe)
    if target is not None or to is not None or from_ is not None:
        raise ModelError(f"a {opened.recipe.model.family} model reads one line; leave the target and languages out.")
    return _found(_reading(opened, line, kind), opened.recipe)


def _found(found: Attention, recipe: Recipe) -> Attention:
    if not found.parts:
        raise ModelError(f"a {recipe.model.family} model has no attention to look at; take one that has.")
    return found


class Sides(NamedTuple):
    """A line as a translator reads it, and what it wrote or is made to write; ids are without ends."""

    read: list[int]
    text: str
    written: list[int]
    ended: bool
    """Whether it wrote an end, or the longest length cut it off."""
    spans: Sequence[Span]
    """Of each written token in the text."""


def both_sides(
    translator: Translator, line: str, target: str | None, *, from_: str | None, to: str | None, beam: int | None
) -> Sides:
    """A line and `target`, or its own translation. Raises TextError for lines that cannot be read."""
    [ids] = translator.encode([line], from_=from_, to=to)
    if not ids:
        raise TextError("the line has no text to look at; give one that has.")
    if target is None:
        best = translator.translate([line], from_=from_, to=to, beam=beam)[0].hypotheses[0]
        return Sides(ids, best.text, list(best.ids), best.ended, target_spans(translator.target, best))
    check_line(target, "the target")
    return Sides(ids, target, translator.target.encode(target), True, translator.target.spans(target))


def _translation(
    translator: Translator,
    line: str,
    target: str | None,
    from_: str | None,
    to: str | None,
    beam: int | None,
    precision: str,
) -> Attention:
    ids, text, written, ended, spans = both_sides(translator, line, target, from_=from_, to=to, beam=beam)
    fills, most = translator.mask is not None, context_of(translator.recipe)
    check_length([*written, END], most or len(written) + 1, "line 1")
    model = translator.engine.model_for(precision)
    device = device_of(model)
    observe = Observer("encoder", "cross", "decoder")
    read, reading = pad([[*ids, END]], device)
    tokens, writing = pad([[*written, END] if fills else [BEGIN, *written]], device)
    model.decode(tokens, model.start(model.encode(read, reading, observe), reading), writing, observe)

    source = side_of(line, translator.source.tokens(ids), *translator.reading.spans(line, to))
    wrote = text, translator.target.tokens(written), spans, words_in(text)
    looks = side_of(*wrote, begin=not fills, end=fills)
    parts = (
        *_part("encoder", observe.weights["encoder"], source, source),
        *_part("cross", observe.weights["cross"], side_of(*wrote, end=ended), source),
        *_part("decoder", observe.weights["decoder"], looks, looks),
    )
    return Attention(line, text, parts)


def _reading(opened: Pipeline, line: str, kind: Kind) -> Attention:
    """Of a language model, which begins with BEGIN, or of one that reads whole lines, which have an END."""
    continues = kind == "language-model"
    ids = opened.encode(line)
    opened.check_length([*ids, END], 1)
    model: Any = opened.model_for()
    observe = Observer("encoder", "decoder")
    spans, words = opened.source.spans(line), words_in(line)
    side = side_of(line, opened.source.tokens(ids), spans, words, begin=continues, end=not continues)
    tokens, layout = pad([[BEGIN, *ids] if continues else [*ids, END]], device_of(model))
    if continues:
        model.decode(tokens, model.start(), layout, observe)
        return Attention("", line, tuple(_part("decoder", observe.weights["decoder"], side, side)))
    (model.encode if hasattr(model, "encode") else model.classify)(tokens, layout, observe)
    if count := getattr(opened.recipe.model, "hops", 0):
        hops = tuple(str(n) for n in range(1, count + 1))
        rows = [weights.reshape(1, 1, count, -1) for weights in observe.weights["encoder"]]
        return Attention(line, "", tuple(_part("hops", rows, Side(hops, hops, np.eye(count)), side)))
    return Attention(line, "", tuple(_part("encoder", observe.weights["encoder"], side, side)))


def _part(name: PartName, found: Sequence[Tensor], rows: Side, columns: Side) -> list[Part]:
    """What was seen of one line, (1, H, T, S) a layer; nothing, if nothing was. Heads that a layer lacks are zeros."""
    if not found:
        return []
    heads = max(layer.shape[1] for layer in found)
    each = (np.pad(layer[0].cpu().numpy(), ((0, heads - layer.shape[1]), (0, 0), (0, 0))) for layer in found)
    weights = np.stack([*each]).astype(np.float32)
    return [Part(name, weights[:, :, : len(rows.names), : len(columns.names)], rows, columns)]


def side_of(
    line: str,
    tokens: Sequence[str],
    spans: Sequence[Span],
    words: Sequence[Span],
    *,
    begin: bool = False,
    end: bool = True,
) -> Side:
    """The tokens of a line and its words, both with their spans.

    A token of nothing but space belongs to the word behind it, or to the last. Whatever else has no characters in the
    line (begin, end, a language's tag) is a word by itself.
    """
    names = [*["<s>"] * begin, *tokens, *["</s>"] * end]
    spans = [*[(0, 0)] * begin, *spans, *[(0, 0)] * end]
    # Of each word the shares that the tokens have in it, (tokens,), and its number.
    found: list[tuple[str, NDArray[np.float64], int]] = []
    shares = shares_of(spans, words)
    for token in np.flatnonzero(shares.sum(axis=1) == 0).tolist():
        if words and not names[token].strip("\u2581 "):
            behind = (i for i, (start, _) in enumerate(words) if start >= spans[token][1])
            shares[token, next(behind, len(words) - 1)] = 1
        else:
            found.append((names[token], np.eye(len(names))[token], -1))
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-9)
    for number, ((first, last), column) in enumerate(zip(words, shares.T, strict=True)):
        if column.any():  # some may have no token
            found.append((line[first:last], column, number))
    found.sort(key=lambda word: int(np.flatnonzero(word[1])[0]))
    texts, columns, numbers = zip(*found, strict=True)
    return Side(tuple(names), texts, np.stack(columns, axis=1), numbers)
