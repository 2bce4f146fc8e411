"""How far a model's probabilities may be believed, measured on pairs that it was not trained on, and put right.

Pieces: made to write the references, the model names its likeliest piece at every step; that piece is right if it is
the reference's. One temperature, by which the logits are divided, makes the references as likely as it can (Guo et al.
2017). Words: of its own translations, a word is right if it stands in the reference by the fewest edits; a slope and an
offset of the log-odds (Platt 1999) are fitted to that, since a good word may be none of the reference's.
What is reported was measured on lines that it was not fitted to: each half of the lines with what the other half gave.

The rule and the layer that alignments are read off are chosen here too: those under which linked words tell most of
each other (mutual information), which needs no gold links.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.bundle import Calibration, log_odds
from regard.errors import DataError, TextError
from regard.metrics.reliability import Reliability, kept_words, reliability
from regard.models.interface import EncoderDecoder
from regard.text.words import words

from .details import links_of, steps_of, sums_of
from .forced import Forced, forced, hidden_of, logits_of
from .translate import Translator

__all__ = ["calibrate", "fit_line", "fit_temperature", "mutual_information"]

_BATCH = 32
_COLDEST, _HOTTEST = 0.05, 20.0
_LEAST = 10
"""Lines of each half, without which figures mean nothing."""

Floats = NDArray[np.float64]
Parts = Callable[[], Iterator[tuple[Tensor, Tensor]]]
"""Logits (n, V) and the pieces that came (n,), part by part, as often as it is called."""


@dataclass(frozen=True)
class _Steps:
    """Every step of some lines: what the model projects (N, D), and the pieces that came (N,)."""

    model: EncoderDecoder
    hidden: Tensor
    wanted: Tensor

    def __call__(self) -> Iterator[tuple[Tensor, Tensor]]:
        at = 0
        for logits in logits_of(self.model, self.hidden):
            yield logits, self.wanted[at : at + len(logits)]
            at += len(logits)


def calibrate(
    translator: Translator,
    source: Sequence[str],
    reference: Sequence[str],
    *,
    from_: str | None = None,
    to: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Calibration:
    """The calibration of a model on these lines; pairs with an empty side are left out.

    Raises TextError for unequal counts and for lines that cannot be read, DataError for too few lines.
    """
    if len(source) != len(reference):
        raise TextError(
            f"{len(source):,} source lines but {len(reference):,} reference lines; line n of one must go with line n "
            "of the other."
        )
    tell = progress or (lambda what: None)
    pairs = [pair for pair in zip(source, reference, strict=True) if all(line.strip() for line in pair)]
    if len(pairs) < 2 * _LEAST:
        raise DataError(
            f"{len(pairs):,} pairs of lines have text; a calibration needs {2 * _LEAST} at least, and hundreds to be "
            "worth believing."
        )
    sources, references = [s for s, _ in pairs], [r for _, r in pairs]
    ids = translator.encode(sources, from_=from_, to=to)
    written = [translator.target.encode(line) for line in references]
    halves = [[*range(first, len(pairs), 2)] for first in (0, 1)]

    tell("reading the references")
    steps = [_steps(translator.model, [ids[i] for i in half], [written[i] for i in half]) for half in halves]
    both = _Steps(translator.model, torch.cat([s.hidden for s in steps]), torch.cat([s.wanted for s in steps]))
    tell("fitting the temperature")
    temperature = fit_temperature(both)
    each = [fit_temperature(half, start=temperature) for half in steps]
    before = [_judged(half, 1.0) for half in steps]
    after = [_judged(half, of_other) for half, of_other in zip(steps, reversed(each), strict=True)]
    pieces = {
        "nll": {"before": _nll(before), "after": _nll(after)},
        **_both(*(_joined([(p, r) for p, r, _ in judged]) for judged in (before, after))),
    }

    tell("translating")
    found = [t.hypotheses[0] for t in translator.translate(sources, from_=from_, to=to)]
    outputs = [list(candidate.ids) for candidate in found]
    right = [_right(candidate.text, line) for candidate, line in zip(found, references, strict=True)]

    def odds_at(value: float) -> list[Floats]:
        """Of each line's words."""
        made = forced(translator.model, ids, outputs, temperature=value)
        given = [
            sums_of(one.log_probabilities, translator.target_places(candidate), words(candidate.text))
            for candidate, one in zip(found, made, strict=True)
        ]
        return [np.array([log_odds(x) for x in line]) for line in given]

    plain, odds = odds_at(1.0), odds_at(temperature)

    def of(values: Sequence[Any], half: Sequence[int]) -> NDArray[Any]:
        return np.concatenate([np.asarray(values[i]) for i in half])

    slope, offset = fit_line(np.concatenate(odds), np.concatenate(right))
    lines = [fit_line(of(odds, half), of(right, half)) for half in halves]
    mapped = [
        (_logistic(a * of(odds, half) + b), of(right, half))
        for half, (a, b) in zip(halves, reversed(lines), strict=True)
    ]
    untouched = [(_logistic(of(plain, half)), of(right, half)) for half in halves]

    tell("reading attention")
    rule, layer, tried = _reading(translator, sources, references, ids, written, to)
    return Calibration(
        temperature=temperature,
        slope=slope,
        offset=offset,
        rule=rule,
        layer=layer,
        report={
            "lines": len(pairs),
            "pieces": pieces,
            "words": _both(_joined(untouched), _joined(mapped)),
            "mutual_information": tried,
        },
    )


