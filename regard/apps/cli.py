"""The command line: parse, call a task, show. A command's module is imported when that command is used.

Exit codes: 0 done, 2 a mistake that the user can mend (said in a message, without a traceback), 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
import warnings
from collections import UserDict
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from regard.apps.terminal import printable, write
from regard.errors import NO_TORCH, RegardError, RegardWarning

_COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("apps.training:train", "Train a model from a recipe, or from two text files."),
    "translate": ("apps.translate:translate", "Translate text: a line in, a line out."),
    "evaluate": ("apps.use:evaluate", "Translate a source and score the output against references."),
    "watch": ("watch.command:watch", "Follow training in the browser: curves, and what each checkpoint translates."),
    "serve": ("server.command:serve", "Serve translations over HTTP: LibreTranslate's API, DeepL's and our own."),
    "adapt": ("adaptation.command:adapt", "Learn an adapter of a bundle from a few thousand pairs."),
    "score": ("apps.use:score", "The log-probability of given translations, a line each."),
    "align": ("apps.use:align", "Which word translates which: links like 0-0 1-2."),
    "calibrate": ("apps.use:calibrate", "Measure how far a model's confidence may be believed, and put it right."),
    "tune": ("tuning.command:tune", "Choose a bundle's length penalty and beam on validation data."),
    "sweep": ("sweeping.command:sweep", "Search settings of a recipe by many trainings, on validation data."),
    "backtranslate": ("synthetic.command:backtranslate", "Make pairs of target-side text by a reverse bundle."),
    "distill": ("synthetic.command:distill", "Make a teacher's translations, and train a student on them."),
    "parse": ("parsing.commands:parse", "Parse sentences: a line of words in, its tree out."),
    "inspect": ("apps.use:inspect", "What a bundle is, where it came from, how good it is."),
    "generate": ("apps.language:generate", "Go on with a text by a language model."),
    "fill": ("apps.language:fill", "Fill in each <mask> of a line."),
    "classify": ("apps.language:classify", "The label of each line, and how probable it is."),
    "embed": ("apps.language:embed", "A vector of each line."),
    "perplexity": ("apps.language:perplexity", "How well a model knows a text."),
    "phrases": ("apps.language:phrases", "Labelled text from a treebank such as SST."),
    "init": ("apps.training:init", "Write a commented recipe: every key with its meaning and its default."),
    "plan": ("apps.training:plan", "What a run will need, before it begins: memory, FLOPs, disk and time."),
    "prepare": ("apps.training:prepare", "Tokenise the data once into the store that training reads."),
    "import": ("apps.make:import_", "Make a bundle of another library's model."),
    "export": ("apps.make:export", "Write a bundle for another library, and say what differs there."),
    "quantize": ("apps.make:quantize", "Write a bundle with smaller weights, and measure what that changes."),
    "shortlist": ("apps.make:shortlist", "Learn which target tokens go with each source token."),
    "compare": ("comparison.command:compare", "Compare systems' outputs: significance, errors, examples."),
    "estimate": ("estimation.command:estimate", "How good translations are, without a reference."),
    "clean": ("cleaning.command:clean", "Leave out pairs that are no translations, and say why."),
    "mix": ("mixing.command:mix", "Make one corpus of several, tagged, the small ones repeated."),
    "link": ("linking.command:link", "Which word translates which, learnt from the text itself."),
    "read": ("reading.command:read", "Questions answered by a span of a passage, as in SQuAD."),
    "get": ("apps.make:get", "Fetch a data set from its official address."),
    "demo": ("apps.make:demo", "Train a small Transformer on the built-in corpus in minutes."),
    "trees": ("parsing.commands:trees", "A treebank as a parser is trained on: its words and its trees."),
    "look": ("explore.look_command:look", "Where a model looks, every layer and head of it."),
    "heads": ("explore.command:heads", "What each head is worth; a bundle without the least useful."),
    "lecture": ("studies.lectures.command:lecture", "The lectures on attention as running code."),
    "homework": ("studies.homework.command:homework", "Exercises from the lectures, checked in words, with points."),
    "lineage": ("studies.lineage.command:lineage", "Train the families on one corpus, and compare them."),
    "doctor": ("apps.use:doctor", "This machine: versions, processor, kernels chosen and why."),
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
