"""The demonstration: a small Transformer on the built-in corpus, measured on values it never saw, from one call.

What it leaves in its directory is enough to recompute every figure: the bundle, the held-out lines with their
references, and the cell (languages and kind) that each line belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.models.transformer import TransformerConfig
from regard.recipe import Recipe
from regard.search.table import SearchConfig
from regard.settings import DataConfig, TrainConfig
from regard.text.lines import split_tag, tag, write_lines
from regard.text.subwords import TextConfig

from .corpus import KINDS, LANGUAGES, Example, Kind, Value, corpus, typed, write
from .nearest import Nearest

System = Literal["model", "copy", "nearest"]
Report = Callable[[dict[str, Any]], None]

SYSTEMS: tuple[System, ...] = ("model", "copy", "nearest")
# Lines of each of the 60 cells (12 directions x 5 kinds).
LINES = {"train": 2000, "valid": 20, "heldout": 40}

MOMENT = Value("datetime", "weekday", datetime(2026, 11, 21, 18, 5))
SHOWN: tuple[tuple[Value, str, str], ...] = (
    (MOMENT, "de", "zh"),
    (MOMENT, "zh", "fr"),
    (Value("date", "plain", datetime(2033, 2, 7)), "fr", "en"),
    (Value("time", "plain", datetime(2026, 1, 1, 0, 33)), "en", "de"),
    (Value("number", "million", number=Decimal(18_600_000)), "en", "zh"),
    (Value("amount", "name", number=Decimal("79225.61"), currency="USD"), "fr", "de"),
    (Value("amount", "sign", number=Decimal("5392.45"), currency="CNY"), "zh", "en"),
)


@dataclass(frozen=True)
class Answer:
    """A held-out line with what each system makes of it."""

    example: Example
    outputs: dict[System, str]

    def right(self, system: System) -> bool:
        """Whether an output is the reference, character for character."""
        return self.outputs[system] == self.example.target


@dataclass(frozen=True)
class Shown:
    """A line to show: what the model makes of it, and the right answer."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class Alignment:
    """Where the decoder looked: weights (T, S) over the source tokens for each target token."""

    source: str
    output: str
    source_tokens: list[str]
    target_tokens: list[str]
    weights: NDArray[np.float64]


@dataclass(frozen=True)
class Demo:
    """What a run gave; `seconds` is the time that training took."""

    directory: Path
    bundle: Path
    answers: list[Answer]
    shown: list[Shown]
    alignment: Alignment
    seconds: float


def demo_recipe(directory: Path) -> Recipe:
    """The recipe of the demonstration's model, for the corpus's files in a directory."""
    return Recipe(
        name="demo",
        seed=1,
        data=DataConfig(
            source=str(directory / "train.source"),
            target=str(directory / "train.target"),
            valid_source=str(directory / "valid.source"),
            valid_target=str(directory / "valid.target"),
            target_languages=tuple(LANGUAGES),
            batch_tokens=1024,
        ),
        # 4 special tokens, 256 bytes, 4 language tags, the corpus's characters, and room for its words.
        text=TextConfig(size=500, joint=True, split_digits=True),
        model=TransformerConfig(
            width=128, heads=4, feedforward=512, encoder_layers=2, decoder_layers=2, dropout=0.0, norm="pre"
        ),
        # The corpus is endless and has no noise, so nothing is regularised: no dropout, no label smoothing.
        train=TrainConfig(
            max_updates=2600, schedule="linear", learning_rate=3e-3, warmup=200, label_smoothing=0.0, clip=1.0,
            average="ema", ema_decay=0.998, validate_every=2600, save_every=1300, log_every=50,
        ),
        search=SearchConfig(beam=1, batch_size=256),
    )  # fmt: skip


