"""Names of fields that make a command's flags (see `regard.apps.cli.takes`), and flags that several commands have."""

from __future__ import annotations

import inspect
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from regard.search.table import PANELS, Constraints, Options, SearchConfig

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
Resamples = Annotated[int, Field(ge=0, le=100_000, description="bootstrap samples behind intervals; 0: no intervals")]


class Flags(BaseModel, frozen=True):
    """Flags of a command that belong together."""


class Cluster(Flags):
    """What a bulk translation runs on."""

    engine: Literal["local", "ray"] = Field(
        "local", description="where lines are translated: local, or ray, by the workers of a Ray cluster"
    )
    address: str = Field("", description="of --engine ray: a running cluster's address; without one, this machine")
    shard_lines: int = Field(20_000, ge=1, description="of --engine ray: lines of one shard, kept when it is done")
    workers: int = Field(0, ge=0, description="of --engine ray: shards at once; 0: as many as there are processors")


def computing(options: Options) -> dict[str, Any]:
    """How many lines are computed together, and in which precision."""
    return {key: options.setting(key) for key in ("batch_size", "precision")}


def field_named(name: str) -> tuple[type[BaseModel], FieldInfo]:
    """A field of the options by its name, and the model that has it."""
    return next((m, m.model_fields[name]) for m in (Options, Constraints, SearchConfig) if name in m.model_fields)


def flag_of(name: str, model: type[BaseModel], field: FieldInfo) -> inspect.Parameter:
    """A parameter that Typer makes a flag of."""
    extra: dict[str, Any] = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    flag = extra.get("flag", "--" + name.replace("_", "-"))
    kind = _type(field.annotation)
    if kind is bool and (model is SearchConfig or field.default):
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    description = str(field.description)
    shown = f" ({field.default:,})" if kind in (int, float) and field.default and model is not SearchConfig else ""
    option = typer.Option(
        flag,
        metavar=extra.get("metavar"),
        help=f"{description[0].upper()}{description[1:]}{shown}.",
        rich_help_panel=next((panel for panel, keys in PANELS.items() if name in keys), extra.get("panel")),
        show_default=False,
    )
    return parameter(name, kind | None, option)


def parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    """A parameter of a command that need not be given."""
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
