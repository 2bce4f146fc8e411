"""`regard heads`: what each head of a model is worth, and a smaller bundle without those that are worth least."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from rich.table import Table

from regard.apps.cli import console_on, say, status, takes, write_json
from regard.apps.options import AsJson, BundlePath, Flags
from regard.errors import DataError, TextError
from regard.search.table import Options

if TYPE_CHECKING:
    from rich.console import Console

    from regard.explore.heads import Ranking
    from regard.explore.pruning import Pruned


class Measuring(Flags):
    """On which pairs heads are measured, how, and what becomes of the least useful."""

    source: Path | None = Field(None, description="source lines that the model was not trained on")
    target: Path | None = Field(None, description="their translations")
    pairs: Path | None = Field(None, description="both in one file: .tsv, .jsonl, .tmx or what training reads")
    lines: int = Field(0, ge=0, description="pairs that are used, from the first; 0: all")
    by: Literal["ablation", "gradient"] = Field(
        "ablation", description="ablation: each head is switched off; gradient: one backward pass"
    )
    bleu: tuple[str, ...] = Field(
        (), description="a head whose effect on BLEU is measured too, as encoder.2.3; may be repeated"
    )
    prune: float = Field(0.0, description="part of the heads to take out, the least useful, such as 0.33; needs --out")
    off: tuple[str, ...] = Field(
        (), description="a head to take out whatever it is worth, as encoder.2.3; may be repeated; needs --out"
    )
    greedy: bool = Field(False, description="take one head after the other out, and rank the others again each time")
    out: Path | None = Field(None, description="the smaller bundle")
    as_json: AsJson = False


@takes("to", asked=Measuring)
def heads(bundle: BundlePath, options: Options, asked: Measuring) -> None:
    """Rank a model's heads by what is lost without each; with --prune, write a bundle without the least useful."""
    if bool(asked.prune or asked.off) != (asked.out is not None):
        raise DataError(
            "--prune and --off say which heads go, and --out where the smaller bundle is written; give both."
        )
    if asked.off and asked.prune:
        raise DataError("--off names the heads that go, and --prune chooses them; give one of the two.")
    console, exact = console_on(sys.stdout), asked.by == "ablation"
    if asked.off and asked.out is not None:
        from regard.explore.pruning import prune_heads

        _show_pruned(prune_heads(bundle, asked.out, asked.off), asked, console)
        return
    source, target = _pairs(asked)
    with status("reading") as tell:
        if asked.out is not None:
            from regard.explore.pruning import prune

            pruned = prune(
                bundle,
                asked.out,
                (source, target),
                asked.prune,
                exact=exact,
                greedy=asked.greedy,
                to=options.to,
                progress=tell,
            )
        else:
            from regard.explore.heads import heads as rank

            found = rank(bundle, source, target, exact=exact, bleu=asked.bleu, to=options.to, progress=tell)
    if asked.out is not None:
        _show_pruned(pruned, asked, console)
    elif asked.as_json:
        write_json({"bundle": str(bundle), **found.to_dict()})
    else:
        _show(found, console)


def _pairs(asked: Measuring) -> tuple[list[str], list[str]]:
    """The lines of both sides. Raises TextError where they are not named."""
    from regard.text.lines import read_pairs

    if (asked.pairs is None) == (asked.source is None) or (asked.source is None) != (asked.target is None):
        raise TextError(
            "heads are measured on pairs: name them with --pairs FILE, or with --source FILE --target FILE."
        )
    read = read_pairs(asked.pairs or asked.source, asked.target)  # type: ignore[arg-type]  # one of the two is there
    found = [*islice(read, asked.lines or None)]
    return [source for source, _ in found], [target for _, target in found]


def _show(found: Ranking, console: Console) -> None:
    exact, scored = found.effects[0].loss is not None, found.bleu is not None
    table = Table(box=None, pad_edge=False)
    for name in ("head", *["loss without it"] * exact, "gradient", *["BLEU lost"] * scored):
        table.add_column(name, justify="left" if name == "head" else "right")
    for effect in found.effects:
        loss = [] if effect.loss is None else [f"{effect.loss:+.5f}"]
        bleu = [] if not scored else [f"{effect.bleu:+.2f}" if effect.bleu is not None else ""]
        table.add_row(str(effect.head), *loss, f"{effect.gradient:.5f}", *bleu)
    console.print(table, highlight=False)
    say(console, f"{found.pairs:,} pairs, {found.tokens:,} tokens; loss {found.loss:.5f} a token with all heads")
    if found.bleu is not None:
        say(console, f"BLEU {found.bleu:.2f} with all heads")
    if found.correlation is not None:
        say(console, f"rank correlation of loss and gradient: {found.correlation:.3f} (Spearman)")


def _show_pruned(found: Pruned, asked: Measuring, console: Console) -> None:
    if asked.as_json:
        write_json(found.to_dict())
        return
    say(console, f"{len(found.off):,} of {found.heads:,} heads are out: {', '.join(map(str, sorted(found.off)))}")
    say(console, f"parameters {found.parameters_before:,} → {found.parameters_after:,}")
    say(console, f"weights {found.bytes_before / 1e6:.1f} → {found.bytes_after / 1e6:.1f} MB")
    if found.loss_before is not None and found.loss_after is not None:
        say(console, f"loss a token {found.loss_before:.5f} → {found.loss_after:.5f}, on the pairs they were chosen by")
    say(console, f"written: {found.out}")
