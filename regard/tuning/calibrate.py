"""How far a model's probabilities may be believed, measured on pairs that it was not trained on, and put right.

Tokens: made to write the references, the model names its likeliest token at every step; that token is right if it is
the reference's. One temperature, by which the logits are divided, makes the references as likely as it can (Guo et al.
2017). Words: of its own translations, a word is right if it stands in the reference by the fewest edits. For both, a
curve then reads probabilities as shares that are right (`regard.tuning.reliability.curve`).
What is reported was measured on lines that it was not fitted to: each half of the lines with what the other half gave.

The rule and the layer that alignments are read off are chosen here too: those under which linked words tell most of
each other (mutual information), which needs no gold links.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.bundle import Calibration, on_curve
from regard.errors import DataError
from regard.models.interface import EncoderDecoder
from regard.tasks.details import links_of, steps_of, sums_of, target_spans
from regard.tasks.forced import forced, hidden_of, logits_of
from regard.tasks.lines import check_counts
from regard.tasks.translate import Translator
from regard.tasks.translation import Candidate
from regard.text import PAD
from regard.text.sentences import words

from .reliability import curve, kept_words, reliability

_BATCH = 32
_COLDEST, _HOTTEST = 0.05, 20.0
_LEAST = 10  #: Lines of each half, without which figures mean nothing.

Rule = Literal["output", "input"]
Floats = NDArray[np.float64]
Parts = Callable[[], Iterator[tuple[Tensor, Tensor]]]
"""Logits (n, V) and the tokens that came (n,), part by part, as often as it is called."""


@dataclass(frozen=True)
class _Pairs:
    """Lines and their references, as text and as ids."""

    sources: list[str]
    references: list[str]
    ids: list[list[int]]
    written: list[list[int]]
    to: str | None


@dataclass(frozen=True)
class _Verdicts:
    """Confidences, and what was right."""

    given: Floats
    right: NDArray[np.bool_]
    nll: float = math.nan  #: Negative log-likelihood of what came, in all, where it is known.

    @property
    def curve(self) -> tuple[tuple[float, float], ...]:
        return curve(self.given.tolist(), self.right.tolist())

    def __add__(self, other: _Verdicts) -> _Verdicts:
        given, right = np.append(self.given, other.given), np.append(self.right, other.right)
        return _Verdicts(given, right, self.nll + other.nll)

    def read_by(self, points: Sequence[tuple[float, float]]) -> _Verdicts:
        """As a curve reads the confidences."""
        return _Verdicts(np.array([on_curve(points, value) for value in self.given.tolist()]), self.right)

    def report(self) -> dict[str, object]:
        """Plain values, with the mean negative log-likelihood where it is known."""
        found = reliability(self.given.tolist(), self.right.tolist()).to_dict()
        return found if math.isnan(self.nll) else {"nll": self.nll / len(self.given), **found}


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
    check_counts(source, reference, "reference")
    tell = progress or (lambda what: None)
    kept = [pair for pair in zip(source, reference, strict=True) if all(line.strip() for line in pair)]
    if len(kept) < 2 * _LEAST:
        raise DataError(
            f"{len(kept):,} pairs of lines have text; a calibration needs {2 * _LEAST} at least, and hundreds to be "
            "worth believing."
        )
    sources, references = map(list, zip(*kept, strict=True))
    ids = translator.encode(sources, from_=from_, to=to)
    pairs = _Pairs(sources, references, ids, [translator.target.encode(line) for line in references], to)
    tell("reading the references")
    first, second = (_steps(translator.model, pairs.ids[half], pairs.written[half]) for half in _HALVES)

    def both() -> Iterator[tuple[Tensor, Tensor]]:
        return chain(first(), second())

    tell("fitting the temperature")
    temperature = fit_temperature(both)
    tokens = _tokens(first, second, temperature)
    tell("translating")
    found = [t.hypotheses[0] for t in translator.translate(sources, from_=from_, to=to, precision="float32")]
    cold, warm = (_words(translator, pairs, found, value) for value in (1.0, temperature))
    if not all(len(half.given) for half in warm):
        raise DataError("the model's translations of these lines have too few words to calibrate by; give more lines.")
    tell("reading attention")
    rule, layer, tried = _reading(translator, pairs)
    crossed = warm[0].read_by(warm[1].curve) + warm[1].read_by(warm[0].curve)
    in_words = {"before": cold[0] + cold[1], "temperature": warm[0] + warm[1], "after": crossed}
    return Calibration(
        temperature=temperature,
        tokens=_judged(both, temperature).curve,
        words=in_words["temperature"].curve,
        rule=rule,
        layer=layer,
        report={
            "lines": len(kept),
            "tokens": tokens,
            "words": {step: verdicts.report() for step, verdicts in in_words.items()},
            "mutual_information": tried,
        },
    )


_HALVES = slice(0, None, 2), slice(1, None, 2)  #: Every other line, and those between.


def _tokens(first: Parts, second: Parts, start: float) -> dict[str, object]:
    """The report on tokens; each half is judged by the temperature and the curve of the other one."""
    one, other = fit_temperature(first, start), fit_temperature(second, start)
    crossed = [_judged(first, other), _judged(second, one)]
    after = crossed[0].read_by(_judged(second, other).curve) + crossed[1].read_by(_judged(first, one).curve)
    steps = {
        "before": _judged(first, 1.0) + _judged(second, 1.0),
        "temperature": crossed[0] + crossed[1],
        "after": after,
    }
    return {step: verdicts.report() for step, verdicts in steps.items()}


def _words(translator: Translator, pairs: _Pairs, found: Sequence[Candidate], temperature: float) -> list[_Verdicts]:
    """Of each half, the probabilities of the words of its translations, and whether they stand in the reference."""
    model = translator.engine.forcing("auto")
    made = forced(model, pairs.ids, [candidate.ids for candidate in found], temperature=temperature)
    given, right = [], []
    for candidate, one, reference in zip(found, made, pairs.references, strict=True):
        spans = words(candidate.text)
        given.append(sums_of(one.log_probabilities, target_spans(translator.target, candidate), spans))
        wanted = [reference[slice(*span)] for span in words(reference)]
        right.append(kept_words([candidate.text[slice(*span)] for span in spans], wanted))
    flat = chain.from_iterable
    return [_Verdicts(np.exp([*flat(given[half])]), np.array([*flat(right[half])], bool)) for half in _HALVES]


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
    both, one, other = Counter(pairs), Counter(s for s, _ in pairs), Counter(t for _, t in pairs)
    n = len(pairs)
    return sum(count / n * math.log(count * n / (one[s] * other[t])) for (s, t), count in both.items())


def _reading(translator: Translator, pairs: _Pairs) -> tuple[Rule, int, dict[str, float]]:
    """The rule and the layer (0: the mean of all), and what each was found worth; the defaults without attention."""
    linked: dict[tuple[Rule, int], list[tuple[str, str]]] = {}
    for start in range(0, len(pairs.ids), _BATCH):
        batch = slice(start, start + _BATCH)
        made = forced(translator.engine.forcing("auto"), pairs.ids[batch], pairs.written[batch], attention=True)
        if not made[0].attention:
            return Calibration().rule, Calibration().layer, {}
        for source, target, one in zip(pairs.sources[batch], pairs.references[batch], made, strict=True):
            reading, read = translator.reading.spans(source, pairs.to)
            wrote, tokens = words(target), translator.target.spans(target)
            for rule, layer in product(get_args(Rule), range(len(one.attention) + 1)):
                links = links_of(steps_of(one.attention, rule, layer), tokens, reading, wrote, read)
                linked.setdefault((rule, layer), []).extend(
                    (source[slice(*read[link.source])].lower(), target[slice(*wrote[link.target])].lower())
                    for link in links
                )
    worth = {reading: mutual_information(links) for reading, links in linked.items()}
    rule, layer = max(worth, key=lambda reading: worth[reading])
    return rule, layer, {f"{rule} {layer or 'mean'}": value for (rule, layer), value in worth.items()}


@torch.inference_mode()
def _steps(model: EncoderDecoder, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Parts:
    """Every step of some lines."""
    hidden, wanted = [], []
    order = sorted(range(len(targets)), key=lambda i: len(targets[i]))
    for start in range(0, len(order), _BATCH):
        batch = order[start : start + _BATCH]
        h, w = hidden_of(model, [sources[i] for i in batch], [targets[i] for i in batch])
        hidden.append(h[w != PAD])
        wanted.append(w[w != PAD])
    every, came = torch.cat(hidden), torch.cat(wanted)  # (N, D), (N,)

    def parts() -> Iterator[tuple[Tensor, Tensor]]:
        at = 0
        for logits in logits_of(model, every):
            yield logits, came[at : at + len(logits)]
            at += len(logits)

    return parts


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
