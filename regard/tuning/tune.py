"""`regard.tune`: how a bundle searches, chosen on validation data and written into the bundle.

Every figure comes from a search that was really run: a beam ranks while it searches, so that its list of hypotheses
cannot tell what another penalty would have found. One setting is varied at a time: the length penalty at the width that
the bundle has, where lines that ran on and then the length decide between the best and those that nothing tells apart
from it; the width at that penalty, where a narrower beam that is no worse by more than chance (paired bootstrap, Koehn
2004) is as good; the penalty's neighbours again at that width; minimum Bayes risk at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from regard import bundle as bundles
from regard.errors import DataError, ModelError
from regard.metrics import METRICS, Score
from regard.recipe import Recipe
from regard.search.table import SearchConfig, search_with
from regard.tasks.evaluate import Evaluation, Lines, evaluate_lines, language_of
from regard.tasks.golden import answered
from regard.tasks.lines import check_counts
from regard.tasks.translate import Translator, load
from regard.text import read_lines

from .settings import Grid

CHANCE = 0.05
"""Two settings count as equally good if equal systems differ as much at least so often."""
EVEN = 0.5
"""The same for penalties, which cost no time: here nothing speaks for the lower score but what it writes."""
_PLAIN = {
    "method": "", "samples": 0, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "groups": 1, "mbr": "none",
}  # fmt: skip
"""What makes a beam of any search."""
_WRITTEN = ("method", "beam", "penalty", "alpha", "samples", "temperature", "top_k", "top_p", "groups", "mbr")
_FEW = 500  #: Lines below which most differences are within chance.
_SEVERAL = 4  #: The width at which penalties are tried of a bundle whose search has none.

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Tried:
    """A setting, and what came of it."""

    search: SearchConfig
    score: Score
    bleu: Score  # of the lines that did not run on, if there are any
    ran_on: int  # lines of more than twice the characters of each of their references, and ten more
    seconds: float
    hypotheses: list[str]

    @property
    def length_ratio(self) -> float:
        """Tokens of the output for each token of the references, as BLEU counts them; below 1 BLEU takes points off.

        Lines that ran on are left out: a few of them would make all others look long enough.
        """
        return float(self.bleu.detail["hypothesis_tokens"]) / max(1.0, float(self.bleu.detail["reference_tokens"]))

    @property
    def name(self) -> str:
        """What sets it apart, in words."""
        search = self.search
        if search.draws:
            how = f"{search.draws} samples"
        elif search.beam == 1 and search.mbr == "none":
            how = "greedy"
        else:
            how = f"beam {search.beam}, {search.penalty} {search.alpha:g}"
        return how if search.mbr == "none" else f"{how}, mbr {search.mbr}"

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON, without the output."""
        return {
            "search": {key: getattr(self.search, key) for key in _WRITTEN},
            "score": self.score.value,
            "length_ratio": self.length_ratio,
            "ran_on": self.ran_on,
            "seconds": round(self.seconds, 2),
        }


@dataclass(frozen=True)
class Tuned:
    """All that was tried, in order, what was chosen and why, and where it was written."""

    metric: str
    signature: str
    lines: int
    tried: tuple[Tried, ...]
    before: Tried
    chosen: Tried
    why: tuple[str, ...]
    written: Path | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "metric": self.metric,
            "signature": self.signature,
            "lines": self.lines,
            "before": self.before.to_dict(),
            "chosen": self.chosen.to_dict(),
            "why": list(self.why),
            "tried": [one.to_dict() for one in self.tried],
            "written": None if self.written is None else str(self.written),
        }


