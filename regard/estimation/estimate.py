"""`regard.estimate`: how good translations are, without a reference, from what a translator makes of them.

A translator is made to write each translation, whoever wrote it, and what it finds likely there tells of its quality
(Fomicheva et al. 2020, "Unsupervised Quality Estimation for Neural Machine Translation"). Alone that gives an order;
an estimator, a ridge regression that is learnt from judged translations, gives the judges' own figure, such as the
share of words that have to be edited (HTER), or points.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError, model_validator

from regard.errors import DataError, ModelError, TextError
from regard.machine import write_atomically
from regard.tasks.forced import Scored, score_lines
from regard.tasks.lines import check_counts
from regard.tasks.translate import Translator, load
from regard.text.sentences import words

from .correlation import spearman

Floats = NDArray[np.float64]

FEATURES = ("mean", "least", "deviation", "unlikely", "length", "ratio", "copied", "numbers")
"""Of a pair: mean, lowest and standard deviation of the tokens' log-probabilities, the share of tokens less likely than
0.1, the logarithm of the translation's tokens and of how many there are for one of the source's words, the share of
the source's words that stand in the translation unchanged, and the share of its numbers that do not."""
_OF_REVERSE = FEATURES[:4]
_STRENGTHS = tuple(10.0**power for power in range(-2, 6))
_FOLDS, _LEAST, _MOST_BYTES = 5, 20, 1 << 20


@dataclass(frozen=True)
class Agreement:
    """How far estimates and judgements of the same translations agree."""

    lines: int
    pearson: float
    spearman: float
    error: float | None  # mean absolute difference, where both are on one scale

    def to_dict(self) -> dict[str, float | None]:
        """Plain values for JSON."""
        return dict(vars(self))


class Estimator(BaseModel, extra="forbid", frozen=True, strict=True, allow_inf_nan=False):
    """What was learnt from judged translations: a weight for each feature, and what it was learnt with."""

    format: str = Field("regard-estimator-1", pattern="^regard-estimator-1$")
    bundle: str  # digests of the bundles that its features are of
    reverse: str = ""
    names: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    strength: float  # of the ridge
    lines: int
    pearson: float  # on lines that it was not learnt from, by cross-validation
    spearman: float
    error: float

    @model_validator(mode="after")
    def _fits(self) -> Estimator:
        wanted = (*FEATURES, *(f"reverse-{name}" for name in _OF_REVERSE if self.reverse))
        sizes = {len(self.means), len(self.scales), len(self.weights), len(wanted)}
        if self.names != wanted or len(sizes) > 1 or min(self.scales) <= 0:
            raise ValueError("its features are not those of this version")
        return self

    def of(self, features: Floats) -> Floats:
        """Features (N, F) -> what the judges would have said, (N,)."""
        found: Floats = (features - np.array(self.means)) / np.array(self.scales) @ np.array(self.weights)
        return found + self.bias

    @classmethod
    def read(cls, file: str | Path) -> Estimator:
        """The estimator in a file. Raises ModelError for a file that is missing or is none."""
        file = Path(file)
        try:
            if file.stat().st_size > _MOST_BYTES:
                raise ModelError(f"{file}: is too large for an estimator; name another file.")
            return cls.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            raise ModelError(f"{file}: there is no such estimator; learn one: regard estimate … --learn.") from None
        except (OSError, ValueError, ValidationError) as error:
            what = str(error).splitlines()[0]
            raise ModelError(f"{file}: is no estimator ({what}); learn one: regard estimate … --learn.") from None

    def write(self, file: str | Path) -> Path:
        """Writes it as JSON, whole or not at all."""
        write_atomically(Path(file), json.dumps(self.model_dump(), indent=1) + "\n")
        return Path(file)


def estimate(
    bundle: str | Path | Translator,
    source: Sequence[str],
    translation: Sequence[str],
    *,
    estimator: str | Path | Estimator | None = None,
    reverse: str | Path | Translator | None = None,
    precision: str = "auto",
) -> list[float]:
    """The quality of each translation, as its estimator was taught; without one its tokens' mean probability, 0 to 1.

    `reverse` is a translator of the other direction, where the estimator was learnt with one; without an estimator it
    counts as much as the first. Raises TextError for unequal counts, ModelError for an estimator of other bundles.
    """
    translators = _loaded(bundle, reverse)
    if estimator is not None and not isinstance(estimator, Estimator):
        estimator = Estimator.read(estimator)
    if estimator is not None and _digests(translators) != (estimator.bundle, estimator.reverse):
        raise ModelError(
            "the estimator was learnt with another bundle, or another reverse one; use it with those, or learn one."
        )
    features = _features(translators, source, translation, precision)
    if estimator is not None:
        return [float(value) for value in estimator.of(features)]
    means = features[:, [0, *([len(FEATURES)] if reverse else [])]].mean(1)
    return [float(value) for value in np.exp(means)]


