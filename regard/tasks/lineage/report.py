"""All that the report shows, as plain values; what takes long is kept in files and not done again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .alignments import error_rate, pictures, shown_lines
from .costs import TABLE, measure_layers
from .extrapolation import score_schemes
from .runs import Run
from .table import Result, gather

__all__ = ["compose"]

Progress = Callable[[str], None]


def compose(
    found: Sequence[Result],
    out: Path,
    *,
    gold: tuple[Path, Path] | None = None,
    schemes: Sequence[Run] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Of the runs that are done: their figures, pictures, alignment error rates, costs of layers, and lengths beyond.

    `gold` is a file of pairs and one of links; `schemes` are runs of `plan_schemes` that are done.
    """
    tell = progress or (lambda what: None)
    kept = out / "kept"
    kept.mkdir(parents=True, exist_ok=True)
    tell("comparing what the runs wrote")
    whole: dict[str, Any] = {"table": gather(found)}
    sources, references = found[0].lines()
    chosen = shown_lines(sources)
    shown: list[dict[str, Any]] = [{"source": sources[i], "reference": references[i], "families": {}} for i in chosen]
    for run in _first_of_each(found):
        tell(f"looking where {run.name} looks")
        lines, right = [sources[i] for i in chosen], [references[i] for i in chosen]
        drawn = _kept(kept / f"pictures-{run.name}.json", [lines, _stamp(run)], partial(pictures, run, lines, right))
        for line, picture in zip(shown, drawn, strict=False):
            line["families"][run.family] = picture
    whole["pictures"] = shown
    if gold is not None:
        whole["alignment"] = []
        for run in found:
            tell(f"aligning with {run.name}")
            rate = _kept(
                kept / f"alignment-{run.name}.json",
                [hashlib.sha256(file.read_bytes()).hexdigest() for file in gold if file.is_file()] + [_stamp(run)],
                partial(error_rate, run, *gold),
            )
            if rate is not None:
                whole["alignment"].append({"family": run.family, "seed": run.seed, **rate})
    tell("measuring layers")
    whole["costs"] = {"table": TABLE, **_kept(kept / "costs.json", [], measure_layers)}
    if schemes:
        tell("scoring beyond the trained lengths")
        stamps = [(run.place / "results.json").read_text(encoding="utf-8") for run in schemes]
        whole["extrapolation"] = _kept(
            kept / "extrapolation.json", stamps, partial(score_schemes, schemes, sources, references)
        )
    return whole


def _first_of_each(found: Sequence[Result]) -> list[Result]:
    """The run with the first seed of every family."""
    first: dict[str, Result] = {}
    for run in found:
        first.setdefault(run.family, run)
    return list(first.values())


def _stamp(run: Result) -> str:
    """Changes when the run is another one."""
    return str(run.training["target_tokens"])


def _kept(path: Path, key: Any, make: Callable[[], Any]) -> Any:
    """What `make` gives, or what it gave before for the same key."""
    digest = hashlib.sha256(json.dumps(key, ensure_ascii=False).encode()).hexdigest()
    if path.exists():
        held = json.loads(path.read_text(encoding="utf-8"))
        if held["key"] == digest:
            return held["value"]
    value = make()
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"key": digest, "value": value}, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(path)
    return value
