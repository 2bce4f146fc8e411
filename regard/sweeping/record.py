"""What a sweep keeps: `sweep.json`, which says what was asked and what came of every trial."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from regard.errors import DataError
from regard.machine import write_atomically

FILE = "sweep.json"


class Trial(BaseModel, extra="forbid"):
    """One training: its settings, and what came of it."""

    number: int  #: From 1.
    settings: dict[str, object]  #: By key of the recipe.
    state: Literal["running", "complete", "pruned", "failed"] = "running"
    score: float | None = None  #: Of the weights that it leaves; of one that was stopped, its last.
    update: int = 0  #: At which that score was found.
    scores: list[tuple[int, float | None]] = Field(default_factory=list)  #: Of each validation, by update.
    seconds: float = 0.0
    why: str = ""  #: Of one that failed.


class Asked(BaseModel, extra="forbid", frozen=True):
    """What a sweep was asked for that its trials depend on."""

    recipe: dict[str, object]  #: As it was with --set.
    space: dict[str, str]
    metric: str
    sampler: str
    prune: bool
    seed: int


class Sweep(BaseModel, extra="forbid"):
    """What was asked, and every trial in order; the same as `sweep.json`."""

    asked: Asked
    trials: list[Trial] = Field(default_factory=list)
    best: int | None = None  #: The number of the best trial.
    importance: dict[str, float] = Field(default_factory=dict)  #: How much each key mattered; the sum is 1.
    versions: dict[str, str] = Field(default_factory=dict)

    @property
    def higher(self) -> bool:
        """Whether higher scores are better."""
        return self.asked.metric != "loss"

    @property
    def ranked(self) -> list[Trial]:
        """The trials that were trained to their end, the best first; of equal ones the earlier."""
        sign = -1 if self.higher else 1
        found = [(sign * t.score, t.number, t) for t in self.trials if t.state == "complete" and t.score is not None]
        return [trial for *_, trial in sorted(found, key=lambda each: each[:2])]

    def save(self, out: Path) -> None:
        """Write it into the sweep's directory."""
        write_atomically(out / FILE, self.model_dump_json(indent=1) + "\n")


def taken_up(out: Path, asked: Asked) -> Sweep:
    """The sweep that a directory holds, or a new one; raises DataError for a damaged one and for another command's."""
    path = out / FILE
    if not path.exists():
        return Sweep(asked=asked)
    try:
        held = Sweep.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError):
        raise DataError(f"{path}: is damaged or of another version; choose another --out.") from None
    before, now = _named(held.asked), _named(asked)
    found = [
        f"{name} was {_shown(before.get(name))} and is now {_shown(now.get(name))}"
        for name in dict.fromkeys((*before, *now))
        if before.get(name) != now.get(name)
    ]
    if found:
        shown = "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if found[5:] else "")
        raise DataError(
            f"{out}: holds the trials of another sweep, with which new ones would not compare: {shown}. Give the same "
            "recipe and flags again to go on, or choose another --out."
        )
    return held


def _named(asked: Asked) -> dict[str, object]:
    """What was asked, by the names that it has on the command line and in the recipe."""
    flags = asked.model_dump(exclude={"recipe", "space"})
    tried = {f"--try {key}": values for key, values in asked.space.items()}
    return {**{f"--{name}": value for name, value in flags.items()}, **tried, **dict(_keys(asked.recipe))}


def _keys(table: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _keys(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _shown(value: object) -> str:
    text = "left out" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"
