"""`regard adapt`: learn an adapter, say what adapters are, or merge one into a bundle of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from regard.apps.cli import console_on, printable, say, takes, write, write_json
from regard.apps.options import BundlePath, Flags, Json
from regard.errors import ModelError

from .adapt import Pairs, Report, pairs_of
from .settings import Learning


class Texts(Flags):
    """What is learnt from."""

    pairs: Path | None = Field(None, description="file of pairs to learn (.tsv, .tmx, …), or of their source lines")
    target: Path | None = Field(None, description="file of the target lines of --pairs")
    replay: Path | None = Field(
        None, description="file of pairs that it knows, or of text alone, so that little is forgotten"
    )
    replay_target: Path | None = Field(None, description="file of the target lines of --replay")


@takes(texts=Texts, learning=Learning)
def adapt(
    bundle: BundlePath,
    texts: Texts,
    learning: Learning,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where the adapter goes.")] = None,
    adapter: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An adapter to merge, or to tell of; or a directory of them.")
    ] = None,
    merge: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write the bundle with --adapter as a bundle of its own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn an adapter of a bundle from a few thousand pairs, merge it, or say what it is."""
    if texts.pairs is not None:
        if out is None or adapter is not None or merge is not None:
            raise ModelError("--pairs learns an adapter; name its file with --out, leave --adapter and --merge out.")
        _learn(bundle, texts, out, learning, as_json)
    elif adapter is None:
        raise ModelError("name what to learn from: regard adapt BUNDLE --pairs FILE --out ADAPTER.safetensors.")
    elif merge is not None:
        from .merge import merge as merged

        write(f"{merged(bundle, adapter, merge)}\n")
    else:
        _tell(bundle, adapter, as_json)


def _learn(bundle: Path, texts: Texts, out: Path, learning: Learning, as_json: bool) -> None:
    from .adapt import adapt as learn

    assert texts.pairs is not None
    again: Pairs = ()
    if texts.replay is not None:
        again = texts.replay if texts.replay_target is None else (texts.replay, texts.replay_target)
    else:
        say(console_on(sys.stderr), "Nothing is replayed, so some of what it knows may be forgotten; see --replay.")
    with _display() as report:
        made = learn(bundle, pairs_of(texts.pairs, texts.target), out, learning, replay=again, report=report)
    about = made.card.about
    if as_json:
        write_json({"adapter": str(out), "bytes": out.stat().st_size, **about})
    else:
        _told(about, out)
    if about["stopped"]:
        say(console_on(sys.stderr), f"Stopped; {out} has the best so far. The same command goes on from here.")
        raise typer.Exit(130)


def _told(about: Mapping[str, object], out: Path) -> None:
    write(f"learnt from {about['pairs']:,} pairs in {about['seconds']} s, {about['updates']:,} updates\n")
    write(f"loss of a token, held out: {about['loss_before']:.3f}, now {about['loss_after']:.3f}\n")
    if about.get("home_loss_after") is not None:
        write(f"the same of what is replayed: {about['home_loss_before']:.3f}, now {about['home_loss_after']:.3f}\n")
    write(f"{out}: {out.stat().st_size:,} bytes\n")


@contextmanager
def _display() -> Iterator[Report]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=console_on(sys.stderr)) as bar:
        task = bar.add_task("reading", total=None, note="")

        def hear(event: Mapping[str, object]) -> None:
            if event["event"] == "learn":
                note = f"update {event['update']}, loss {event['loss']:.3f}"
                done = 100 * float(str(event["done"]))
                bar.update(task, description="learning", completed=done, total=100, note=note)
            elif event["event"] == "resumed":
                say(bar.console, f"Going on at update {event['update']}.")
            elif event["event"] == "check" and not bar.console.is_terminal:
                say(bar.console, f"update {event['update']}: held out {event['losses']}")

        yield hear


def _tell(bundle: Path, place: Path, as_json: bool) -> None:
    """What the adapters in a file or a directory are."""
    from regard import bundle as bundles

    from .file import SUFFIX, UNFINISHED, adapted

    opened = bundles.load(bundle)
    within = (file for file in place.rglob(f"*{SUFFIX}") if not any(p.name.endswith(UNFINISHED) for p in file.parents))
    files = sorted(within) if place.is_dir() else [place]
    found = []
    for file in files:
        adapter = adapted(opened, file).adapter
        assert adapter is not None
        card = adapter.card.model_dump(exclude={"format", "weights"}, exclude_defaults=True)
        found.append({"file": str(file), "bytes": file.stat().st_size, "parameters": len(adapter.names), **card})
    if as_json:
        write_json(found)
        return
    for each in found:
        learnt = f"{each['source']!r} -> {each['target']!r}" if "source" in each else each.get("about", "")
        write(printable(f"{each['file']}\t{each['bytes']:,} bytes\t{each.get('created', '')}\t{learnt}") + "\n")