def learn_estimator(
    bundle: str | Path | Translator,
    source: Sequence[str],
    translation: Sequence[str],
    judged: Sequence[float],
    *,
    reverse: str | Path | Translator | None = None,
    precision: str = "auto",
) -> Estimator:
    """An estimator learnt from judged translations: a ridge regression, as strong as cross-validation likes it best.

    Its `pearson`, `spearman` and `error` are of lines that it was not learnt from, in five parts. Raises TextError for
    unequal counts, DataError for fewer than 20 lines and for judgements that are all alike or not finite.
    """
    values = np.asarray(judged, float)
    check_counts(source, [""] * len(values), "judgement")
    if len(values) < _LEAST:
        raise DataError(f"{len(values)} judged lines: at least {_LEAST} are needed, and thousands are better.")
    if not np.isfinite(values).all() or np.ptp(values) == 0:
        raise DataError("the judgements are all alike, or not all are finite numbers; there is nothing to learn.")
    translators = _loaded(bundle, reverse)
    features = _features(translators, source, translation, precision)
    parts = np.arange(len(values)) % _FOLDS
    tried = {}
    for strength in _STRENGTHS:
        told = np.empty(len(values))
        for part in range(_FOLDS):
            means, scales, weights, bias = _ridge(features[parts != part], values[parts != part], strength)
            told[parts == part] = (features[parts == part] - means) / scales @ weights + bias
        tried[strength] = told
    best = min(tried, key=lambda strength: float(((tried[strength] - values) ** 2).mean()))
    means, scales, weights, bias = _ridge(features, values, best)
    found = agreement(tried[best].tolist(), values.tolist(), same_scale=True)
    digest, other = _digests(translators)
    return Estimator(
        bundle=digest,
        reverse=other,
        names=(*FEATURES, *(f"reverse-{name}" for name in _OF_REVERSE if reverse)),
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
        weights=tuple(weights.tolist()),
        bias=bias,
        strength=best,
        lines=len(values),
        pearson=found.pearson,
        spearman=found.spearman,
        error=found.error or 0.0,
    )


def agreement(estimates: Sequence[float], judged: Sequence[float], *, same_scale: bool = False) -> Agreement:
    """How far estimates agree with judgements; `same_scale`: also how far apart they are.

    Raises TextError for unequal counts, DataError where all of one side are alike.
    """
    ours, theirs = np.asarray(estimates, float), np.asarray(judged, float)
    check_counts([""] * len(ours), [""] * len(theirs), "judgement")
    ranks = spearman(estimates, judged)  # refuses what is all alike
    error = float(np.abs(ours - theirs).mean()) if same_scale else None
    return Agreement(len(ours), float(np.corrcoef(ours, theirs)[0, 1]), ranks, error)


def _loaded(bundle: str | Path | Translator, reverse: str | Path | Translator | None) -> list[Translator]:
    given = [bundle] if reverse is None else [bundle, reverse]
    found = [one if isinstance(one, Translator) else load(one, device="cpu") for one in given]
    one, other = found[0].languages, found[-1].languages
    turned = ((one.source, other.target), (one.target, other.source))
    if reverse is not None and any(a and b and a.split("-")[0] != b.split("-")[0] for a, b in turned):
        raise ModelError(f"--reverse is a translator {other}, and the first is {one}; name one of the other direction.")
    return found


def _digests(translators: Sequence[Translator]) -> tuple[str, str]:
    found = ["" if one.bundle is None else one.bundle.digest for one in translators]
    return found[0], found[1] if len(found) > 1 else ""


def _features(
    translators: Sequence[Translator], source: Sequence[str], translation: Sequence[str], precision: str
) -> Floats:
    """What is known of each pair, (N, F): `FEATURES`, and the first four of them of the reverse translator."""
    check_counts(source, translation, "translation")
    if not source:
        raise TextError("there is no line to estimate; give at least one.")
    rows = [_likely(one) for one in score_lines(translators[0], source, translation, precision=precision)]
    for row, one, other in zip(rows, source, translation, strict=True):
        row += _compared(one, other, row[-1])
    if len(translators) > 1:
        back = score_lines(translators[1], translation, source, precision=precision)
        for row, scored in zip(rows, back, strict=True):
            row += _likely(scored)[:4]
    return np.array(rows)


def _likely(scored: Scored) -> list[float]:
    each = np.array(scored.log_probabilities)
    unlikely = float((each < math.log(0.1)).mean())
    return [float(each.mean()), float(each.min()), float(each.std()), unlikely, math.log(len(each))]


def _compared(source: str, translation: str, tokens: float) -> list[float]:
    """How long the translation is for the source, and what of it stands there unchanged."""
    ours, theirs = [source[a:b] for a, b in words(source)], {translation[a:b] for a, b in words(translation)}
    numbers = [word for word in ours if any(map(str.isdigit, word))]
    return [
        tokens - math.log(len(ours) + 1),
        sum(word in theirs for word in ours) / max(1, len(ours)),
        sum(word not in theirs for word in numbers) / max(1, len(numbers)),
    ]


def _ridge(features: Floats, values: Floats, strength: float) -> tuple[Floats, Floats, Floats, float]:
    """Means, scales and weights of the features, and the bias: least squares with a penalty on the weights."""
    means, scales = features.mean(0), features.std(0)
    scales[scales < 1e-9] = 1.0
    x, bias = (features - means) / scales, float(values.mean())
    weights = np.linalg.solve(x.T @ x + strength * np.eye(x.shape[1]), x.T @ (values - bias))
    return means, scales, weights, bias
