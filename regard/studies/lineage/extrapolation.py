"""Beyond the trained lengths: small Transformers that differ in positions alone, trained on short pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.data.store import pairs_of
from regard.errors import DataError
from regard.metrics import bleu
from regard.models.transformer import TransformerConfig
from regard.recipe import Recipe
from regard.settings import DataConfig
from regard.tasks.forced import perplexity_of, score_lines
from regard.tasks.translate import load
from regard.text import write_lines
from regard.train import TrainConfig

from .runs import Run
from .table import grouped

SCHEMES = ("sinusoidal", "learned", "t5", "alibi", "rotary")
_SHARE = 5
"""The schemes have together the minutes of one run."""
_GROUPS = 6
_FEWEST = 20
"""Lines of a group beyond the trained lengths, at least."""


def plan_schemes(runs: Sequence[Run]) -> list[Run]:
    """A run for each scheme, on the short pairs of these runs' corpus: no side has more words than the median source.

    Raises DataError if there is none.
    """
    like, out = runs[0].recipe, runs[0].out
    folder = out / "extrapolation" / "short"
    _write_short(like.data, folder)
    return [
        Run(f"positions-{scheme}", 1, _recipe(like, scheme, folder), out, "extrapolation", runs[0].variables)
        for scheme in SCHEMES
    ]


def score_schemes(runs: Sequence[Run], sources: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Perplexity of the references, and BLEU, by the words of the source, of every scheme that is trained."""
    longest = int((runs[0].out / "extrapolation" / "short" / "longest.txt").read_text(encoding="utf-8"))
    lengths = [len(line.split()) for line in sources]
    within = [i for i, length in enumerate(lengths) if length <= longest]
    beyond = [i for i, length in enumerate(lengths) if length > longest]
    parts = [(within, _GROUPS // 2), (beyond, min(_GROUPS // 2, max(1, len(beyond) // _FEWEST)))]
    groups = [[part[i] for i in group] for part, n in parts if part for group in grouped([lengths[i] for i in part], n)]
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        translator = load(run.path / "bundle")
        scored = score_lines(translator, sources, references)
        written = [one.text for one in translator.translate(sources, beam=1)]
        found[run.family.removeprefix("positions-")] = {
            "perplexity": [perplexity_of([scored[i] for i in group]).value for group in groups],
            "bleu": [
                bleu(
                    [written[i] for i in group],
                    [[references[i] for i in group]],
                    language=run.recipe.data.target_language,
                    resamples=0,
                ).value
                for group in groups
            ],
        }
    return {
        "longest": longest,
        "minutes": runs[0].recipe.train.minutes,
        "groups": [
            {"from": min(lengths[i] for i in group), "to": max(lengths[i] for i in group), "lines": len(group)}
            for group in groups
        ],
        "schemes": found,
    }


def _write_short(data: DataConfig, folder: Path) -> None:
    """Write the short pairs, those of the dev set, and the most words of a side."""
    folder.mkdir(parents=True, exist_ok=True)
    if (held := folder / "longest.txt").exists():
        return
    pairs = list(pairs_of(data))
    lengths = sorted(len(source.split()) for source, _ in pairs)
    most = lengths[len(lengths) // 2]
    sets = {"train": pairs, **({"valid": list(pairs_of(data, valid=True))} if data.valid_sources else {})}
    for name, each in sets.items():
        short = [pair for pair in each if max(len(side.split()) for side in pair) <= most]
        if not short:
            raise DataError(f"no pair of the {name} set has at most {most} words on both sides; give a larger one.")
        write_lines(folder / f"{name}.source", [source for source, _ in short])
        write_lines(folder / f"{name}.target", [target for _, target in short])
    held.write_text(f"{most}\n", encoding="utf-8")


def _recipe(like: Recipe, scheme: str, folder: Path) -> Recipe:
    """The same for every scheme but for its positions; `like` gives languages, vocabulary, search, time and device."""
    held_out = like.data.valid_sources != ()
    files: dict[str, Any] = {
        "source": str(folder / "train.source"),
        "target": str(folder / "train.target"),
        "valid_source": str(folder / "valid.source") if held_out else None,
        "valid_target": str(folder / "valid.target") if held_out else None,
        "test": {},
        "batch_tokens": 2048,
        "layout": "packed",
    }
    minutes = like.train.minutes / _SHARE
    return Recipe(
        name=f"positions-{scheme}",
        data=like.data.model_copy(update=files),
        text=like.text.model_copy(update={"shrink": True}),
        model=TransformerConfig(
            width=128, heads=4, feedforward=512, encoder_layers=2, decoder_layers=2, norm="pre", positions=scheme
        ),
        train=TrainConfig(
            minutes=minutes, max_updates=10**9, schedule="linear", learning_rate=2e-3,
            warmup=round(40 * minutes), clip=1.0,
            average="ema", validate_every=10**9, save_every=200, keep_checkpoints=1,
            device=like.train.device, precision=like.train.precision,
        ),
        search=like.search,
    )  # fmt: skip