def tune(
    bundle: str | Path,
    source: Lines,
    reference: Lines | Sequence[Sequence[str]],
    grid: Grid | None = None,
    *,
    out: str | Path | None = None,
    dry_run: bool = False,
    progress: Tell | None = None,
    **given: object,
) -> Tuned:
    """Chooses how the bundle at this path searches, by its score on these lines, and writes that into the bundle.

    source: a file of lines, or lines; reference: the same, or several sets of lines. What is tried is in `grid`, or in
    its fields as keywords: metric, penalty, alphas, beams, mbr, to. With `out` another bundle is written, with
    `dry_run` none. Nothing is written before all is measured. Raises ModelError for a model without a beam and for
    values that there are not, TextError and DataError for lines and metrics that cannot be used.
    """
    grid = Grid.of(grid, **given)
    translator = load(bundle)
    translator.check_steps("a beam and its length penalty are chosen for models that write token by token")
    lines = read_lines(source) if isinstance(source, (str, Path)) else list(source)
    if out is not None and not dry_run:
        bundles.check_place(Path(out))
    references = _sets(reference)
    for one in references:
        check_counts(lines, one, "reference")
    trials = _Trials(translator, lines, references, grid, progress or (lambda what: None))
    translator.translate(lines[:1], to=grid.to)  # what is loaded now costs no search its seconds
    before = trials.run(translator.recipe.search)
    chosen, why = _choose(trials, grid, before)
    if len(lines) < _FEW:
        why = (
            *why,
            f"{len(lines):,} lines tell little apart, so that narrow beams look as good; give {_FEW:,} or more",
        )
    found = Tuned(grid.metric, chosen.score.signature, len(lines), tuple(trials.done.values()), before, chosen, why)
    same = all(getattr(chosen.search, key) == getattr(before.search, key) for key in _WRITTEN)
    if dry_run or (same and out is None):
        return found
    return Tuned(**{**vars(found), "written": _write(translator, found, Path(out) if out else None)})


class _Trials:
    """Searches that were run, each once."""

    def __init__(
        self, translator: Translator, lines: list[str], references: list[list[str]], grid: Grid, tell: Tell
    ) -> None:
        if grid.metric not in METRICS or METRICS[grid.metric].reads != "text":
            known = ", ".join(name for name, metric in METRICS.items() if metric.reads == "text")
            raise DataError(f"--metric {grid.metric}: no metric of what a search writes; choose from {known}.")
        self.translator, self.lines, self.references, self.grid, self.tell = translator, lines, references, grid, tell
        self.metric = METRICS[grid.metric]
        self.language = language_of(translator, lines, grid.to)
        self.done: dict[SearchConfig, Tried] = {}

    def run(self, search: SearchConfig) -> Tried:
        """The outcome of a search."""
        if search not in self.done:
            began = time.perf_counter()
            found: Evaluation = evaluate_lines(
                self.translator,
                self.lines,
                self.references,
                search=search.model_dump(),
                to=self.grid.to,
                metrics=[self.grid.metric],
                resamples=0,
            )
            seconds = time.perf_counter() - began
            sides = list(zip(found.hypotheses, *self.references, strict=True))
            steady = [side for side in sides if len(side[0]) <= 2 * max(map(len, side[1:])) + 10]
            ran_on, bleu = len(sides) - len(steady), found.scores["bleu"]
            if steady and ran_on:
                kept, *references = map(list, zip(*steady, strict=True))
                bleu = METRICS["bleu"](kept, references, language=self.language, resamples=0)
            one = Tried(search, found.scores[self.grid.metric], bleu, ran_on, seconds, found.hypotheses)
            self.done[search] = one
            self.tell(f"{one.name}: {_figure(one)}, {seconds:.1f} s")
        return self.done[search]

    def worth(self, one: Tried) -> float:
        """What is to be as high as possible."""
        return one.score.value if self.metric.higher_is_better else -one.score.value

    def best(self, some: Sequence[Tried]) -> Tried:
        """The best; of equal ones the one whose length is nearest to the references', and then the first."""
        return max(some, key=lambda one: (self.worth(one), -abs(one.length_ratio - 1)))

    def even(self, some: Sequence[Tried]) -> Tried:
        """Of the best and what nothing tells apart from it: the fewest lines that ran on, then the nearest length."""
        top = self.best(some)
        equal = [one for one in some if one is top or self.chance(top, one) >= EVEN]
        return min(equal, key=lambda one: (one.ran_on, abs(one.length_ratio - 1), -self.worth(one)))

    def chance(self, one: Tried, other: Tried) -> float:
        """How often two equal systems would differ as much as these."""
        sides = one.hypotheses, other.hypotheses
        return self.metric.compare(*sides, self.references, language=self.language).p_value


