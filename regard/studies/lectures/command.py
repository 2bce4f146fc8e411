"""`regard lecture`: the lectures' formulas computed and their figures drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard import pictures
from regard.apps.cli import write, write_json
from regard.apps.options import Json
from regard.errors import DataError
from regard.machine import write_atomically

if TYPE_CHECKING:
    from .page import Lecture
    from .trained import Shown


def lecture(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Lectures; all: every one.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write NAME.html there.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="html|slides|ipynb|svg|png|pdf", help="A page, slides, or the picture alone: of a bundle, svg."
        ),
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The model of a lecture that needs one; alone: where it looks.")
    ] = None,
    line: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="What the bundle's model reads, not the lecture's; again for more lines."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="CODE", help="Target language, where the bundle has several.")
    ] = None,
    language: Annotated[
        str,
        typer.Option(metavar="en|zh", help="Of what is said of them, and of the numbers' names; JSON keeps English."),
    ] = "en",
    as_json: Json = False,
) -> None:
    """The lectures on attention as running code: a formula's numbers and, with --out, its page; alone, the list.

    What an extra is missing for is left out, and the exit code is 2. --kind ipynb writes notebooks, --kind slides a
    deck of each lecture, or of a whole document of the lectures: document-1 to document-5.
    """
    if kind in ("ipynb", "slides"):
        _exported(kind, names or [], out, language, bundle)
        return
    from .every import LECTURES

    kind = kind or ("svg" if bundle else "html")
    _check(names, kind, bundle, line, to)
    _spoken(language)
    if not names and bundle is None:
        _list(language)
        return
    chosen = list(LECTURES) if bundle is None and names == ["all"] else names or ["looks"]
    found, failed = {}, []
    for name in chosen:
        try:
            found[name] = _computed(name, bundle, line or (), to)
        except DataError as error:
            failed.append(str(error) if len(chosen) == 1 else _left_out(name, error, language))
    if as_json and found:
        write_json({name: one.numbers for name, one in found.items()})
    for name, one in found.items():
        said = "" if as_json else _told(name, one, language, line or [""])
        failed += _shown_and_drawn(said, one, name, None if out is None else out / f"{name}.{kind}", language)
    if out is not None and kind == "html" and names == ["all"]:
        from .interactive import write_index

        write_index(out, list(found))
    if failed:
        raise DataError("\n".join(dict.fromkeys(failed)))


def _left_out(name: str, error: DataError, language: str) -> str:
    from .labels import message

    return f"{name} {message('is left out', language)}: {error}"


def _shown_and_drawn(told: str, one: Lecture | Shown, name: str, file: Path | None, language: str) -> list[str]:
    """Write what is said of a lecture, if anything is, and its file; what went wrong is returned."""
    from .labels import message

    write(told)
    if file is None:
        return []
    try:
        _draw(one, file, name)
    except DataError as error:
        return [str(error)]
    write(f"  {message('drawn', language)}: {file}\n" if told else "")
    return []


def _told(name: str, one: Lecture | Shown, language: str, lines: Sequence[str]) -> str:
    """A lecture's sentence and its numbers, a line each."""
    from .every import about
    from .labels import label, shown

    said = about(name, language) if name != "looks" else lines[0]
    return f"{name}: {said}\n" + "".join(
        f"  {label(key, language)}: {shown(value, language)}\n" for key, value in one.numbers.items()
    )


def _check(names: list[str] | None, kind: str, bundle: Path | None, line: list[str] | None, to: str | None) -> None:
    """Raises DataError for options that do not go together."""
    if kind == "html" and bundle is not None:
        raise DataError("--kind html is a page of a lecture; what a bundle does is a picture: svg, png or pdf.")
    if kind not in ("html", *pictures.KINDS):
        raise DataError(f"--kind is {kind}; a page is html, slides or ipynb, a picture {' or '.join(pictures.KINDS)}.")
    for option, value, what in (("--line", line, "what a model reads"), ("--to", to, "what a model writes")):
        if bundle is None and value:
            raise DataError(f"{option} is {what}: give it with --bundle.")
    if bundle is not None and not names and len(line or ()) != 1:
        raise DataError("--bundle without a lecture's name shows where the model looks in one --line: give one.")


def _list(language: str) -> None:
    from .every import LECTURES, about
    from .labels import message
    from .trained import TRAINED

    longest = max(map(len, [*LECTURES, *TRAINED]))
    write("".join(f"{name:{longest}}  {about(name, language)}\n" for name in LECTURES))
    write(f"\n{message('of a trained model, with --bundle:', language)}\n")
    write("".join(f"{name:{longest}}  {about(name, language)}\n" for name in TRAINED))


def _computed(name: str, bundle: Path | None, lines: Sequence[str], to: str | None) -> Lecture | Shown:
    from .every import lecture as computed
    from .trained import looks, trained

    if bundle is None:
        return computed(name)
    return looks(bundle, lines, to) if name == "looks" else trained(name, bundle, lines, to)


def _draw(one: Lecture | Shown, file: Path, title: str) -> None:
    from .page import Lecture, draw

    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".html":
        from .interactive import page

        write_atomically(file, page(title, one))
    elif isinstance(one, Lecture):
        draw(one, file)
    else:
        pictures.shades(one.lines, aligned=one.aligned, title=title).save(file)


def _exported(kind: str, names: list[str], out: Path | None, language: str, bundle: Path | None) -> None:
    """Write notebooks or slides of the named lectures."""
    from .every import LECTURES
    from .labels import message
    from .notebooks import write_notebook
    from .slides import Decks, names_of

    if not names or out is None or bundle is not None:
        what = "notebooks" if kind == "ipynb" else "slides"
        raise DataError(f"--kind {kind} writes {what}: name lectures, or all, with --out DIR and without --bundle.")
    _spoken(language)
    decks = Decks()
    for name in names_of(names) if kind == "slides" else LECTURES if names == ["all"] else names:
        file = out / (f"{name}.ipynb" if kind == "ipynb" else f"{name}-slides.html")
        if kind == "ipynb":
            write_notebook(name, file, language)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, decks.deck(name, language))
        write(f"{message('drawn', language)}: {file}\n")


def _spoken(language: str) -> None:
    """Raises DataError for a language that the lectures do not speak."""
    from .labels import LANGUAGES

    if language not in LANGUAGES:
        raise DataError(f"--language is {language}; the lectures speak {' and '.join(LANGUAGES)}.")