def run(out: str | Path = "demo", *, report: Report | None = None) -> Demo:
    """Make the corpus, train, and answer the held-out lines; `report` hears the events of `fit`, and "stage".

    Writes bundle/, heldout.source, heldout.reference, heldout.cells and report.json into `out`. A run that was stopped
    goes on where it was, and one that was finished is not trained again.
    """
    from regard.tasks.fit import fit
    from regard.tasks.translate import load

    directory = Path(out)
    directory.mkdir(parents=True, exist_ok=True)
    tell = report or (lambda event: None)
    tell({"event": "stage", "stage": "corpus"})
    train, heldout = _write_corpus(directory)
    tell({"event": "stage", "stage": "training"})
    bundle = fit(demo_recipe(directory), directory, resume=True, callbacks=[tell])
    tell({"event": "stage", "stage": "answering"})
    translator = load(bundle)
    outputs = [result.text for result in translator.translate([example.source for example in heldout])]
    answers = answer(heldout, outputs, train)
    references = [write(value, target) for value, _, target in SHOWN]
    lines = [f"{tag(target)} {typed(write(value, source))}" for value, source, target in SHOWN]
    results = translator.translate(lines, attention=True)
    demo = Demo(
        directory,
        bundle,
        answers,
        [Shown(line, result.text, right) for line, result, right in zip(lines, results, references, strict=True)],
        _alignment(lines[0], results[0]),
        float(json.loads((directory / "results.json").read_text("utf-8"))["training"]["seconds"]),
    )
    (directory / "report.json").write_text(json.dumps(summary(demo), indent=2, ensure_ascii=False) + "\n", "utf-8")
    return demo


def answer(heldout: Sequence[Example], outputs: Sequence[str], train: Sequence[Example]) -> list[Answer]:
    """The held-out lines with the model's outputs beside two baselines.

    "copy" answers with the line itself, "nearest" with the target of the training line that has the same tag and the
    smallest edit distance.
    """
    groups = {code: [example for example in train if example.target_language == code] for code in LANGUAGES}
    nearest = {code: Nearest([e.source for e in group]) for code, group in groups.items() if group}
    answers = []
    for example, output in zip(heldout, outputs, strict=True):
        code = example.target_language
        near = groups[code][nearest[code].find(example.source)[0]].target
        answers.append(Answer(example, {"model": output, "copy": split_tag(example.source)[1], "nearest": near}))
    return answers


def rate(
    answers: Sequence[Answer], system: System, *, kind: Kind | None = None, direction: tuple[str, str] | None = None
) -> float:
    """The share of right answers of a system, of all lines or of those of one kind or direction or both."""
    chosen = [
        answer.right(system)
        for answer in answers
        if kind in (None, answer.example.kind)
        and direction in (None, (answer.example.source_language, answer.example.target_language))
    ]
    return sum(chosen) / len(chosen) if chosen else 0.0


def summary(demo: Demo) -> dict[str, Any]:
    """The figures of a run, as JSON holds them: exact match by system, overall and in each direction and kind."""
    directions = sorted({(a.example.source_language, a.example.target_language) for a in demo.answers})
    return {
        "metric": "exact match, case:mixed|norm:no|space:kept",
        "lines": len(demo.answers),
        "training_seconds": round(demo.seconds, 1),
        "overall": {system: rate(demo.answers, system) for system in SYSTEMS},
        "direction": {
            f"{a}-{b}": {system: rate(demo.answers, system, direction=(a, b)) for system in SYSTEMS}
            for a, b in directions
        },
        "kind": {kind: {system: rate(demo.answers, system, kind=kind) for system in SYSTEMS} for kind in KINDS},
        "wrong": [
            {"source": a.example.source, "output": a.outputs["model"], "reference": a.example.target}
            for a in demo.answers
            if not a.right("model")
        ],
    }


def _write_corpus(directory: Path) -> tuple[list[Example], list[Example]]:
    """Write the splits as pairs of files; the training and held-out examples."""
    train, valid, heldout = (corpus(split, per_cell=LINES[split]) for split in ("train", "valid", "heldout"))
    for name, examples, side in (
        ("train", train, "target"),
        ("valid", valid, "target"),
        ("heldout", heldout, "reference"),
    ):
        write_lines(directory / f"{name}.source", [example.source for example in examples])
        write_lines(directory / f"{name}.{side}", [example.target for example in examples])
    # As `regard evaluate --groups` reads them: every line counts for its direction, its kind and its cell.
    ways = [(f"{e.source_language}-{e.target_language}", e.kind) for e in heldout]
    cells = [f"{way}\t{kind}\t{way} {kind}" for way, kind in ways]
    write_lines(directory / "heldout.cells", cells)
    return train, heldout


def _alignment(source: str, result: Any) -> Alignment:
    """From a translation that was asked for its attention, averaged over the heads of a layer."""
    return Alignment(
        source,
        result.text,
        list(result.source_tokens),
        list(result.target_tokens),
        np.asarray(result.attention, dtype=np.float64),
    )
