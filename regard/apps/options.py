"""Flags of the command line, made of the fields of options objects: their names, types, defaults and descriptions.

A command says which fields it takes, and is given one `Options`:

    @takes(*SEARCH, "n_best", *LANGUAGES)
    def evaluate(bundle: BundlePath, options: Options, device: Device = "auto") -> None:
        evaluate_lines(load(bundle, device=device), lines, references, options)

Names are of fields of `SearchConfig` (a flag is None unless it is given, and then replaces what the recipe says), of
`Constraints` or of `Options`; "set" stands for `--set KEY=VALUE`, any key of [search]. A command's own flags may be the
fields of a frozen model too: `@takes(…, shown=Shown)` gives the parameter `shown` a `Shown`. A field's
`json_schema_extra` may hold its `panel` (a heading of the help), its `flag` and its `metavar`.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from regard.errors import ModelError
from regard.search.table import PANELS, Constraints, Options, SearchConfig, explained

SEARCH = (*SearchConfig.model_fields,)
CONSTRAINTS = (*Constraints.model_fields,)
LANGUAGES = ("from_", "to")
DETAILS = ("confidence", "alignment", "attention", "replace_unknown")

BundlePath = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle's directory.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of standard output.")]
With = Annotated[
    list[Path] | None, typer.Option("--with", metavar="BUNDLE", help="One more model of an ensemble; may be repeated.")
]

AsJson = Annotated[bool, Field(description="print JSON", json_schema_extra={"flag": "--json"})]
Resamples = Annotated[int, Field(description="bootstrap samples behind the intervals; 0 for no intervals")]


class Flags(BaseModel):
    """Flags of a command that belong together."""

    model_config = ConfigDict(frozen=True)


class Cluster(Flags):
    """What a bulk translation runs on."""

    engine: Literal["local", "ray"] = Field(
        "local", description="where lines are translated: local, or ray, by the workers of a Ray cluster"
    )
    address: str = Field("", description="of --engine ray: a running cluster's address; without one, this machine")
    shard_lines: int = Field(20_000, ge=1, description="of --engine ray: lines of one shard, kept when it is done")
    workers: int = Field(0, ge=0, description="of --engine ray: shards at once; 0: as many as there are processors")


_MODELS: tuple[type[BaseModel], ...] = (Options, Constraints, SearchConfig)
_GONE = {
    "batch_independent": "--precision exact; no precision of the compiled engine depends on the batch",
    "bfloat16": "--precision bfloat16",
}
"""Flags of older versions, and what takes their place."""


def takes(*names: str, **models: type[BaseModel]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose parameter `options` is made of flags for these fields, and others of all fields of a model."""
    flags = {name: _flag(name, *_field(name)) for name in names if name != "set"}
    if "set" in names:
        option = typer.Option("--set", metavar="KEY=VALUE", help="Any key of a recipe's [search]; may be repeated.")
        flags["set"] = _parameter("set", list[str] | None, option)
    if "precision" in names:
        flags |= {name: _gone(name) for name in _GONE}
    own = {of: {n: _flag(n, model, f) for n, f in model.model_fields.items()} for of, model in models.items()}
    made = {of: list(each.values()) for of, each in {**own, "options": flags}.items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_flags(**given: Any) -> None:
            objects: dict[str, Any] = {of: _made(models[of], _taken(given, own[of])) for of in models}
            if names:
                objects["options"] = _options(_taken(given, flags))
            command(**given, **objects)

        signature = inspect.signature(command, eval_str=True)
        each = (made.get(p.name, [p.replace(kind=p.KEYWORD_ONLY)]) for p in signature.parameters.values())
        with_flags.__signature__ = signature.replace(parameters=[*chain(*each)])  # type: ignore[attr-defined]  # of inspect
        return with_flags

    return decorate


def computing(options: Options) -> dict[str, Any]:
    """How many lines are computed together, and in which precision."""
    return {key: options.setting(key) for key in ("batch_size", "precision")}


def _made(model: type[BaseModel], given: dict[str, Any]) -> BaseModel:
    """Raises ModelError for a value that there is not."""
    try:
        return model(**given)
    except ValidationError as error:
        raise ModelError(explained(error)) from None


def _taken(given: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """What was given of these, taken out."""
    taken = {name: given.pop(name) for name in names}
    return {name: value for name, value in taken.items() if value is not None}


def _field(name: str) -> tuple[type[BaseModel], FieldInfo]:
    return next((model, model.model_fields[name]) for model in _MODELS if name in model.model_fields)


def _flag(name: str, model: type[BaseModel], field: FieldInfo) -> inspect.Parameter:
    """A parameter that Typer makes a flag of."""
    extra: dict[str, Any] = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    flag = extra.get("flag", "--" + name.replace("_", "-"))
    kind = _type(field.annotation)
    if kind is bool and (model is SearchConfig or field.default):
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    description = str(field.description)
    option = typer.Option(
        flag,
        metavar=extra.get("metavar"),
        help=f"{description[0].upper()}{description[1:]}.",
        rich_help_panel=next((panel for panel, keys in PANELS.items() if name in keys), extra.get("panel")),
        show_default=False,
    )
    return _parameter(name, kind | None, option)


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _type(annotation: Any) -> Any:
    """What is written on a command line for a field of this type."""
    arguments, origin = typing.get_args(annotation), typing.get_origin(annotation)
    if origin in (types.UnionType, typing.Union):
        return _type(next(each for each in arguments if each is not types.NoneType))
    if origin is typing.Literal:
        return str
    if origin is tuple:
        return list[str] if arguments[0] is str else Path
    return annotation


def _options(given: dict[str, Any]) -> Options:
    pairs = [pair.partition("=") for pair in given.pop("set", ())]
    search = {key.removeprefix("search."): value for key, _, value in pairs}
    constraints = {name: given.pop(name) for name in CONSTRAINTS if name in given}
    if isinstance(file := constraints.get("glossary"), Path):
        from regard.tasks.constraints import read_glossary
        from regard.text.lines import read_lines

        constraints["glossary"] = read_glossary(read_lines(file), str(file))
    return Options.of(search=search, constraints=Constraints(**constraints), **given)


def _gone(name: str) -> inspect.Parameter:
    """A flag of an older version, which is not shown and says what to use."""

    def refuse(value: bool | None) -> None:
        if value is not None:
            raise ModelError(f"--{name.replace('_', '-')}: there is no such option any more; use {_GONE[name]}.")

    flag = f"--{name.replace('_', '-')}"
    off = f"/--no-{name.replace('_', '-')}" if name == "batch_independent" else ""
    return _parameter(name, bool | None, typer.Option(flag + off, hidden=True, callback=refuse))
