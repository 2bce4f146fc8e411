"""The commands of models of one side: generate, fill, classify, embed, perplexity."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from regard.apps.cli import console_on, say, takes, write, write_json
from regard.apps.options import AsJson, BundlePath, Device, Flags, Json, computing
from regard.errors import TextError
from regard.search.table import Options

Lines = Annotated[str, typer.Argument(metavar="[FILE|-]", help="Text, a line each; - is standard input.")]
Top = Annotated[int, typer.Option(min=1, help="How many, likeliest first.")]


@takes("samples", "temperature", "top_k", "top_p", "seed", "beam", "max_length", "precision")
def generate(
    bundle: BundlePath,
    options: Options,
    prompt: Annotated[str, typer.Argument(help="What the text begins with.")] = "",
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="The prompt from a file, line breaks and all.")
    ] = None,
    no_stream: Annotated[bool, typer.Option("--no-stream", help="Show the text when it is whole.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Go on with a text by a language model: the likeliest tokens, draws, or a beam. The prompt is shown too."""
    from regard.text import read_lines

    from .generate import generate, stream
    from .open import open_bundle

    if file is not None and prompt:
        raise TextError(f"the prompt is given twice, as an argument and in {file}; leave one of the two out.")
    if file is not None:
        ends = file.is_file() and file.read_bytes().endswith(b"\n")
        prompt = "\n".join(read_lines(file)) + ("\n" if ends else "")
    search = dict(options.search)
    if search.keys() & {"temperature", "top_k", "top_p", "seed"}:
        search.setdefault("samples", 1)
    opened = open_bundle(bundle, ["language-model"], device=device)
    asked = {"search": search, "precision": search.get("precision", "auto")}
    settings = {**opened.recipe.search.model_dump(), **search}
    several = settings["samples"] > 1 or (not settings["samples"] and settings["beam"] > 1)
    if json:
        found = generate(opened, prompt, **asked)
        write_json([{"text": c.text, "log_probability": c.log_probability, "ended": c.ended} for c in found])
    elif several or no_stream:
        for continuation in generate(opened, prompt, **asked):
            write(f"{prompt}{continuation.text}\n")
    else:
        write(prompt)
        for part in stream(opened, prompt, **asked):
            write(part)
            sys.stdout.flush()
        write("\n")


@takes("batch_size", "precision")
def fill(
    bundle: BundlePath, options: Options, file: Lines = "-", top: Top = 5, device: Device = "auto", json: Json = False
) -> None:
    """Fill in each <mask> of a line: the line's number, the mask's, and the likeliest tokens with probabilities."""
    from .fill import fill

    found = fill(bundle, _lines(file), top=top, device=device, **computing(options))
    for number, masks in enumerate(found, start=1):
        for place, choices in enumerate(masks, start=1):
            if json:
                write_json({"line": number, "mask": place, "fillings": [vars(choice) for choice in choices]}, None)
            else:
                _row(number, place, *choices)


@takes("batch_size", "precision")
def classify(
    bundle: BundlePath, options: Options, file: Lines = "-", top: Top = 1, device: Device = "auto", json: Json = False
) -> None:
    """The label of each line, and how probable it is; with --top the next ones too."""
    from .fill import classify

    found = classify(bundle, _lines(file), top=top, device=device, **computing(options))
    for choices in found:
        if json:
            write_json({"labels": [vars(choice) for choice in choices]}, None)
        else:
            _row(*choices)


@takes("batch_size", "precision")
def embed(
    bundle: BundlePath,
    options: Options,
    file: Lines = "-",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .npy file (lines, features) instead of JSON lines.")
    ] = None,
    pool: Annotated[str, typer.Option(help="mean: of all positions; end: the vector at the end.")] = "mean",
    device: Device = "auto",
) -> None:
    """A vector of each line: JSON, or with --output NumPy's format."""
    from .fill import embed

    found = embed(bundle, _lines(file), pool=pool, device=device, **computing(options))
    if output is None:
        for vector in found.tolist():
            write_json([round(value, 6) for value in vector], None)
        return
    import numpy as np

    np.save(written := io.BytesIO(), found, allow_pickle=False)  # which cannot write into a pipe itself
    output.write_bytes(written.getbuffer())


class Reading(Flags):
    """How much of a text a language model sees while it reads on."""

    stride: int = Field(0, description="of a stream: tokens predicted a window, the rest being seen; 0: all of it")
    cache: int = Field(0, ge=0, description="of a language model: positions before that it also looks back at; 0: none")
    cache_dev: Path | None = Field(
        None, description="a text of its own, by which --cache is fitted", json_schema_extra={"metavar": "FILE"}
    )
    as_json: AsJson = False


@takes("batch_size", "precision", reading=Reading)
def perplexity(
    bundle: BundlePath,
    options: Options,
    reading: Reading,
    file: Lines = "-",
    target: Annotated[
        Path | None, typer.Argument(metavar="[TARGET]", help="Of an encoder-decoder: the lines after those of FILE.")
    ] = None,
    device: Device = "auto",
) -> None:
    """How well a model knows a text: perplexity per token, word and character, with nats and bits."""
    from regard.text import read_lines

    from .measure import choose_cache, perplexities
    from .open import open_bundle

    dev = reading.cache_dev
    if bool(reading.cache) != (dev is not None):
        raise TextError("--cache N is fitted by a text of its own, --cache-dev FILE; give both, or neither.")
    second, how = None if target is None else read_lines(target), computing(options)
    opened = open_bundle(bundle, ["language-model", "reader", "encoder-decoder"], device=device)
    cache = choose_cache(opened, read_lines(dev), reading.cache, precision=how["precision"]) if dev else None
    found = perplexities(opened, _lines(file), second, stride=reading.stride, cache=cache, **how)
    if reading.as_json:
        looking = {} if cache is None else {"cache": vars(cache)}
        write_json({unit: score.to_dict() for unit, score in found.items()} | looking)
        return
    if cache is not None:
        line = "cache of {size:,} positions, flatness {flatness:.4g}, share {share:g}, as {dev} has it best"
        say(console_on(sys.stdout), line.format(**vars(cache), dev=dev))
    for score in found.values():
        line = "perplexity {value:.3f} {unit}: {nats:.4f} nats, {bits:.4f} bits; {count:,} ({signature})"
        say(console_on(sys.stdout), line.format(**{**vars(score), **score.detail}))


def _lines(file: str) -> list[str]:
    from regard.text import read_lines

    return read_lines(sys.stdin.buffer if file == "-" else file)


def _row(*cells: object) -> None:
    write("\t".join(map(str, cells)) + "\n")