@torch.inference_mode()
def fit_temperature(parts: Parts, start: float = 1.0) -> float:
    """The temperature at which the pieces that came are likeliest: Newton's method on its inverse, where it is convex.

    Between 0.05 and 20, which only a model that is always right, or never better than chance, comes up against.
    """
    inverse = 1 / start
    for _ in range(30):
        slope = curve = 0.0
        for logits, wanted in parts():
            z = logits.double()
            p = (inverse * z).softmax(-1)
            mean = (p * z).sum(-1)
            slope += float((mean - z.gather(1, wanted[:, None])[:, 0]).sum())
            curve += float(((p * z * z).sum(-1) - mean * mean).sum())
        wish = inverse - slope / max(curve, 1e-12)
        # A step no longer than a factor of 2, for far from the minimum the curve may be flat.
        new = min(max(wish, inverse / 2, 1 / _HOTTEST), 2 * inverse, 1 / _COLDEST)
        moved, inverse = abs(new - inverse), new
        if moved < 1e-5 * inverse:
            break
    return 1 / inverse


def fit_line(odds: Floats, right: NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and offset that make the logistic of slope * odds + offset the likeliest explanation of what was right.

    Newton's method; verdicts are drawn in a little (Platt 1999, section 2.2), so that none is certain.
    """
    good, bad = int(right.sum()), int((~right).sum())
    targets = np.where(right, (good + 1) / (good + 2), 1 / (bad + 2))
    terms = np.stack([odds, np.ones_like(odds)], axis=1)  # (N, 2)
    line = np.array([1.0, 0.0])

    def loss(line: Floats) -> float:
        z = terms @ line
        return float((np.logaddexp(0, z) - targets * z).sum())

    for _ in range(100):
        p = _logistic(terms @ line)
        slope = terms.T @ (p - targets)
        curve = (terms * (p * (1 - p))[:, None]).T @ terms + 1e-9 * np.eye(2)
        step = np.linalg.solve(curve, slope)
        while loss(line - step) > loss(line) and np.abs(step).max() > 1e-9:
            step /= 2
        line = line - step
        if np.abs(step).max() < 1e-8:
            break
    return float(line[0]), float(line[1])


def mutual_information(pairs: Sequence[tuple[str, str]]) -> float:
    """How much linked words tell of each other, in nats a link; 0 for links at random, and for none."""
    together, one, other = Counter(pairs), Counter(s for s, _ in pairs), Counter(t for _, t in pairs)
    n = len(pairs)
    return sum(count / n * math.log(count * n / (one[s] * other[t])) for (s, t), count in together.items())


def _reading(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    ids: Sequence[Sequence[int]],
    written: Sequence[Sequence[int]],
    to: str | None,
) -> tuple[Any, int, dict[str, float]]:
    """The rule and the layer (0: the mean of all), and what each was found worth; the defaults without attention."""
    pairs: dict[tuple[str, int], list[tuple[str, str]]] = {}

    def add(i: int, made: Forced) -> None:
        source, target = sources[i], references[i]
        reading, read = translator.source_places(source, to)
        wrote, pieces = words(target), translator.target.spans(target)
        for rule in ("output", "input"):
            for layer in range(len(made.attention) + 1):
                links = links_of(steps_of(made.attention, rule, layer), pieces, reading, wrote, read)
                pairs.setdefault((rule, layer), []).extend(
                    (source[slice(*read[link.source])].lower(), target[slice(*wrote[link.target])].lower())
                    for link in links
                )

    for start in range(0, len(ids), _BATCH):
        numbers = range(start, min(start + _BATCH, len(ids)))
        made = forced(translator.model, [ids[i] for i in numbers], [written[i] for i in numbers], attention=True)
        if not made[0].attention:
            return Calibration().rule, Calibration().layer, {}
        for i, one in zip(numbers, made, strict=True):
            add(i, one)
    worth = {reading: mutual_information(links) for reading, links in pairs.items()}
    rule, layer = max(worth, key=lambda reading: worth[reading])
    return rule, layer, {f"{rule} {layer or 'mean'}": value for (rule, layer), value in worth.items()}


@torch.inference_mode()
def _steps(model: EncoderDecoder, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> _Steps:
    hidden, wanted = [], []
    order = sorted(range(len(targets)), key=lambda i: len(targets[i]))
    for start in range(0, len(order), _BATCH):
        batch = order[start : start + _BATCH]
        h, w = hidden_of(model, [sources[i] for i in batch], [targets[i] for i in batch])
        real = torch.arange(w.shape[1]) <= torch.tensor([[len(targets[i])] for i in batch])
        hidden.append(h[real.to(h.device)])
        wanted.append(w[real.to(w.device)])
    return _Steps(model, torch.cat(hidden), torch.cat(wanted))


@torch.inference_mode()
def _judged(parts: Parts, temperature: float) -> tuple[Floats, NDArray[np.bool_], float]:
    """Of each step the probability of the likeliest piece, and whether it came; the negative log-likelihood of all."""
    given, right, nll = [], [], 0.0
    for logits, wanted in parts():
        rows = (logits.double() / temperature).log_softmax(-1)
        best, piece = rows.max(-1)
        given.append(best.exp().cpu().numpy())
        right.append((piece == wanted).cpu().numpy())
        nll -= float(rows.gather(1, wanted[:, None]).sum())
    return np.concatenate(given), np.concatenate(right), nll


def _nll(judged: Sequence[tuple[Floats, NDArray[np.bool_], float]]) -> float:
    return sum(nll for _, _, nll in judged) / sum(len(given) for given, _, _ in judged)


def _joined(halves: Sequence[tuple[Floats, NDArray[np.bool_]]]) -> Reliability:
    return reliability(np.concatenate([g for g, _ in halves]).tolist(), np.concatenate([r for _, r in halves]).tolist())


def _both(before: Reliability, after: Reliability) -> dict[str, Any]:
    return {"before": before.to_dict(), "after": after.to_dict()}


def _right(output: str, reference: str) -> NDArray[np.bool_]:
    """Of each word of an output, whether it stands in the reference."""
    sides = [[line[start:end] for start, end in words(line)] for line in (output, reference)]
    return np.array(kept_words(*sides), dtype=bool)


def _logistic(odds: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-np.clip(odds, -700, 700)))
    return found
