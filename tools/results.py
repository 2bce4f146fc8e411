"""Make docs/results.md of results/*/*/results.json, of baselines and docs/anchors.toml: `python tools/results.py`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"
ANCHORS = ROOT / "docs" / "anchors.toml"
HEAD = """<!-- made by `python tools/results.py` -->
# Results beside published figures

What the recipes have reached, each in a file under `results/` that its command left, beside figures of papers and of
other projects. These were made with other data, text or hardware, so they say where a figure stands, not who is
better. In brackets is the 95 % interval over lines of one seed; another seed moves a figure further. Where a recipe
was run with several seeds, it is the mean, and the lowest and highest of them. *Not run* means that the recipe is
there and its training has not been. A published figure with * is recalled from the paper, and was not looked up
again.
"""
COMPARISONS = ("lineage-search", "convolutions", "lineage")
"""Folders of `results/` that `regard lineage` made, the newest first."""
HEADS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "word": "perplexity per word",
    "character:nats": "nats per character",
    "accuracy": "accuracy",
    "per": "phoneme error rate",
    "wer": "word error rate",
    "per-unstressed": "phonemes, no stress",
    "wer-unstressed": "words, no stress",
    "rouge-1": "ROUGE-1",
    "rouge-2": "ROUGE-2",
    "rouge-l": "ROUGE-L",
    "f1": "F1",
}
"""Figures by metric, or by metric and a detail of it."""


def results_of(recipe: str) -> list[Path]:
    """The results of recipes/`recipe`.toml: its own, one or one a seed, or each seed's of the newest comparison."""
    own = ROOT / "results" / recipe / "results.json"
    if seeds := sorted(ROOT.glob(f"results/{recipe}-[1-9]/results.json")):
        return seeds
    folder, _, name = recipe.partition("/")
    if own.exists():
        return [own]
    if folder != "multi30k-de-en":
        return []
    found = (sorted(ROOT.glob(f"results/{each}/{name}-*/results.json")) for each in COMPARISONS)
    return next(filter(None, found), [])


def scores_of(path: Path) -> dict[str, dict[str, Any]]:
    """By set, the scores of a result."""
    return {each["set"]: each["scores"] for each in json.loads(path.read_text("utf-8"))["scores"]}


def learnt(path: Path) -> str:
    """What a training that is scored on no set, as a pre-training is, came to on dev."""
    best = json.loads(path.read_text("utf-8"))["training"]["best_on_dev"]["scores"]
    return f"perplexity per token {best['perplexity']:.2f}"


def shown(seeds: list[dict[str, Any]], figure: str) -> str:
    """A figure with its interval, or with its range over seeds; a dash where a result has none."""
    metric, _, detail = figure.partition(":")
    found = [scores[metric] for scores in seeds if metric in scores]
    if not found:
        return "–"
    if detail:
        values, digits = [score["detail"][detail] for score in found], 3
    else:
        values, digits = [score["value"] for score in found], 2
    if len(values) > 1:
        low, high = min(values), max(values)
        return f"{mean(values):.{digits}f}, {low:.{digits}f} to {high:.{digits}f} of {len(values)} seeds"
    if detail:
        return f"{values[0]:.{digits}f}"
    interval = found[0]["interval"]
    return f"{values[0]:.2f}" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")


def links(recipe: str, paths: list[Path]) -> str:
    """To a recipe and to its results, one a seed."""
    names = ["result", *map(str, range(2, len(paths) + 1))]
    results = [f"[{name}](../{path.relative_to(ROOT)})" for name, path in zip(names, paths, strict=False)]
    return ", ".join([f"[recipe](../recipes/{recipe}.toml)", *results])


def rows_of(entry: dict[str, Any]) -> list[list[str]]:
    """System, figures and source of each row of a set: our recipes, baselines that we measured, what was published."""
    rows = []
    for recipe in entry["recipes"]:
        paths = results_of(recipe)
        seeds = [scores_of(path).get(entry["test"], {}) for path in paths]
        figures = [shown(seeds, figure) if paths else "not run" for figure in entry["figures"]]
        rows.append([f"**{recipe}**", *figures, links(recipe, paths)])
    for system, name in entry.get("baselines", {}).items():
        scores = scores_of(ROOT / name)[entry["test"]]
        rows.append([system, *(shown([scores], figure) for figure in entry["figures"]), f"[result](../{name})"])
    for row in entry["published"]:
        mark = "" if row.get("seen") else "\\*"
        missing = [""] * (len(entry["figures"]) - len(row["figures"]))
        figures = [f"{figure}{mark}" if figure else "–" for figure in [*row["figures"], *missing]]
        rows.append([row["system"], *figures, row["source"]])
    return rows


def others(listed: set[str]) -> list[list[str]]:
    """Results of recipes that stand beside no published figure."""
    rows = []
    for path in sorted(ROOT.glob("results/*/*/results.json")):
        recipe = str(path.parent.relative_to(ROOT / "results"))
        if recipe in listed or not (ROOT / "recipes" / f"{recipe}.toml").exists():
            continue
        sets = {
            name: ", ".join(f"{HEADS[metric]} {shown([scores], metric)}" for metric in HEADS if metric in scores)
            for name, scores in scores_of(path).items()
        }
        for name, figures in (sets or {"dev": learnt(path)}).items():
            rows.append([f"**{recipe}**", f"`{name}`", figures, links(recipe, [path])])
    return rows


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    return "".join(f"| {' | '.join(line)} |\n" for line in [heads, ["---"] * len(heads), *rows])


def page() -> str:
    """The page as it should be."""
    entries = tomllib.loads(ANCHORS.read_text("utf-8"))["set"]
    parts = [HEAD]
    for entry in entries:
        what = "the dev set" if entry["test"] == "dev" else f"`{entry['test']}`"
        note = f" {entry['note']}" if entry["note"] else ""
        heads = ["", *(HEADS[figure] for figure in entry["figures"]), "from"]
        parts.append(f"## {entry['name']}\n\nOf {what}.{note}\n\n{table(heads, rows_of(entry))}")
    if rows := others({recipe for entry in entries for recipe in entry["recipes"]}):
        parts.append(f"## Others\n\n{table(['', 'set', 'figures', 'from'], rows)}")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
