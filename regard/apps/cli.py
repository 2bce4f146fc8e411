"""The command line: parse, call a task, show. A command's module is imported when that command is used.

Exit codes: 0 done, 2 a mistake that the user can mend (said in a message, without a traceback), 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import errno
import gc
import inspect
import json
import os
import re
import sys
import time
import warnings
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from regard.errors import NO_TORCH, ModelError, RegardError, RegardWarning, TextError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from regard.search.table import Options

_COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("apps.training:train", "Train a model from a recipe, or from two text files."),
    "translate": ("apps.translate:translate", "Translate text: a line in, a line out."),
    "evaluate": ("apps.use:evaluate", "Translate a source and score the output against references."),
    "watch": ("watch.command:watch", "Follow training in the browser: curves, and what each checkpoint translates."),
    "serve": ("server.command:serve", "Serve translations over HTTP: LibreTranslate's API, DeepL's and our own."),
    "adapt": ("adaptation.command:adapt", "Learn an adapter of a bundle from a few thousand pairs."),
    "score": ("apps.use:score", "The log-probability of given translations, a line each."),
    "align": ("linking.command:align", "Which word translates which: links like 0-0 1-2."),
    "calibrate": ("tuning.command:calibrate", "Measure how far confidence may be believed, and put it right."),
    "tune": ("tuning.command:tune", "Choose a bundle's length penalty and beam on validation data."),
    "sweep": ("sweeping.command:sweep", "Search settings of a recipe by many trainings, on validation data."),
    "backtranslate": ("synthetic.command:backtranslate", "Make pairs of target-side text by a reverse bundle."),
    "distill": ("synthetic.command:distill", "Make a teacher's translations, and train a student on them."),
    "parse": ("parsing.commands:parse", "Parse sentences: a line of words in, its tree out."),
    "inspect": ("inspection.command:inspect", "What a bundle is, where it came from, how good it is."),
    "generate": ("language.command:generate", "Go on with a text by a language model."),
    "fill": ("language.command:fill", "Fill in each <mask> of a line."),
    "classify": ("language.command:classify", "The label of each line, and how probable it is."),
    "embed": ("language.command:embed", "A vector of each line."),
    "perplexity": ("language.command:perplexity", "How well a model knows a text."),
    "phrases": ("parsing.commands:phrases", "Labelled text from a treebank such as SST."),
    "init": ("planning.command:init", "Write a commented recipe: every key with its meaning and its default."),
    "plan": ("planning.command:plan", "What a run will need, before it begins: memory, FLOPs, disk and time."),
    "prepare": ("planning.command:prepare", "Tokenise the data once into the store that training reads."),
    "import": ("exchange.command:import_", "Make a bundle of another library's model."),
    "export": ("exchange.command:export", "Write a bundle for another library, and say what differs there."),
    "average": ("tuning.command:average", "Write a bundle with the mean of several bundles' weights."),
    "quantize": ("tuning.command:quantize", "Write a bundle with smaller weights, and measure what that changes."),
    "shortlist": ("tuning.command:shortlist", "Learn which target tokens go with each source token."),
    "compare": ("comparison.command:compare", "Compare systems' outputs: significance, errors, examples."),
    "estimate": ("estimation.command:estimate", "How good translations are, without a reference."),
    "clean": ("cleaning.command:clean", "Leave out pairs that are no translations, and say why."),
    "mix": ("mixing.command:mix", "Make one corpus of several, tagged, the small ones repeated."),
    "link": ("linking.command:link", "Which word translates which, learnt from the text itself."),
    "read": ("reading.command:read", "Questions answered by a span of a passage, as in SQuAD."),
    "get": ("fetching.command:get", "Fetch a data set from its official address."),
    "demo": ("studies.demo.command:demo", "Train a small Transformer on the built-in corpus in minutes."),
    "trees": ("parsing.commands:trees", "A treebank as a parser is trained on: its words and its trees."),
    "look": ("explore.look_command:look", "Where a model looks, every layer and head of it."),
    "heads": ("explore.command:heads", "What each head is worth; a bundle without the least useful."),
    "lecture": ("studies.lectures.command:lecture", "The lectures on attention as running code."),
    "homework": ("studies.homework.command:homework", "Exercises from the lectures, checked in words, with points."),
    "lineage": ("studies.lineage.command:lineage", "Train the families on one corpus, and compare them."),
    "doctor": ("inspection.command:doctor", "This machine: versions, processor, kernels chosen and why."),
}
"""Of each command the module and the function, and what `regard --help` says of it."""
_SETTINGS = {"help_option_names": ["-h", "--help"]}


class _Command(TyperCommand):
    """A command whose help lists flags under their headings."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, flags without a heading, then each heading's."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if (row := parameter.get_help_record(ctx)) is not None:
                heading = "Options" if parameter.param_type_name == "option" else "Arguments"
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or heading, []).append(row)
        for heading, rows in sections.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


