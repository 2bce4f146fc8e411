"""What can be said of a translation beside its text: its words, how sure the model is of each, where each comes from.

Spans are characters of the lines as they are: the first of a word and the one behind its last, counted from 0.
Sizes: T target tokens, S source tokens; N target and M source words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import ModelError
from regard.search.table import Options
from regard.text.sentences import words
from regard.text.tokenizer import UNK, Tokenizer

from .forced import Forced
from .lines import SourceSide
from .translation import Candidate, Translation, WordLink, WordSpan

if TYPE_CHECKING:
    from .translate import Translator

Span = tuple[int, int]
Spans = Sequence[Span]
Weights = NDArray[np.float32]


def words_of(text: str, spans: Spans, confidences: Sequence[float] = ()) -> tuple[WordSpan, ...]:
    """The words of a line at these spans, with how sure the model is of each if that is given."""
    sure: Sequence[float | None] = confidences or [None] * len(spans)
    return tuple(WordSpan(text[start:end], start, end, c) for (start, end), c in zip(spans, sure, strict=True))


def sums_of(log_probabilities: Sequence[float], tokens: Spans, spans: Spans) -> list[float]:
    """The log-probability of each word, from those of the tokens: all of a word's must be right for the word to be.

    A token of nothing but space belongs to the word behind it; what comes after the last token, the end, to none.
    """
    sums = np.zeros(len(spans))
    shares = shares_of(tokens, spans) > 0  # (T, N)
    for token, (_, end) in enumerate(tokens):
        behind = (i for i, (start, _) in enumerate(spans) if start >= end)
        owners = shares[token].nonzero()[0].tolist() or [*behind][:1]
        sums[owners] += log_probabilities[token]
    return [float(value) for value in sums]


def links_of(
    weights: Weights, target_tokens: Spans, source_tokens: Spans, target_words: Spans, source_words: Spans
) -> tuple[WordLink, ...]:
    """A link for each target word that looks at a source word at all, from weights (T, S) between tokens.

    A source word's weight is the sum over its tokens, a target word's the mean over its own; a token that stands in
    several words counts for each by its share of characters.
    """
    if not target_words or not source_words:
        return ()
    to, of = shares_of(target_tokens, target_words), shares_of(source_tokens, source_words)  # (T, N), (S, M)
    merged = (to / np.maximum(to.sum(axis=0), 1e-9)).T @ weights @ of  # (N, M)
    best: list[int] = merged.argmax(axis=1).tolist()
    return tuple(WordLink(i, j, round(float(merged[j, i]), 6)) for j, i in enumerate(best) if merged[j, i] > 0)


def steps_of(layers: Sequence[Weights], rule: str, layer: int, head: int = 0) -> Weights:
    """Each layer's weights (H, T + 1, S + 1), a row a step -> (T, S), a row a token; ends are left out.

    The rule says whether a token's row is the step that reads it ("input") or the one that writes it ("output").
    `layer` and `head` count from 1; 0 is the mean of all.
    """
    chosen = layers if layer == 0 else [layers[layer - 1]]
    rows = np.stack([each[head - 1] if head else each.mean(axis=0) for each in chosen]).mean(axis=0)
    return np.asarray((rows[1:] if rule == "input" else rows[:-1])[:, :-1], dtype=np.float32)


def shares_of(tokens: Spans, words: Spans) -> NDArray[np.float64]:
    """(tokens, words): how much of a token's characters, spaces aside, stands in each word."""
    starts, ends = np.array(tokens, dtype=np.int64).reshape(-1, 2).T
    firsts, lasts = np.array(words, dtype=np.int64).reshape(-1, 2).T
    common = np.minimum(ends[:, None], lasts) - np.maximum(starts[:, None], firsts)
    kept = np.maximum(common, 0).astype(np.float64)
    shares: NDArray[np.float64] = kept / np.maximum(kept.sum(axis=1, keepdims=True), 1)
    return shares


# -- a translation with what was asked for -----------------------------------------------------------------------------


def detailed(found: Translation, line: str, made: Forced, translator: Translator, options: Options) -> Translation:
    """The translation of a line with what was asked for beside it, from the forced decoding of its best candidate."""
    best, calibration = found.hypotheses[0], translator.calibration
    changes: dict[str, Any] = {}
    log_probabilities = made.log_probabilities[: len(best.tokens)]
    spans, tokens = words(best.text), target_spans(translator.target, best)
    if options.confidence:
        changes["confidences"] = tuple(calibration.token(value) for value in log_probabilities)
        sums = sums_of(log_probabilities, tokens, spans)
        changes["words"] = words_of(best.text, spans, [calibration.word(value) for value in sums])
    elif options.alignment:
        changes["words"] = words_of(best.text, spans)
    if options.alignment:
        reading, read = translator.reading.spans(line, options.to)
        changes["source_words"] = words_of(line, read)
        weights = steps_of(layers_of(made), calibration.rule, calibration.layer)
        changes["alignment"] = links_of(weights, tokens, reading, spans, read)
    if options.attention:
        mean = layers_of(made)[-1].mean(axis=0)  # of the last layer's heads
        changes["attention"] = np.asarray(mean[: len(best.tokens)], dtype=np.float32)
    return replace(found, **changes)


def with_unknown_replaced(
    found: Translation, line: str, made: Forced, source: SourceSide, target: Tokenizer, to: str | None
) -> Translation:
    """The translation with a source word for each unknown one: what the step that wrote it looked at most."""
    best = found.hypotheses[0]
    tokens = target_spans(target, best)
    unknown = [span for span, i in zip(tokens, best.ids, strict=True) if i == UNK]
    reading, read = source.spans(line, to)
    text = best.text
    for link in reversed(links_of(steps_of(layers_of(made), "output", 0), tokens, reading, unknown, read)):
        (start, end), (first, last) = unknown[link.target], read[link.source]
        text = text[:start] + text[start:end].replace(text[start:end].strip(), line[first:last]) + text[end:]
    return replace(found, text=text)


def target_spans(target: Tokenizer, candidate: Candidate) -> list[Span]:
    """Where each of the candidate's tokens, its end aside, stands in its text."""
    raw = target.decode(candidate.ids)
    kept = list(accumulate((character != "\0" for character in raw), initial=0))  # a text has no NUL
    return [(kept[start], kept[end]) for start, end in target.spans_of(candidate.ids)]


def layers_of(made: Forced) -> Sequence[Weights]:
    """Each layer's weights; ModelError for a model that has none."""
    if not made.attention:
        raise ModelError(
            "this model has no attention between its two sides, so there is nothing to see or to align by; use one "
            "that has, such as a Transformer."
        )
    return made.attention
