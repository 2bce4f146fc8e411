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

    `gold` is a file of pairs and one of links; `schemes` are runs of `plan_schemes` that are done. Of a run that is on
    another machine there is what was kept of it.
    """
    tell = progress or (lambda what: None)
    kept = out / "results" / "kept"
    kept.mkdir(parents=True, exist_ok=True)
    tell("comparing what the runs wrote")
    whole: dict[str, Any] = {"table": gather(found)}
    sources, references = found[0].lines()
    chosen = shown_lines(sources)
    shown: list[dict[str, Any]] = [{"source": sources[i], "reference": references[i], "families": {}} for i in chosen]
    for run in _shown_of_each(found, kept):
        tell(f"looking where {run.name} looks")
        lines, right = [sources[i] for i in chosen], [references[i] for i in chosen]
        drawn = _kept(
            kept / f"pictures-{run.name}.json",
            [lines, _stamp(run)],
            partial(pictures, run, lines, right) if _is_here(run) else None,
        )
        for line, picture in zip(shown, drawn or [], strict=False):
            line["families"][run.family] = picture
    whole["pictures"] = shown
    if gold is not None:
        whole["alignment"] = []
        for run in found:
            tell(f"aligning with {run.name}")
            rate = _kept(
                kept / f"alignment-{run.name}.json",
                [hashlib.sha256(file.read_bytes()).hexdigest() for file in gold if file.is_file()] + [_stamp(run)],
                partial(error_rate, run, *gold) if _is_here(run) else None,
            )
            if rate is not None:
                whole["alignment"].append({"family": run.family, "seed": run.seed, **rate})
    tell("measuring layers")
    whole["costs"] = {"table": TABLE, **_kept(kept / "costs.json", [], measure_layers)}
    if schemes:
        tell("scoring beyond the trained lengths")
        stamps = [(run.kept / "results.json").read_text(encoding="utf-8") for run in schemes]
        make = partial(score_schemes, schemes, sources, references) if all(map(_is_here, schemes)) else None
        whole["extrapolation"] = _kept(kept / "extrapolation.json", stamps, make)
    return whole


def _is_here(run: Result | Run) -> bool:
    return (run.path / "bundle").exists()


def _shown_of_each(found: Sequence[Result], kept: Path) -> list[Result]:
    """Of every family the run with the first seed of those whose pictures there are, or can be made."""
    first: dict[str, Result] = {}
    for run in found:
        if _is_here(run) or (kept / f"pictures-{run.name}.json").exists():
            first.setdefault(run.family, run)
    return list(first.values())


def _stamp(run: Result) -> str:
    """Changes when the run is another one."""
    return str(run.training["target_tokens"])


def _kept(path: Path, key: object, make: Callable[[], Any] | None) -> Any:
    """What `make` gives, or what it gave before for the same key; None if it cannot be made."""
    digest = hashlib.sha256(json.dumps(key, ensure_ascii=False).encode()).hexdigest()
    if path.exists():
        held = json.loads(path.read_text(encoding="utf-8"))
        if held["key"] == digest:
            return held["value"]
    if make is None:
        return None
    value = make()
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"key": digest, "value": value}, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(path)
    return value
