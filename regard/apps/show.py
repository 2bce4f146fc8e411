"""How results look in the terminal: evaluations, bundles, machines, plans, and attention as a heat map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from regard.apps.cli import cell, printable, say
from regard.pictures import checked, colour, label

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from regard.bundle import Calibration
    from regard.planning.plan import Plan
    from regard.tasks.doctor import Finding
    from regard.tasks.evaluate import Evaluation
    from regard.tasks.inspect import Inspection

_SHADES = " ░▒▓█"


def _table(*headings: str) -> Table:
    return Table(*headings, box=None, show_header=bool(headings), pad_edge=False)


def show_evaluation(result: Evaluation, console: Console) -> None:
    """The scores with their intervals and signatures, how the output was made and how fast."""
    table = _table("metric", "value", "95 % interval", "unit")
    for score in result.scores.values():
        interval = f"{score.interval[0]:.2f} to {score.interval[1]:.2f}" if score.interval else ""
        table.add_row(score.name, f"{score.value:.2f}", interval, score.unit)
    console.print(table)
    for score in result.scores.values():
        say(console, f"{score.name}: {score.signature}", "dim")
    if result.groups:
        console.print()
        table = _table("group", *result.scores)
        for group, scores in result.groups.items():
            table.add_row(cell(group), *(f"{scores[name].value:.2f}" for name in result.scores))
        console.print(table)
    made = result.decoding
    how = f"{made['samples']} samples" if made["samples"] else f"beam {made['beam']}"
    say(
        console,
        f"{result.lines:,} lines, {how}, penalty {made['penalty']} {made['alpha']}, {made['precision']} on "
        f"{made['device']}, {result.sentences_per_second:,.1f} sentences a second",
    )


def show_calibration(found: Calibration, console: Console) -> None:
    """What was measured, before and after, and what the bundle now holds."""
    steps = ("before", "temperature", "after")
    table = _table("", "number", "right", "calibration error", "by temperature", "and curve", "AUC")
    for name in ("tokens", "words"):
        one = found.report[name]["before"]
        errors = [f"{found.report[name][step]['error']:.2%}" for step in steps]
        table.add_row(name, f"{one['count']:,}", f"{one['right']:.1%}", *errors, f"{one['auc']:.3f}")
    console.print(table, highlight=False)
    layer = f"layer {found.layer}" if found.layer else "the mean of all layers"
    say(
        console,
        f"{found.report['lines']:,} lines; temperature {found.temperature:.4f}; alignments by the {found.rule} rule, "
        f"from {layer}. All of it is in the bundle.",
    )


def show_inspection(found: Inspection, console: Console) -> None:
    """What the bundle is, where it came from, its scores, a few golden sentences and its recipe."""
    facts = _table()
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    source, target = found.tokens
    came = found.provenance
    rows = {
        "bundle": str(found.path),
        "name": found.name,
        "family": found.family,
        "languages": found.languages,
        "parameters": f"{found.parameters:,}",
        "tokens": f"{source:,}" if source == target else f"{source:,} source, {target:,} target",
        "size": f"{found.size / 1e6:.1f} MB",
        "digest": found.digest,
        "made": came["created"],
        "machine": came["machine"],
        "versions": ", ".join(f"{name} {version}" for name, version in came["versions"].items()),
        **{f"training {key.replace('_', ' ')}": _plain(value) for key, value in came["training"].items()},
        **{f"SHA-256 of {name}": str(digest) for name, digest in came["data"].get("sha256", {}).items()},
    }
    for name, value in rows.items():
        if value:
            facts.add_row(cell(name), cell(value))
    console.print(facts, highlight=False, soft_wrap=True)
    for scores in came["scores"]:
        for score in scores.get("scores", {}).values():
            figure = f"{score['name']} {score['value']:.2f} ({score['unit']}; {score['signature']})"
            say(console, f"{scores.get('set', '')}: {figure}")
    again = f"translated again in {found.verified_in}, and the same"
    checked = again if found.verified else "ids checked; --verify translates them again"
    say(console, f"\nGolden sentences ({checked})", "bold")
    for line, output in found.golden:
        say(console, f"  {line}\n    → {output}")
    say(console, "\nRecipe", "bold")
    say(console, found.recipe)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items() if inner not in ({}, None))
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)


def show_findings(findings: list[Finding], console: Console) -> None:
    """What is known of the machine, topic by topic; what may need mending is marked."""
    for topic in dict.fromkeys(f.topic for f in findings):
        found = [f for f in findings if f.topic == topic]
        _topic(
            console, topic, ((f.name, cell(f.value, "" if f.good else "yellow"), cell(f.note, "dim")) for f in found)
        )


def show_plan(found: Plan, console: Console) -> None:
    """What a run will need, topic by topic, and whether it fits."""
    about, chosen = "" if found.exact else "about ", " (as many as fit)" if found.chosen else ""
    source, target = found.tokens
    facts = {
        "parameters": f"{found.parameters:,}",
        **{f"  {part}": f"{count:,}" for part, count in found.parts.items()},
        "tokens": f"{source:,} source, {target:,} target",
        "pairs": f"{about}{found.pairs:,}",
        "tokens an epoch": f"{about}{found.source_tokens:,} source, {found.target_tokens:,} target, ends counted",
        "batches": f"of {found.batch_tokens:,} tokens{chosen}, about {found.batches:,} an epoch",
        "updates": f"{found.updates:,}, about {found.epochs:.1f} epochs",
        "model FLOPs": f"{found.flops_per_token:.3g} a target token, {found.flops:.3g} in all",
    }
    _topic(console, "model and data", facts.items())
    for kind, parts in found.memory.items():
        _topic(console, f"memory of training, {kind}", _sizes(parts))
    way = "fits" if found.fits else "does not fit; lower data.batch_tokens or train.chunk, or choose a smaller model"
    say(console, f"  {_bytes(found.free)} are free on {found.device}: the run {way}")
    _topic(console, "disk", [*_sizes(found.disk), ("free", _bytes(found.disk_free))])
    if (measured := found.measured) is not None:
        title = f"time here ({measured.device}, {measured.precision}), from a few seconds of training"
        speed = f"{measured.tokens_per_second:,.0f} a second, batches of {measured.batch_tokens:,}"
        whole = f"{_duration(measured.seconds)}, without validation and saving"
        flops = f"{measured.flops_per_second:.3g} a second"
        _topic(console, title, [("target tokens", speed), ("model FLOPs", flops), ("the whole run", whole)])
    say(console, "time elsewhere, estimated from data sheets, nothing measured", "bold")
    table = _table("", "GPU", "the whole run", "memory", "peak TFLOP/s", "assumed use", "")
    for gpu in found.gpus:
        room = cell(f"{gpu.gigabytes} GB") if gpu.fits else cell(f"{gpu.gigabytes} GB: too little", "yellow")
        use = f"{gpu.teraflops:g}", f"{gpu.utilisation:.0%}"
        table.add_row("", gpu.name, _duration(gpu.seconds), room, *use, gpu.note)
    console.print(table, highlight=False)
    for note in found.notes:
        say(console, f"· {note}")


def _topic(console: Console, title: str, rows: Iterable[Sequence[str | Text]]) -> None:
    say(console, title, "bold")
    table = _table()
    for row in rows:
        table.add_row("", *(cell(each) if isinstance(each, str) else each for each in row))
    console.print(table, highlight=False)


def _sizes(parts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [*((name, _bytes(size)) for name, size in parts.items() if size), ("in all", _bytes(sum(parts.values())))]


def _bytes(size: int) -> str:
    return f"{size / 2**30:,.2f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.0f} seconds"


@dataclass(frozen=True)
class HeatMap:
    """Weights (T, S) with a name for each of T rows and S columns; Rich can print it.

    Shades stand in where the terminal has no colours. Printing raises ValueError as `regard.pictures.checked` does.
    """

    weights: ArrayLike
    rows: Sequence[str]
    columns: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Columns that do not fit follow in a further block."""
        weights = checked(self.weights, self.rows, self.columns)
        top = float(weights.max(initial=0.0)) or 1.0
        shares = (weights / top).tolist()
        down, across = [[printable(label(token)) for token in tokens] for tokens in (self.rows, self.columns)]
        margin = max(map(cell_len, down), default=0) + 1
        fitting = max(1, (options.max_width - margin) // 2)
        for first in range(0, len(across), fitting):
            chosen = slice(first, first + fitting)
            yield from _names(across[chosen], margin)
            for token, row in zip(down, shares, strict=True):
                line = Text(" " * (margin - 1 - cell_len(token)) + token + " ", no_wrap=True)
                yield _shaded(line, row[chosen])
            yield Text()
        yield _shaded(Text("0 ", no_wrap=True), [step / 4 for step in range(5)]).append(f" {top:.2f}")


def _names(names: Sequence[str], margin: int) -> Iterator[Text]:
    """The names of columns from top to bottom, a character a line."""
    tall = max(map(len, names), default=0)
    for line in range(tall):
        row = Text(" " * margin, no_wrap=True)
        for name in names:
            character = name.rjust(tall)[line]
            row.append(character if east_asian_width(character) in "WF" else character + " ")
        yield row


def _shaded(line: Text, shares: Sequence[float]) -> Text:
    """Appends two characters for each share of the largest weight: its colour, and without colours its density."""
    for share in shares:
        ink = colour(share)
        line.append(_SHADES[min(int(share * 5), 4)] * 2, Style(color=ink, bgcolor=ink))
    return line
