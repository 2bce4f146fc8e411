"""The command line: parse, call a task, show. Only what answers `regard --help` is imported at the top.

Exit codes: 0 done, 2 a mistake that the user can mend (said in a message, without a traceback), 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from regard.apps import language, look, make, use
from regard.apps.terminal import printable, write
from regard.errors import RegardError, RegardWarning
from regard.parsing import commands as parsing
from regard.studies.lectures import command as lecture
from regard.studies.lineage import command as lineage

__all__ = ["app", "main"]

app = typer.Typer(
    name="regard",
    help="Sequence transduction with attention: two text files in, a translator out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_WORDS: tuple[Callable[..., None], ...] = (
    *(make.train, use.translate, use.evaluate, use.score, use.align, use.calibrate, parsing.parse, use.inspect),
    *(language.generate, language.fill, language.classify, language.embed, language.perplexity, language.phrases),
    *(make.init, make.plan, make.prepare, make.import_, make.export, make.quantize, make.shortlist, make.get),
    *(make.demo, parsing.trees, look.look, lecture.lecture, lineage.lineage, use.doctor),
)
for word in _WORDS:
    app.command(word.__name__.rstrip("_"))(word)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from importlib.metadata import version as installed

        write(f"regard {installed('regard')}\n")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # text is UTF-8, whatever the terminal's locale says
            stream.reconfigure(encoding="utf-8", newline="\n")
    show, warnings.showwarning = warnings.showwarning, _warn
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except RegardError as error:
        return _fail(str(error))
    except OSError as error:
        _forget_output()
        # Whoever read our output may have seen enough.
        return 0 if isinstance(error, BrokenPipeError) else _fail(_about(error))
    except KeyboardInterrupt:
        return 130
    finally:
        warnings.showwarning = show
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        app(args=None if arguments is None else list(arguments), prog_name="regard")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return 0


def _forget_output() -> None:
    """What is still buffered cannot be written, and must not raise again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _about(error: OSError) -> str:
    """What the operating system refused, in a line with a way out."""
    name = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
    ways = {
        errno.ENOSPC: "free some space, or choose another disk",
        errno.EDQUOT: "free some of your quota, or choose another disk",
        errno.EACCES: "check the permissions",
        errno.EROFS: "choose a place that can be written",
        errno.ENOENT: "check the path",
        errno.EISDIR: "name a file, not a directory",
        errno.ENOTDIR: "a part of the path is a file",
    }
    way = ways.get(error.errno or 0, "")
    return f"{name}{error.strerror or error}" + (f"; {way}." if way else ".")


def _warn(message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
    """A warning of ours is a sentence for the user; of every other one the kind is named."""
    text = f"{message}" if issubclass(category, RegardWarning) else f"{category.__name__}: {message}"
    sys.stderr.write(f"regard: {printable(text)}\n")


def _fail(message: str) -> int:
    sys.stderr.write(f"regard: {printable(message)}\n")
    return 2
