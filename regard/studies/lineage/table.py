"""What the runs gave: their figures side by side, scores by the length of the source, and who can be told apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import hypot
from pathlib import Path
from statistics import fmean
from typing import Any

from regard.metrics import Score, bleu, paired_bootstrap
from regard.recipe import Recipe
from regard.tasks.prepare import prepare
from regard.text import read_lines

from .runs import FAMILIES, HYPOTHESES, judged_by, kept_recipe

_METRICS = ("bleu", "chrf", "perplexity")
_GROUPS = 6
"""Groups of equal numbers of lines, by the length of the source."""
_SURE = 0.05


@dataclass(frozen=True)
class Result:
    """A run that is done, with what it wrote for the set that it is judged by."""

    family: str
    seed: int
    recipe: Recipe
    scores: dict[str, dict[str, Any]]
    training: dict[str, Any]
    set: str
    hypotheses: list[str]
    path: Path
    """Of the run itself, which may be on another machine."""

    @property
    def name(self) -> str:
        return f"{self.family}-{self.seed}"

    def lines(self) -> tuple[list[str], list[str]]:
        """Source and reference of the set."""
        if test := self.recipe.data.test.get(self.set):
            return read_lines(test.files[0]), read_lines(test.files[1])
        valid = prepare(self.recipe.corpus, self.recipe.spelling, self.path).valid
        return [valid.source.text(i) for i in range(len(valid))], [valid.target.text(i) for i in range(len(valid))]


def results(out: Path, variables: Mapping[str, str] | None = None) -> list[Result]:
    """All runs of which OUT/results holds what they wrote: the families in order, each by seed."""
    found = []
    for file in sorted((out / "results").glob(f"*/{HYPOTHESES}")):
        kept = file.parent
        recipe, held = kept_recipe(kept, out, variables or {}), json.loads((kept / "results.json").read_text("utf-8"))
        name = judged_by(recipe)
        scores = next(each["scores"] for each in held["scores"] if each["set"] == name)
        found.append(
            Result(
                recipe.model.family,
                recipe.seed,
                recipe,
                scores,
                held["training"],
                name,
                read_lines(file),
                out / "runs" / kept.name,
            )
        )
    order = {family: number for number, family in enumerate(FAMILIES)}
    return sorted(found, key=lambda one: (order.get(one.family, len(order)), one.family, one.seed))


def gather(found: Sequence[Result]) -> dict[str, Any]:
    """The figures of the runs as plain values: a row for each family, its runs in it."""
    rows = []
    for family, runs in _by_family(found).items():
        rows.append(
            {
                "family": family,
                "seeds": [run.seed for run in runs],
                **{metric: _over_seeds(runs, metric) for metric in _METRICS if metric in runs[0].scores},
                "parameters": runs[0].training["parameters"],
                **{key: fmean(run.training[key] for run in runs) for key in ("trained", "updates", "epochs")},
                "tokens_per_second": fmean(run.training["target_tokens"] / run.training["trained"] for run in runs),
            }
        )
    first = found[0]
    return {
        "set": first.set,
        "lines": len(first.hypotheses),
        "minutes": first.recipe.train.minutes,
        "languages": [first.recipe.data.source_language, first.recipe.data.target_language],
        "tokens": first.recipe.text.size,
        "search": first.recipe.search.model_dump(include={"beam", "alpha", "penalty"}),
        "signatures": {metric: first.scores[metric]["signature"] for metric in _METRICS if metric in first.scores},
        "precision": sorted({run.training["precision"] for run in found}),
        "threads": sorted({run.training["threads"] for run in found}),
        "families": rows,
        "by_length": by_length(found),
        "by_halves": by_halves(found),
        "told_apart": told_apart(found),
    }


def by_length(found: Sequence[Result]) -> dict[str, Any]:
    """BLEU by the words of the source (Bahdanau et al. 2015, figure 2), of each family the mean over its seeds.

    Lines are grouped by length so that groups are about equal in size and no length is in two of them.
    """
    sources, references = found[0].lines()
    lengths = [len(line.split()) for line in sources]
    groups = grouped(lengths, _GROUPS)
    return {
        "groups": [
            {
                "from": min(lengths[i] for i in group),
                "to": max(lengths[i] for i in group),
                "mean": fmean(lengths[i] for i in group),
                "lines": len(group),
            }
            for group in groups
        ],
        "bleu": {
            family: [fmean(_bleu_of(run, references, group, 0).value for run in runs) for group in groups]
            for family, runs in _by_family(found).items()
        },
    }


def by_halves(found: Sequence[Result]) -> dict[str, Any] | None:
    """Whether BLEU falls with the length of the source: of each family, that of the longer half of the lines less that
    of the shorter half. None if all lines are of one length.

    The halves have no line in common, so the squares of their intervals' widths add up; over seeds all is averaged.
    """
    sources, references = found[0].lines()
    lengths = [len(line.split()) for line in sources]
    halves = grouped(lengths, 2)
    if len(halves) < 2:
        return None
    families: dict[str, Any] = {}
    for family, runs in _by_family(found).items():
        scores = [[_bleu_of(run, references, half, 1000) for half in halves] for run in runs]
        shorter, longer = (fmean(pair[i].value for pair in scores) for i in range(2))
        widths = [[high - low for low, high in (each.interval for each in pair if each.interval)] for pair in scores]
        known = all(len(pair) == 2 for pair in widths)
        either_side = fmean(hypot(*pair) for pair in widths) / 2 if known else 0.0
        families[family] = {
            "shorter": shorter,
            "longer": longer,
            "interval": [longer - shorter - either_side, longer - shorter + either_side] if known else None,
        }
    return {"up_to": max(lengths[i] for i in halves[0]), "lines": [len(half) for half in halves], "families": families}


def told_apart(found: Sequence[Result], resamples: int = 1000) -> list[dict[str, Any]]:
    """Each pair of families: the paired bootstrap of their runs of equal seed.

    They are told apart if at every seed that both have the same one is ahead, with p below 0.05.
    """
    references = found[0].lines()[1]
    pairs = []
    for (one, ours), (other, theirs) in combinations(_by_family(found).items(), 2):
        others = {run.seed: run for run in theirs}
        compared = [
            paired_bootstrap(
                run.hypotheses,
                others[run.seed].hypotheses,
                [references],
                language=run.recipe.data.target_language,
                resamples=resamples,
            )["bleu"]
            for run in ours
            if run.seed in others
        ]
        if not compared:
            continue
        ahead = {each.difference > 0 for each in compared}
        pairs.append(
            {
                "pair": [one, other],
                "differences": [each.difference for each in compared],
                "p": [each.p_value for each in compared],
                "apart": len(ahead) == 1 and all(each.p_value < _SURE for each in compared),
            }
        )
    return pairs


def markdown(gathered: Mapping[str, Any]) -> str:
    """The table of the families, and what cannot be told apart."""
    columns: list[tuple[str, Callable[[Mapping[str, Any]], str]]] = [
        ("family", lambda row: str(row["family"])),
        ("BLEU", lambda row: spread(row.get("bleu"))),
        ("95 % over lines", lambda row: interval(row.get("bleu"))),
        ("chrF", lambda row: spread(row.get("chrf"))),
        ("perplexity a token", lambda row: spread(row.get("perplexity"))),
        ("parameters", lambda row: f"{row['parameters']:,}"),
        ("minutes", lambda row: f"{row['trained'] / 60:.1f}"),
        ("updates", lambda row: f"{row['updates']:,.0f}"),
        ("target tokens/s", lambda row: f"{row['tokens_per_second']:,.0f}"),
    ]
    lines = [
        f"{'-'.join(filter(None, gathered['languages'])) or 'one corpus'}, {gathered['set']} "
        f"({gathered['lines']:,} lines); {gathered['minutes']:g} minutes of training each; seeds: "
        + ", ".join(f"{row['family']} {len(row['seeds'])}" for row in gathered["families"])
        + ". Means over seeds, in brackets the lowest and the highest.",
        "",
        "| " + " | ".join(name for name, _ in columns) + " |",
        "|---" * len(columns) + "|",
        *("| " + " | ".join(show(row) for _, show in columns) + " |" for row in gathered["families"]),
        "",
        *(f"{metric}: `{signature}`" for metric, signature in gathered["signatures"].items()),
    ]
    unsure = [" and ".join(each["pair"]) for each in gathered["told_apart"] if not each["apart"]]
    if gathered["told_apart"]:
        lines += ["", f"Not told apart by BLEU (paired bootstrap, every seed): {'; '.join(unsure) or 'none'}."]
    if halves := gathered["by_halves"]:
        falls = [
            f"{family} {half['longer'] - half['shorter']:+.2f}"
            + (" ({:+.2f} to {:+.2f})".format(*half["interval"]) if half["interval"] else "")
            for family, half in halves["families"].items()
        ]
        lines += [
            "",
            f"BLEU of lines of more than {halves['up_to']} words less that of the others: {'; '.join(falls)}.",
        ]
    return "\n".join(lines) + "\n"


def _bleu_of(run: Result, references: Sequence[str], lines: Sequence[int], resamples: int) -> Score:
    """Of some of the lines."""
    return bleu(
        [run.hypotheses[i] for i in lines],
        [[references[i] for i in lines]],
        language=run.recipe.data.target_language,
        resamples=resamples,
    )


def _by_family(found: Iterable[Result]) -> dict[str, list[Result]]:
    families: dict[str, list[Result]] = {}
    for run in found:
        families.setdefault(run.family, []).append(run)
    return families


def _over_seeds(runs: Sequence[Result], metric: str) -> dict[str, Any]:
    """Mean, lowest and highest over seeds; the interval is the mean of the runs' own, over lines."""
    values = [run.scores[metric]["value"] for run in runs]
    intervals = [run.scores[metric]["interval"] for run in runs]
    return {
        "values": values,
        "mean": fmean(values),
        "lowest": min(values),
        "highest": max(values),
        "interval": [fmean(ends) for ends in zip(*intervals, strict=True)] if all(intervals) else None,
    }


def grouped(lengths: Sequence[int], count: int) -> list[list[int]]:
    """Line numbers in groups of rising length, `count` of them at most and as equal in size as can be; lines of equal
    length stay together."""
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    ends = [n for n in range(1, len(order)) if lengths[order[n]] > lengths[order[n - 1]]] + [len(order)]
    chosen = {min(ends, key=lambda end: abs(end - len(order) * part / count)) for part in range(1, count + 1)}
    return [order[start:end] for start, end in pairwise([0, *sorted(chosen)])]


def spread(over: Mapping[str, Any] | None) -> str:
    """A figure over seeds: its mean, and the lowest and the highest where there are several."""
    if over is None:
        return "—"
    several = f" ({over['lowest']:.2f}–{over['highest']:.2f})" if len(over["values"]) > 1 else ""
    return f"{over['mean']:.2f}{several}"


def interval(over: Mapping[str, Any] | None) -> str:
    """Both ends of a figure's interval."""
    return f"{over['interval'][0]:.2f}–{over['interval'][1]:.2f}" if over and over["interval"] else "—"
