"""The commented recipe that `regard init` writes."""

from __future__ import annotations

import textwrap
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from regard.models import FAMILIES
from regard.recipe.schema import FAMILY, Recipe


def template(values: Mapping[str, Any] | None = None) -> str:
    """A commented recipe: every key with its description and default, or with one of `values`: {table: {key: …}}."""
    given: dict[str, Any] = {"name": "my-translator", **(values or {})}
    given["data"] = {"source": "train.source", "target": "train.target", **given.get("data", {})}
    lines = ["# A recipe: everything a run depends on. Every key but the data's files may be left out.", ""]
    tables = []
    for key, field in Recipe.model_fields.items():
        config = FAMILIES[FAMILY].config if key == "model" else field.annotation
        if isinstance(config, type) and issubclass(config, BaseModel):
            tables += ["", f"[{key}]  # {field.description}", *_keys(config, given.get(key, {}), key)]
        else:
            lines += _key(key, field, given)
    return "\n".join([*lines, *tables, ""])


def _keys(config: type[BaseModel], given: Mapping[str, Any], table: str) -> Iterator[str]:
    """A table's lines; the tables inside it come last, as TOML wants it."""
    below = []
    for key, field in config.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            name = f"{table}.{key}"
            below += ["", f"[{name}]  # {field.description}", *_keys(inner, given.get(key, {}), name)]
        elif typing.get_origin(inner) is dict and issubclass(typing.get_args(inner)[1], BaseModel):
            if key in given:
                below += ["", *tomli_w.dumps({table: {key: given[key]}}).strip().splitlines()]
            else:
                below += ["", f"# {field.description}", *_example(inner, f"{table}.{key}")]
        else:
            yield from _key(key, field, given)
    yield from below


def _key(key: str, field: FieldInfo, given: Mapping[str, Any]) -> Iterator[str]:
    yield from textwrap.wrap(str(field.description), 100, initial_indent="# ", subsequent_indent="# ")
    value = given.get(key, field.get_default(call_default_factory=True))
    if value is None:
        yield f'# {key} = ""'
    elif isinstance(value, dict):
        yield f"{key} = {{{', '.join(f'{name} = {inner!r}' for name, inner in value.items())}}}"
    else:
        written = tomli_w.dumps({key: list(value) if isinstance(value, tuple) else value}, indent=0).strip()
        yield written.replace("[\n", "[").replace(",\n]", "]").replace(",\n", ", ")


def _example(annotation: Any, table: str) -> Iterator[str]:
    """A table by name, as a comment to copy."""
    yield f"# [{table}.some-name]"
    for key in typing.get_args(annotation)[1].model_fields:
        yield f'# {key} = "…"'
