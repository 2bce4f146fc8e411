"""How far a model's probabilities may be believed, measured on pairs that it was not trained on, and put right.

Tokens: made to write the references, the model names its likeliest token at every step; that token is right if it is
the reference's. One temperature, by which the logits are divided, makes the references as likely as it can (Guo et al.
2017). Words: of its own translations, a word is right if it stands in the reference by the fewest edits. For both, a
curve then reads probabilities as shares that are right (`regard.metrics.reliability.curve`).
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

from regard.bundle import Calibration, on_curve
from regard.errors import DataError, TextError
from regard.metrics.reliability import curve, kept_words, reliability
from regard.models.interface import EncoderDecoder
from regard.text.words import words

from .details import links_of, steps_of, sums_of, target_spans
from .forced import Forced, forced, hidden_of, logits_of
from .translate import Translator

__all__ = ["calibrate", "fit_temperature", "mutual_information"]

_BATCH = 32
_COLDEST, _HOTTEST = 0.05, 20.0
_LEAST = 10
"""Lines of each half, without which figures mean nothing."""

Floats = NDArray[np.float64]
Parts = Callable[[], Iterator[tuple[Tensor, Tensor]]]
"""Logits (n, V) and the tokens that came (n,), part by part, as often as it is called."""


@dataclass(frozen=True)
class _Steps:
    """Every step of some lines: what the model projects (N, D), and the tokens that came (N,)."""

    model: EncoderDecoder
    hidden: Tensor
    wanted: Tensor

    def __call__(self) -> Iterator[tuple[Tensor, Tensor]]:
        at = 0
        for logits in logits_of(self.model, self.hidden):
            yield logits, self.wanted[at : at + len(logits)]
            at += len(logits)


@dataclass(frozen=True)
class _Verdicts:
    """Confidences, and what was right."""

    given: Floats
    right: NDArray[np.bool_]
    nll: float | None = None
    """Negative log-likelihood of what came, in all."""

    @property
    def curve(self) -> tuple[tuple[float, float], ...]:
        return curve(self.given.tolist(), self.right.tolist())

    def read_by(self, other: _Verdicts) -> _Verdicts:
        """The same by the curve of others."""
        read = other.curve
        return _Verdicts(np.array([on_curve(read, value) for value in self.given.tolist()]), self.right)


def _joined(halves: Sequence[_Verdicts]) -> _Verdicts:
    nlls = [half.nll for half in halves if half.nll is not None]
    return _Verdicts(
        np.concatenate([half.given for half in halves]),
        np.concatenate([half.right for half in halves]),
        sum(nlls) if nlls else None,
    )


def _report(halves: Sequence[_Verdicts]) -> dict[str, Any]:
    """Plain values, with the mean negative log-likelihood where it is known."""
    both = _joined(halves)
    found = reliability(both.given.tolist(), both.right.tolist()).to_dict()
    return found if both.nll is None else {"nll": both.nll / len(both.given), **found}


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
    plain = [_judged(half, 1.0) for half in steps]
    own = [_judged(half, value) for half, value in zip(steps, each, strict=True)]
    others = [_judged(half, value) for half, value in zip(steps, reversed(each), strict=True)]
    tokens = {
        "before": _report(plain),
        "temperature": _report(others),
        "after": _report([one.read_by(other) for one, other in zip(others, reversed(own), strict=True)]),
    }

    tell("translating")
    found = [t.hypotheses[0] for t in translator.translate(sources, from_=from_, to=to, precision="float32")]
    outputs = [candidate.ids for candidate in found]
    right = [_right(candidate.text, line) for candidate, line in zip(found, references, strict=True)]

    def of_words(value: float) -> list[_Verdicts]:
        """Of each half."""
        made = forced(translator.model, ids, outputs, temperature=value)
        sums = [
            sums_of(one.log_probabilities, target_spans(translator.target, candidate), words(candidate.text))
            for candidate, one in zip(found, made, strict=True)
        ]
        return [
            _Verdicts(np.exp([x for i in half for x in sums[i]]), np.array([r for i in half for r in right[i]], bool))
            for half in halves
        ]

    warm = of_words(temperature)
    if not all(len(half.given) for half in warm):
        raise DataError("the model's translations of these lines have too few words to calibrate by; give more lines.")
    tell("reading attention")
    rule, layer, tried = _reading(translator, sources, references, ids, written, to)
    return Calibration(
        temperature=temperature,
        tokens=_judged(both, temperature).curve,
        words=_joined(warm).curve,
        rule=rule,
        layer=layer,
        report={
            "lines": len(pairs),
            "tokens": tokens,
            "words": {
                "before": _report(of_words(1.0)),
                "temperature": _report(warm),
                "after": _report([one.read_by(other) for one, other in zip(warm, reversed(warm), strict=True)]),
            },
            "mutual_information": tried,
        },
    )


@torch.inference_mode()
def fit_temperature(parts: Parts, start: float = 1.0) -> float:
    """The temperature at which the tokens that came are likeliest: Newton's method on its inverse, where it is convex.

    Between 0.05 and 20, which only a model that is always right, or never better than chance, comes up against.
    """
    inverse = 1 / start
    for _ in range(30):
        slope = curve = 0.0
        for z, wanted in parts():
            weighed = (inverse * z).softmax(-1) * z
            mean = weighed.sum(-1)
            slope += float((mean - z.gather(1, wanted[:, None])[:, 0]).double().sum())
            curve += float(((weighed * z).sum(-1) - mean * mean).double().sum())
        wish = inverse - slope / max(curve, 1e-12)
        # A step no longer than a factor of 2, for far from the minimum the curve may be flat.
        new = min(max(wish, inverse / 2, 1 / _HOTTEST), 2 * inverse, 1 / _COLDEST)
        moved, inverse = abs(new - inverse), new
        if moved < 1e-5 * inverse:
            break
    return 1 / inverse


def mutual_information(pairs: Sequence[tuple[str, str]]) -> float:
    """How much linked words tell of each other, in nats a link; 0 for links at random, and for none."""
    ensemble_with, one, other = Counter(pairs), Counter(s for s, _ in pairs), Counter(t for _, t in pairs)
    n = len(pairs)
    return sum(count / n * math.log(count * n / (one[s] * other[t])) for (s, t), count in ensemble_with.items())


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
        reading, read = translator.reading.spans(source, to)
        wrote, tokens = words(target), translator.target.spans(target)
        for rule in ("output", "input"):
            for layer in range(len(made.attention) + 1):
                links = links_of(steps_of(made.attention, rule, layer), tokens, reading, wrote, read)
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
def _judged(parts: Parts, temperature: float) -> _Verdicts:
    """Of each step, the probability of the likeliest token, and whether it came."""
    given, right, nll = [], [], 0.0
    for logits, wanted in parts():
        rows = (logits / temperature).log_softmax(-1)
        best, token = rows.max(-1)
        given.append(best.double().exp().cpu().numpy())
        right.append((token == wanted).cpu().numpy())
        nll -= float(rows.gather(1, wanted[:, None]).double().sum())
    return _Verdicts(np.concatenate(given), np.concatenate(right), nll)


def _right(output: str, reference: str) -> list[bool]:
    """Of each word of an output, whether it stands in the reference."""
    sides = [[line[start:end] for start, end in words(line)] for line in (output, reference)]
    return kept_words(*sides)
