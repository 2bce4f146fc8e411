"""Translate a source and score the output, as it is, against untouched references.

BLEU always, with its signature; every figure says what made it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.metrics import METRICS, Score, metric_names, score
from regard.search.table import Options
from regard.text import read_lines, split_tag

from .forced import Scored, perplexity_of, score_lines
from .lines import check_counts
from .translate import Translator, load

DEFAULT_METRICS = tuple(metric_names())

Lines = str | Path | Sequence[str]


@dataclass(frozen=True)
class Evaluation:
    """Scores by metric, how the output was made, and the output."""

    scores: dict[str, Score]
    lines: int
    decoding: dict[str, Any]  #: Every key of the search, whether batch-independent, precision, device.
    seconds: float  #: Spent translating.
    hypotheses: list[str]
    groups: dict[str, dict[str, Score]]
    """The same scores for each label of `groups`, where they were asked for; without intervals."""

    @property
    def sentences_per_second(self) -> float:
        """Lines translated a second."""
        return self.lines / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the hypotheses."""

        def plain(scores: dict[str, Score]) -> dict[str, Any]:
            return {name: value.to_dict() for name, value in scores.items()}

        groups = {label: plain(scores) for label, scores in self.groups.items()}
        return {
            "lines": self.lines,
            "scores": plain(self.scores),
            "decoding": self.decoding,
            "seconds": round(self.seconds, 3),
            "sentences_per_second": round(self.sentences_per_second, 2),
            **({"groups": groups} if groups else {}),
        }


def evaluate(
    bundle: str | Path | Translator,
    *,
    source: Lines,
    reference: Lines,
    metrics: Iterable[str] = DEFAULT_METRICS,
    **options: Any,
) -> Evaluation:
    """Score a bundle on a source and a reference, each a file or a list of lines; `options`: see `evaluate_lines`."""
    translator = bundle if isinstance(bundle, Translator) else load(bundle)
    lines, known = (read_lines(x) if isinstance(x, (str, Path)) else list(x) for x in (source, reference))
    return evaluate_lines(translator, lines, known, metrics=metrics, **options)


def evaluate_lines(
    translator: Translator,
    source: Sequence[str],
    reference: Sequence[str] | Sequence[Sequence[str]],
    options: Options | None = None,
    *,
    metrics: Iterable[str] = DEFAULT_METRICS,
    groups: Sequence[str] | None = None,
    resamples: int = 1000,
    progress: Callable[[int], None] | None = None,
    **given: Any,
) -> Evaluation:
    """Translate and score; `resamples` bootstrap samples give the 95 % intervals, 0 leaves them out.

    `reference` is a list of lines, or several such sets. `options`, or their names as keywords, are as in
    `Translator.translate`. `groups` gives each line one or more labels, between tabs: every label is scored on its own
    lines too. Perplexity is of the first references, whatever the search.
    Raises TextError or DataError for unequal counts and for lines that cannot be read.
    """
    several = [reference] if not reference or isinstance(reference[0], str) else reference
    sets = [[str(line) for line in lines] for lines in several]
    for other, what in (*((lines, "reference") for lines in sets), *([] if groups is None else [(groups, "group")])):
        check_counts(source, other, what)
    if not source:
        raise DataError("there is no line to evaluate; give at least one.")
    names = list(metrics)
    if not translator.in_order and names == [*DEFAULT_METRICS]:
        names.remove("perplexity")  # there is none, and nobody asked for it
    wanted = wanted_of(names)  # a wrong name is said now, not after translating
    options = Options.of(options, **given)
    settings = translator.searching(options)
    began = time.perf_counter()
    hypotheses = [t.text for t in translator.translate(source, options, progress=progress)]
    seconds = time.perf_counter() - began
    likely: list[Scored] = []
    if "perplexity" in names:
        how, (from_, to) = settings.precision, (options.from_, options.to)
        likely = score_lines(translator, source, sets[0], from_=from_, to=to, precision=how)

    def score_some(chosen: Sequence[int], resamples: int) -> dict[str, Score]:
        lines = [[side[i] for i in chosen] for side in (hypotheses, source, *sets)]
        language = language_of(translator, lines[1], options.to)
        found = score(lines[0], lines[2:], wanted, language=language, resamples=resamples)
        return {**found, "perplexity": perplexity_of([likely[i] for i in chosen])} if likely else found

    numbers: dict[str, list[int]] = {}
    for number, labels in enumerate(groups or ()):
        for label in dict.fromkeys(labels.split("\t")):
            numbers.setdefault(label, []).append(number)
    # Precision is that of products: exact precision multiplies float32 weights in float64.
    used = {"precision": translator.backend(settings).precision, "device": translator.device}
    return Evaluation(
        scores=score_some(range(len(source)), resamples),
        lines=len(source),
        decoding={**settings.model_dump(), **used},
        seconds=seconds,
        hypotheses=hypotheses,
        groups={label: score_some(some, 0) for label, some in sorted(numbers.items())},
    )


def wanted_of(metrics: Iterable[str]) -> list[str]:
    """What is asked of hypotheses and references, BLEU first; raises DataError for a metric that there is not."""
    names = metric_names(["bleu", *metrics])
    if trees := [name for name in names if METRICS[name].reads == "trees"]:
        raise DataError(f"{trees[0]} scores trees, and these are translations; `regard parse --evaluate` has it.")
    wanted = [name for name in names if METRICS[name].reads == "text"]
    score(["a"], [["a"]], wanted, resamples=0)  # says now that a package is missing
    return wanted


def language_of(translator: Translator, source: Sequence[str], to: str | None) -> str:
    """The one target language of these lines, or "" if there are several or it is not known."""
    if not translator.languages.targets:
        return translator.languages.target
    found = {to or split_tag(line)[0] for line in source}
    return str(found.pop()) if len(found) == 1 else ""