class _Loaded(UserDict[str, Any]):
    """The commands by their names, each made when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        module, function = _COMMANDS[name][0].split(":")
        alone = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS)
        alone.command(name, cls=_Command)(getattr(import_module(f"regard.{module}"), function))
        return typer.main.get_command(alone)


class _Group(TyperGroup):
    """`regard`, whose help needs none of its commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Loaded(_COMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, in the order of the help."""
        return list(_COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A line for each command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in _COMMANDS.items()])


app = typer.Typer(
    name="regard",
    cls=_Group,
    help="Sequence transduction with attention: two text files in, a translator out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=_SETTINGS,
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    import_: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="FILE", help="Python file that adds to Regard, imported first; repeatable."),
    ] = None,
) -> None:
    if import_:
        from regard.extensions import run_script

        for file in import_:
            run_script(file)
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
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return _fail(NO_TORCH.format("this"))
    except OSError as error:
        _forget_output()
        # Whoever read our output may have seen enough.
        return 0 if isinstance(error, BrokenPipeError) else _fail(_about(error))
    except KeyboardInterrupt:
        return 130
    finally:
        warnings.showwarning = show
        if arguments is None:
            gc.freeze()  # the process ends: nobody needs to look for what could be freed
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
        errno.ENOSPC: "; free some space, or choose another disk",
        errno.EDQUOT: "; free some of your quota, or choose another disk",
        errno.EACCES: "; check the permissions",
        errno.EROFS: "; choose a place that can be written",
        errno.ENOENT: "; check the path",
        errno.EISDIR: "; name a file, not a directory",
        errno.ENOTDIR: "; a part of the path is a file",
    }
    return f"{name}{error.strerror or error}{ways.get(error.errno or 0, '')}."


def _warn(message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
    """A warning of ours is a sentence for the user; of every other one the kind is named."""
    text = f"{message}" if issubclass(category, RegardWarning) else f"{category.__name__}: {message}"
    sys.stderr.write(f"regard: {printable(text)}\n")


def _fail(message: str) -> int:
    sys.stderr.write(f"regard: {printable(message)}\n")
    return 2


# -- what commands write with: text of others (files, names, errors, bundles) passes `printable` before it is shown ----

_WIDTH = 160  #: Columns where there is no terminal to ask.
_SELDOM = 30.0  #: Seconds from one line of progress to the next, where no terminal shows it.
# Characters that a terminal obeys: C0 but tab and line feed, DEL, C1, and those that turn the direction of writing.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text with every character that a terminal would obey written as its number, such as \\x1b."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def write(text: str) -> None:
    """Text to standard output, as it is: it is the result that was asked for."""
    sys.stdout.write(text)


def write_json(value: object, indent: int | None = 1) -> None:
    """Plain values to standard output as JSON; in a line of its own where `indent` is None."""
    write(json.dumps(value, ensure_ascii=False, indent=indent) + "\n")


def check_output(path: Path | None) -> None:
    """Raises TextError where no file can be made at this path: before the work, not after it."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        fault = "is a directory" if path.is_dir() else f"there is no directory {path.parent}"
        raise TextError(f"{path}: {fault}; name another file.")


def console_on(stream: TextIO) -> Console:
    """A Rich console on a stream."""
    from rich.console import Console

    return Console(file=stream, width=None if stream.isatty() else _WIDTH)


@contextmanager
def status(what: str, console: Console | None = None) -> Iterator[Callable[[str], None]]:
    """Shows on stderr how far a task is: beside a spinner on a terminal, elsewhere in a line each half minute."""
    console = console or console_on(sys.stderr)
    with console.status(what) as spinner:
        yield (lambda text: spinner.update(cell(text))) if console.is_terminal else seldom(console)


def seldom(console: Console) -> Callable[[str], None]:
    """What says a line, but for those that come less than half a minute after another."""
    last = time.monotonic()

    def tell(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _SELDOM:
            last = time.monotonic()
            say(console, text)

    return tell


def cell(text: str, style: str = "") -> Text:
    """Text of others as Rich shows it: nothing in it is markup, and no character of it is obeyed."""
    from rich.text import Text

    return Text(printable(text), style)


def new_table(*headings: str) -> Table:
    """A table without lines around it."""
    from rich.table import Table

    return Table(*headings, box=None, show_header=bool(headings), pad_edge=False)


def say(console: Console, text: str, style: str = "") -> None:
    """A line that is no longer than it is: not wrapped, not coloured by its content, without markup."""
    console.print(cell(text, style), highlight=False, soft_wrap=True)


# -- flags, made of the fields of options objects: their names, types, defaults and descriptions -----------------------

_GONE = {
    "batch_independent": "--precision exact; no precision of the compiled engine depends on the batch",
    "bfloat16": "--precision bfloat16",
}
"""Flags of older versions, and what takes their place."""


def takes(*names: str, **models: type[BaseModel]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose parameter `options` is made of flags for these fields, and others of all fields of a model.

        @takes(*SEARCH, "n_best", *LANGUAGES)
        def evaluate(bundle: BundlePath, options: Options, device: Device = "auto") -> None: ...

    Names are of fields of `SearchConfig` (what is given replaces what the recipe says), `Constraints` or `Options`;
    "set" stands for `--set KEY=VALUE`, any key of [search]. `@takes(…, shown=Shown)` makes flags of a model's fields. A
    field's `json_schema_extra` may hold its `panel` (a heading of the help), its `flag` and its `metavar`.
    """
    from regard.apps.options import field_named, flag_of, parameter
    from regard.search.table import checked

    flags = {name: flag_of(name, *field_named(name)) for name in names if name != "set"}
    if "set" in names:
        option = typer.Option("--set", metavar="KEY=VALUE", help="Any key of a recipe's [search]; may be repeated.")
        flags["set"] = parameter("set", list[str] | None, option)
    if "precision" in names:
        flags |= {name: _gone(name) for name in _GONE}
    own = {of: {n: flag_of(n, model, f) for n, f in model.model_fields.items()} for of, model in models.items()}
    made = {of: list(each.values()) for of, each in {**own, "options": flags}.items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_flags(**given: Any) -> None:
            check_output(given.get("output"))  # of those that have one
            objects: dict[str, Any] = {of: checked(models[of], _taken(given, own[of])) for of in models}
            if names:
                objects["options"] = _asked(_taken(given, flags))
            command(**given, **objects)

        signature = inspect.signature(command, eval_str=True)
        each = (made.get(p.name, [p.replace(kind=p.KEYWORD_ONLY)]) for p in signature.parameters.values())
        with_flags.__signature__ = signature.replace(parameters=[*chain(*each)])  # type: ignore[attr-defined]  # of inspect
        return with_flags

    return decorate


def _taken(given: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """What was given of these, taken out."""
    taken = {name: given.pop(name) for name in names}
    return {name: value for name, value in taken.items() if value is not None}


def _asked(given: dict[str, Any]) -> Options:
    from regard.search.table import Constraints, Options

    pairs = [pair.partition("=") for pair in given.pop("set", ())]
    search = {key.removeprefix("search."): value for key, _, value in pairs}
    constraints = {name: given.pop(name) for name in Constraints.model_fields if name in given}
    if isinstance(file := constraints.get("glossary"), Path):
        from regard.terminology.constraints import read_glossary
        from regard.text.lines import read_lines

        constraints["glossary"] = read_glossary(read_lines(file), str(file))
    return Options.of(search=search, constraints=Constraints(**constraints), **given)


def _gone(name: str) -> inspect.Parameter:
    """A flag of an older version, which is not shown and says what to use."""
    from regard.apps.options import parameter

    def refuse(value: bool | None) -> None:
        if value is not None:
            raise ModelError(f"--{name.replace('_', '-')}: there is no such option any more; use {_GONE[name]}.")

    flag = f"--{name.replace('_', '-')}"
    off = f"/--no-{name.replace('_', '-')}" if name == "batch_independent" else ""
    return parameter(name, bool | None, typer.Option(flag + off, hidden=True, callback=refuse))
