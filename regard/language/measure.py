"""How well a model knows a text: perplexity per token, word and character, and the accuracy of a classifier.

Per token figures of different vocabularies do not compare; those per word (between spaces) and per character do. Each
line's end counts as one of each, as is usual. Sizes: N tokens of a stream, n of a context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast, get_args

import torch

from regard.errors import DataError, ModelError, TextError
from regard.metrics import Score, Unit, exact_match, perplexity
from regard.models import FAMILIES
from regard.models.blocks import device_of
from regard.models.interface import EncoderDecoder, LanguageModel
from regard.tasks.forced import score_lines
from regard.tasks.lines import pad
from regard.tasks.translate import Translator
from regard.text import BEGIN, END

from .cache import Cache, Row, chosen, log_probabilities
from .fill import classify, mask_of
from .open import Pipeline, open_bundle

_CHUNK = 1024


def measure(
    bundle: str | Path | Pipeline,
    source: Sequence[str],
    reference: Sequence[str] | None = None,
    *,
    resamples: int = 1000,
    device: str = "cpu",
    **options: Any,
) -> dict[str, Score]:
    """The figures that are for a bundle's kind: accuracy of labels (`reference`), or perplexities of a text.

    Raises TextError for unequal counts, and for references that are missing or not wanted.
    """
    opened = open_bundle(bundle, ["language-model", "reader", "classifier", "encoder-decoder"], device=device)
    if FAMILIES[opened.recipe.model.family].kind != "classifier":
        return perplexities(opened, source, reference, **options)
    if reference is None or len(reference) != len(source):
        raise TextError(
            f"{len(source):,} lines but {len(reference or ()):,} labels; give a file with the label of each line."
        )
    found = [choices[0].text for choices in classify(opened, source, top=1, **options)]
    score = exact_match(found, reference, resamples=resamples)
    return {"accuracy": Score("accuracy", score.value, score.signature, score.unit, score.interval)}


def perplexities(
    bundle: str | Path | Pipeline,
    lines: Sequence[str],
    target: Sequence[str] | None = None,
    *,
    stride: int = 0,
    cache: Cache | None = None,
    batch_size: int = 32,
    precision: str = "auto",
    device: str = "cpu",
) -> dict[str, Score]:
    """Perplexity of a text under a bundle's model, by unit: token, word, character.

    Of an encoder-decoder it is that of `target` after `lines`. Of a masked language model it is the pseudo-perplexity:
    each token given all others of its line (Salazar et al. 2020). A stream is cut into windows of its context;
    with `stride` each window predicts so many tokens only, and sees the rest of the context before them. A model with
    `carry` reads it as a whole, window after window. With `cache` a language model also looks back at what was said
    before, line after line or window after window; `choose_cache` chooses one.
    """
    opened = open_bundle(bundle, ["language-model", "reader", "encoder-decoder"], device=device)
    if not lines:
        raise DataError("there is no line to measure; give at least one.")
    kind = FAMILIES[opened.recipe.model.family].kind
    if (kind == "encoder-decoder") != (target is not None):
        raise ModelError(
            "an encoder-decoder's perplexity is of translations; give their lines too."
            if target is None
            else "this model reads one side only; leave the second text out."
        )
    if target is not None and stride:
        raise ModelError(f"stride ({stride}) is of a stream, and translations are lines; leave it out.")
    if target is not None:
        translator = Translator(cast(EncoderDecoder, opened.model), opened.recipe, opened.source, opened.target)
        scored = score_lines(translator, lines, target, batch_size=batch_size, precision=precision)
        return _by_unit(sum(s.log_probability for s in scored), sum(len(s.tokens) for s in scored), target)
    rows = list(_ROWS[kind](opened, lines, stride))
    carry = opened.recipe.carries
    if cache is not None:
        _check_looks_back(kind)
        how = cache.size, [(cache.flatness, cache.share)], carry
        (total,), count = log_probabilities(cast(LanguageModel, opened.model_for(precision)), rows, *how)
        return _by_unit(total, count, lines)
    total, count = log_probability(
        opened.model_for(precision), rows, 1 if carry else batch_size, reads=kind == "reader", carry=carry
    )
    # A masked language model is never asked for an end.
    return _by_unit(total, count, lines, ends=kind != "reader")


def choose_cache(
    bundle: str | Path | Pipeline,
    lines: Sequence[str],
    size: int = 500,
    *,
    precision: str = "auto",
    device: str = "cpu",
) -> Cache:
    """The cache of `size` positions that is best for these lines, which must not be those that are to be measured.

    Raises ModelError for a bundle that is no language model.
    """
    opened = open_bundle(bundle, ["language-model", "reader", "encoder-decoder"], device=device)
    _check_looks_back(FAMILIES[opened.recipe.model.family].kind)
    if not lines:
        raise DataError("there is no line to choose a cache by; give at least one.")
    rows = list(_of_lines(opened, lines, 0))
    return chosen(cast(LanguageModel, opened.model_for(precision)), rows, size, opened.recipe.carries)


def _check_looks_back(kind: str) -> None:
    if kind != "language-model":
        raise ModelError("a cache is of a language model, which reads a text from left to right; leave it out.")


@torch.inference_mode()
def log_probability(
    model: Any, rows: Sequence[Row], batch_size: int, reads: bool = False, carry: bool = False
) -> tuple[float, int]:
    """The summed natural log-probability of the scored tokens, and their number.

    A token is predicted at the position before it; a model that `reads` predicts it at its own. With `carry` each batch
    of rows goes on with the state in which the one before ended.
    """
    total, count, state = 0.0, 0, None
    order = range(len(rows)) if carry else sorted(range(len(rows)), key=lambda i: -len(rows[i][0]))
    for start in range(0, len(rows), batch_size):
        batch = [rows[i] for i in order[start : start + batch_size]]
        ids, layout = pad([row[0] for row in batch], device_of(model))
        wanted, _ = pad([row[1] for row in batch], device_of(model))
        if reads:
            hidden = model.encode(ids, layout)
        else:
            begin = model.start() if state is None or not carry else state
            hidden, state = model.decode(ids, begin, layout)
        positions = torch.arange(ids.shape[1], device=ids.device)
        begins = torch.tensor([row[2] for row in batch], device=ids.device)
        scored = (positions >= begins[:, None]) & (positions < layout.lengths[:, None])
        if reads:
            scored &= positions == begins[:, None]
        for h, t in zip(hidden[scored].split(_CHUNK), wanted[scored].split(_CHUNK), strict=True):
            total -= float(torch.nn.functional.cross_entropy(model.project(h).double(), t, reduction="sum"))
            count += len(t)
    return total, count


def _of_lines(opened: Pipeline, lines: Sequence[str], stride: int) -> Iterator[Row]:
    if opened.recipe.data.context:
        yield from _of_stream(opened, lines, stride)
        return
    for number, line in enumerate(lines, start=1):
        ids = opened.encode(line, number)
        opened.check_length([*ids, END], number)
        yield [BEGIN, *ids], [*ids, END], 0


def _of_stream(opened: Pipeline, lines: Sequence[str], stride: int) -> Iterator[Row]:
    """Windows of a stream, in which an end stands before the first line."""
    size = opened.capacity or opened.recipe.data.context
    if stride and opened.recipe.carries:
        raise ModelError("this model takes its state from window to window, all of the text before; leave stride out.")
    step = stride or size
    if not 1 <= step <= size:
        raise ModelError(f"stride is {stride}; it must be from 1 to the model's context, {size}.")
    stream = [END]
    for number, line in enumerate(lines, start=1):
        stream += [*opened.encode(line, number), END]
    for start in range(0, len(stream) - 1, step):
        end = min(start + step, len(stream) - 1)
        first = start if opened.recipe.carries else max(0, end - size)
        yield stream[first:end], stream[first + 1 : end + 1], start - first


def _of_masked(opened: Pipeline, lines: Sequence[str], stride: int) -> Iterator[Row]:
    mask = mask_of(opened)
    for number, line in enumerate(lines, start=1):
        ids = [*opened.encode(line, number), END]
        opened.check_length(ids, number)
        for position in range(len(ids) - 1):
            yield [*ids[:position], mask, *ids[position + 1 :]], ids, position


_ROWS = {"language-model": _of_lines, "reader": _of_masked}


def _by_unit(total: float, tokens: int, lines: Sequence[str], *, ends: bool = True) -> dict[str, Score]:
    counts = {
        "token": tokens,
        "word": sum(len(line.split()) + ends for line in lines),
        "character": sum(len(line) + ends for line in lines),
    }
    units: tuple[Unit, ...] = get_args(Unit)
    return {unit: perplexity(total, counts[unit], unit, ends_counted=ends) for unit in units}