def _choose(trials: _Trials, grid: Grid, before: Tried) -> tuple[Tried, tuple[str, ...]]:
    """The best setting, and why it is that."""
    start = search_with(before.search, _PLAIN)
    penalty = grid.penalty or ("gnmt" if start.penalty == "none" else start.penalty)
    width = start.beam if start.beam > 1 else _SEVERAL
    why = []

    def at(beam: int, alpha: float) -> Tried:
        return trials.run(search_with(start, {"beam": beam, "penalty": penalty, "alpha": alpha}))

    asked = {*grid.alphas, *((start.alpha,) if start.penalty == penalty else ())}
    first = trials.best([at(width, alpha) for alpha in sorted(asked)])
    between = [round((a + b) / 2, 3) for a, b in pairwise(sorted(asked)) if first.search.alpha in (a, b)]
    every = sorted({*asked, *between})
    tried = [at(width, alpha) for alpha in every]
    ranked, top = trials.even(tried), trials.best(tried)
    alpha = ranked.search.alpha
    best = f"alpha {top.search.alpha:g}: {_figure(top)}, the best at beam {width}"
    why.append(best if ranked is top else f"alpha {alpha:g}: {_figure(ranked)}, which nothing tells apart from {best}")
    if alpha == every[-1] and len(every) > 1:
        why.append(f"alpha {alpha:g} is the largest that was tried; larger ones might be better still: see --alphas")
    tried = [at(beam, alpha) for beam in sorted({*grid.beams, width})]
    top = trials.best(tried)
    chosen = top
    for one in tried:
        chance = 1.0 if one is top else trials.chance(top, one)
        if chance >= CHANCE:
            chosen = one
            break
    width = chosen.search.beam
    why.append(
        f"beam {width}: {_figure(chosen)}, the best"
        if chosen is top
        else f"beam {width}: {_figure(chosen)}, which is no further from the best ({_figure(top)} at beam "
        f"{top.search.beam}) than chance explains (p = {chance:.2f})"
    )
    near = every[max(0, every.index(alpha) - 1) : every.index(alpha) + 2]
    if width > 1 and width != ranked.search.beam and len(near) > 1:
        chosen = trials.even([chosen, *(at(width, value) for value in near)])
        why.append(f"alpha {chosen.search.alpha:g} again at beam {width}: {_figure(chosen)}")
    if grid.mbr:
        chosen = _with_mbr(trials, search_with(chosen.search, {"beam": max(grid.beams), "alpha": alpha}), chosen, why)
    limit = EVEN if _same(before, width) else CHANCE
    if trials.worth(before) > trials.worth(chosen) and trials.chance(chosen, before) < limit:
        why.append(f"what the bundle has ({before.name}) is better: {_figure(before)}")
        chosen = before
    return chosen, tuple(why)


def _same(before: Tried, width: int) -> bool:
    """Whether the bundle's own search is a beam of this width."""
    return not before.search.draws and before.search.beam == width and before.search.mbr == "none"


def _with_mbr(trials: _Trials, search: SearchConfig, chosen: Tried, why: list[str]) -> Tried:
    """Minimum Bayes risk where it is better by more than chance, for it takes a wide beam; else what was chosen."""
    if search.beam < 3:
        return chosen
    best = trials.best([trials.run(search_with(search, {"mbr": metric})) for metric in ("chrf", "bleu")])
    better = trials.worth(best) > trials.worth(chosen)
    chance = trials.chance(chosen, best)
    if better and chance < CHANCE:
        why.append(f"{best.name}: {_figure(best)}, better by more than chance explains (p = {chance:.3f})")
        return best
    how = f"better, but by no more than chance explains (p = {chance:.2f})" if better else "no better"
    why.append(f"no minimum Bayes risk: its best, {best.name}, is {how} ({_figure(best)})")
    return chosen


def _figure(one: Tried) -> str:
    lines = {0: "", 1: " but for a line that ran on"}.get(one.ran_on, f" but for {one.ran_on:,} lines that ran on")
    return f"{one.score.name} {one.score.value:.2f}, length ratio {one.length_ratio:.3f}{lines}"


def _sets(reference: Lines | Sequence[Sequence[str]]) -> list[list[str]]:
    """Sets of references, a line for each source line."""
    if isinstance(reference, (str, Path)):
        return [read_lines(reference)]
    single = [line for line in reference if isinstance(line, str)]
    return [single] if len(single) == len(reference) else [list(lines) for lines in reference]


def _write(translator: Translator, found: Tuned, out: Path | None) -> Path:
    """The bundle, or its copy, with the chosen search and the golden sentences as that one translates them."""
    bundle = translator.bundle
    if bundle is None:
        raise ModelError("what is chosen is written into a bundle; give a bundle's path.")
    recipe: Recipe = bundle.recipe.model_copy(update={"search": found.chosen.search})
    golden = answered([g.source for g in bundle.golden], bundle.model(), recipe, bundle.source, bundle.target)
    plain: Mapping[str, object] = found.to_dict()
    kept = ("metric", "signature", "lines", "before", "chosen", "why")
    note = {"when": datetime.now(UTC).isoformat(timespec="seconds"), **{key: plain[key] for key in kept}}
    return bundles.with_recipe(bundle, recipe, golden, {"tuned": note}, out).path
