"""Recipes: everything a run depends on, in one TOML file; each room owns the config of its own table.

A wrong key is answered with the nearest right one and its place, a wrong value with its rule.
Recipe -> TOML -> recipe is the identity.
"""

from __future__ import annotations

import difflib
import json
import re
import textwrap
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from regard.errors import RecipeError
from regard.models import KINDS, MODELS
from regard.search.config import SearchConfig
from regard.settings.data import DataConfig
from regard.settings.train import TrainConfig
from regard.text.config import TextConfig
from regard.train import OBJECTIVES

__all__ = ["RENAMED", "Recipe", "load", "parse", "template", "to_toml", "validate"]

_FAMILY = "transformer"
"""What a `[model]` table is when it names no family."""

_SIDES = {"text": "text of one side", "pairs": "pairs of lines"}

_VARIABLE = re.compile(r"\$\{([^}]*)\}")

_KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: 'text in quotes ("…")',
    dict: "a table",
}

Place = tuple[str, ...]

RENAMED: dict[Place, str] = {
    ("train", "updates"): "max_updates",
    ("train", "rate"): "learning_rate",
    ("model", "initial"): "init_range",
    ("model", "score_size"): "score_width",
    ("search", "no_repeat"): "no_repeat_ngram_size",
}
"""Keys of older recipes and what they are called now: errors name the new key, and older bundles are read with it."""


class _ByFamily:
    """Has a `[model]` table validated by the config of its family, as `MODELS` knows it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = {family: handler.generate_schema(config) for family, (config, _) in MODELS.items()}
        return core_schema.tagged_union_schema(choices, discriminator=_family_of)


def _family_of(table: Any) -> Any:
    return table.get("family", _FAMILY) if isinstance(table, Mapping) else getattr(table, "family", None)


class Recipe(BaseModel):
    """What a run is made of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("", description="what the run is called")
    seed: int = Field(1, ge=0, lt=2**31, description="of the initial weights, the order, dropout and sampling")
    data: DataConfig = Field(description="text files and how batches are made of them")
    text: TextConfig = Field(default_factory=TextConfig, description="how text becomes tokens")
    model: Annotated[Any, _ByFamily()] = Field(
        default_factory=lambda: MODELS[_FAMILY][0](), description="the model family and its sizes"
    )
    train: TrainConfig = Field(default_factory=TrainConfig, description="how weights are found")
    search: SearchConfig = Field(default_factory=SearchConfig, description="how outputs are searched for")

    @property
    def objective(self) -> str:
        """What is learnt: as `train.objective` says, or what the model's family and the data are for."""
        kind, side = KINDS[self.model.family], "text" if self.data.texts else "pairs"
        fitting = [name for name, o in OBJECTIVES.items() if o.kind == kind and o.reads == side]
        return self.train.objective or next(iter(fitting), "")

    @property
    def corpus(self) -> DataConfig:
        """`data` as the objective wants it: labels are short, so no ratio of lengths is too large."""
        if self.objective != "classify":
            return self.data
        filters = self.data.filters.model_copy(update={"max_ratio": 2.0**31})
        return self.data.model_copy(update={"filters": filters})

    @property
    def spelling(self) -> TextConfig:
        """`text` with the symbols that the objective needs."""
        symbols = OBJECTIVES[self.objective].symbols
        return self.text.model_copy(update={"symbols": (*dict.fromkeys((*symbols, *self.text.symbols)),)})

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        kind, side = KINDS[self.model.family], "text" if self.data.texts else "pairs"
        possible = {name: o.reads for name, o in OBJECTIVES.items() if o.kind == kind}
        wanted = self.objective or next(iter(possible))
        if wanted not in possible:
            raise ValueError(
                f"train.objective = {wanted!r} is not for model.family = {self.model.family!r}, {_article(kind)}; "
                f"it can: {', '.join(possible)}."
            )
        if possible[wanted] != side:
            key = "data.text" if possible[wanted] == "text" else "data.source and data.target"
            raise ValueError(
                f"train.objective = {wanted!r} learns from {_SIDES[possible[wanted]]} and the data are {_SIDES[side]}; "
                f"name files in {key}, or choose another objective or family."
            )
        judge = self.train.validate_with
        if (judge == "accuracy") != (wanted == "classify") and judge != "loss":
            raise ValueError(
                f"train.validate_with = {judge!r} is not for train.objective = {wanted!r}; choose loss"
                + (" or accuracy." if wanted == "classify" else " or bleu." if possible[wanted] == "pairs" else ".")
            )
        if judge == "bleu" and possible[wanted] == "text":
            raise ValueError(
                f"train.validate_with = 'bleu' needs references, and {_SIDES['text']} has none; choose loss."
            )
        if self.text.order != "left-to-right" and wanted != "translate":
            raise ValueError(
                f"text.order = {self.text.order!r} is for train.objective = 'translate', which writes a target of its "
                f"own, and not for {wanted!r}; leave text.order out."
            )
        if self.data.context and wanted != "continue":
            raise ValueError(
                f"data.context cuts a stream to be continued, and train.objective = {wanted!r} reads line by line; "
                "leave data.context out."
            )
        if self.data.context and self.text.sampling:
            raise ValueError("data.context and text.sampling do not go together; leave one of them out.")
        return self


def load(
    path: str | Path,
    variables: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
    *,
    accept_renamed: bool = False,
) -> Recipe:
    """Read a recipe file; `variables` fill in `${NAME}`, `overrides` such as "train.learning_rate=0.5" replace values.

    With `accept_renamed` the keys of older recipes are read under their present names (see `RENAMED`).
    Raises RecipeError for a missing file, text that is not TOML, wrong keys and wrong values.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise RecipeError(f"{path}: the recipe cannot be read ({error.strerror}); `regard init` writes one.") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: not UTF-8 (byte {error.start + 1}); a recipe is TOML in UTF-8.") from None
    return parse(text, variables, overrides, name=str(path), accept_renamed=accept_renamed)


def parse(
    text: str,
    variables: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
    *,
    name: str = "recipe",
    accept_renamed: bool = False,
) -> Recipe:
    """A recipe from TOML; `name` is for messages. See `load`."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{name}: not valid TOML: {error}.") from None
    if accept_renamed:
        _rename(tables)
    for override in overrides:
        _override(tables, override)
    return validate(_expand(tables, (), variables or {}, name), name=name)


def validate(tables: Mapping[str, Any], *, name: str = "recipe") -> Recipe:
    """A recipe from plain dicts; raises RecipeError with a line for each wrong key or value."""
    try:
        # Strict, so that "12" is no number; by way of JSON, which lets a list stand for a tuple.
        return Recipe.model_validate_json(json.dumps(tables, default=str), strict=True)
    except ValidationError as error:
        raise RecipeError(_explain(error, tables, name)) from None


def to_toml(recipe: Recipe, *, defaults: bool = True) -> str:
    """The recipe as TOML, with or without what is as the defaults say; `parse` gives the same recipe back."""
    return tomli_w.dumps(recipe.model_dump(mode="json", exclude_none=True, exclude_defaults=not defaults))


def _rename(tables: dict[str, Any]) -> None:
    """Give the keys of an older recipe their present names."""
    for (table, old), new in RENAMED.items():
        keys = tables.get(table)
        if isinstance(keys, dict) and old in keys:
            keys.setdefault(new, keys.pop(old))


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


# -- variables and overrides ----------------------------------------------------------------------------------------


def _expand(value: Any, place: Place, variables: Mapping[str, str], name: str) -> Any:
    """The value with every `${NAME}` in its strings filled in."""
    if isinstance(value, dict):
        return {key: _expand(inner, (*place, key), variables, name) for key, inner in value.items()}
    if isinstance(value, list):
        return [_expand(inner, place, variables, name) for inner in value]
    if not isinstance(value, str):
        return value

    def known(found: re.Match[str]) -> str:
        if found.group(1) not in variables:
            raise RecipeError(
                f"{name}: {_show(place)} = {value!r}: {found.group()} has no value; "
                f"set the variable (`export {found.group(1)}=…`) or write the path out."
            )
        return variables[found.group(1)]

    return _VARIABLE.sub(known, value)


def _override(tables: dict[str, Any], override: str) -> None:
    """Put "train.learning_rate=0.5" into the tables; a value that is no TOML is taken for text."""
    key, equals, written = override.partition("=")
    place = key.strip().split(".")
    if not equals or not all(place):
        raise RecipeError(f"--set {override}: must be table.key=value, like --set train.max_updates=2000.")
    try:
        value = tomllib.loads(f"value = {written}")["value"]
    except tomllib.TOMLDecodeError:
        value = written.strip()
    table = tables
    for name in place[:-1]:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            raise RecipeError(f"--set {override}: {name} is a value and has no keys below it.")
        table = inner
    table[place[-1]] = value


# -- messages -------------------------------------------------------------------------------------------------------


def _explain(error: ValidationError, tables: Mapping[str, Any], name: str) -> str:
    """One line for each mistake; of several at one place, or below it, the first."""
    lines: dict[Place, str] = {}
    for details in error.errors(include_url=False):
        place = _place(details["loc"], tables)
        if not any(place[: len(known)] == known for known in lines):
            lines[place] = f"{name}: {_message(details, place, tables)}"
    return "\n".join(lines.values())


def _place(location: tuple[int | str, ...], tables: Mapping[str, Any]) -> Place:
    """Where it is in the file: pydantic's location without the names of the union's branches it tried."""
    place: list[str] = []
    here: Any = tables
    for part in location:
        if isinstance(here, Mapping) and part in here:
            here = here[str(part)]
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            here = here[part]
        elif not (isinstance(here, Mapping) and part == location[-1]) or part in MODELS:
            continue
        place.append(str(part))
    return tuple(place)


def _show(place: Place) -> str:
    if len(place) > 1:
        return f"[{'.'.join(place[:-1])}] {place[-1]}"
    return f"[{place[0]}]" if place[0] in _tables() else place[0]


def _message(details: ErrorDetails, place: Place, tables: Mapping[str, Any]) -> str:
    kind, value = details["type"], details["input"]
    if kind == "extra_forbidden":
        return _unknown(place, value, tables)
    field = _field(place, tables)
    about = f" ({field.description.rstrip('.')})" if field and field.description else ""
    if kind == "missing":
        return f"{_show(place)}: must be given{about}."
    if kind == "value_error":
        where = f"{_show(place)}: " if place else ""
        return where + _end(details["msg"].removeprefix("Value error, "))
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        family = value.get("family") if isinstance(value, Mapping) else value
        return f"[model] family = {family!r}: must be one of {_list(MODELS)}{_nearest(str(family), MODELS)}"
    if isinstance(value, Mapping):
        return f"{_show(place)}: is a table here, and must be a single value{about}."
    shown = json.dumps(value, ensure_ascii=False, default=str)
    if kind == "literal_error" and field is not None:
        choices = [str(choice) for choice in typing.get_args(field.annotation)]
        return f"{_show(place)} = {shown}: must be one of {_list(choices)}{_nearest(str(value), choices)}"
    return f"{_show(place)} = {shown}: {_rule(details, field)}{about}."


def _rule(details: ErrorDetails, field: FieldInfo | None) -> str:
    kind, context = details["type"], details.get("ctx", {})
    bounds = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
    words = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
    if kind in bounds:
        return f"must be {words[bounds[kind]]} {context[bounds[kind]]}"
    if field is not None and kind.endswith(("_type", "_parsing", "_from_float")):
        return f"must be {_kind(field.annotation)}"
    return _lower(details["msg"])


def _kind(annotation: Any) -> str:
    """A type in words."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return " or ".join(_kind(choice) for choice in typing.get_args(annotation) if choice is not types.NoneType)
    if typing.get_origin(annotation) is tuple:
        return "a list"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a table"
    return _KINDS.get(typing.get_origin(annotation) or annotation, "of another kind")


def _unknown(place: Place, value: Any, tables: Mapping[str, Any]) -> str:
    *above, key = place
    known = _table(tuple(above), tables)
    fields = known.model_fields if known is not None else {}
    what = "table" if isinstance(value, Mapping) else "key"
    where = f"[{'.'.join(place)}]" if what == "table" else _show(place)
    if (new := RENAMED.get(place)) in fields:
        return f"{where}: this key is called {new} now; write {new} instead."
    if near := difflib.get_close_matches(key, fields, 1):
        return f"{where}: unknown {what}; did you mean {near[0]}?"
    if above == ["model"] and (others := [name for name, (config, _) in MODELS.items() if key in config.model_fields]):
        return f"{where}: unknown {what}; it is of the families {_list(others)}. Known here: {_list(fields)}."
    if found := next((p for p in _places() if p[-1] == key), None):
        above_all = "" if len(found) > 1 else ", before the first table"
        return f"{where}: unknown {what} here; did you mean {_show(found)}{above_all}?"
    everywhere = {p[-1]: p for p in _places()}
    if near := difflib.get_close_matches(key, everywhere, 1, cutoff=0.75):
        return f"{where}: unknown {what}; did you mean {_show(everywhere[near[0]])}?"
    return f"{where}: unknown {what}; known here: {', '.join(fields)}."


def _table(place: Place, tables: Mapping[str, Any]) -> type[BaseModel] | None:
    """The config that rules a table, or None."""
    config: Any = Recipe
    for part in place:
        if config is Recipe and part == "model":
            table = tables.get("model")
            family = str(_family_of(table)) if isinstance(table, Mapping) else _FAMILY
            config = MODELS.get(family, (None,))[0]
        elif isinstance(config, type) and issubclass(config, BaseModel):
            config = config.model_fields[part].annotation if part in config.model_fields else None
        elif typing.get_origin(config) is dict:
            config = typing.get_args(config)[1]
        else:
            return None
    return config if isinstance(config, type) and issubclass(config, BaseModel) else None


def _field(place: Place, tables: Mapping[str, Any]) -> FieldInfo | None:
    table = _table(place[:-1], tables) if place else None
    return table.model_fields.get(place[-1]) if table is not None else None


def _tables() -> list[str]:
    """The recipe's tables; its other keys are plain values."""
    return [key for key, field in Recipe.model_fields.items() if _kind(field.annotation) == "a table" or key == "model"]


def _places() -> Iterator[Place]:
    """Every key that a recipe may have."""
    for table, field in Recipe.model_fields.items():
        yield (table,)
        configs = [config for config, _ in MODELS.values()] if table == "model" else [field.annotation]
        for config in configs:
            if isinstance(config, type) and issubclass(config, BaseModel):
                yield from ((table, key) for key in config.model_fields)


def _nearest(word: str, choices: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(choices), 1)
    return f"; did you mean {near[0]}?" if near else "."


def _list(choices: Iterable[Any]) -> str:
    return ", ".join(str(choice) for choice in choices)


def _end(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else text + "."


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


# -- the recipe that `regard init` writes ----------------------------------------------------------------------------


def template(values: Mapping[str, Any] | None = None) -> str:
    """A commented recipe: every key with its description and default, which `parse` accepts.

    `values` such as {"data": {"source": "a.en"}} stand in place of the defaults.
    """
    given: dict[str, Any] = {"name": "my-translator", **(values or {})}
    given["data"] = {"source": "train.source", "target": "train.target", **given.get("data", {})}
    lines = ["# A recipe: everything a run depends on. Every key but the data's files may be left out.", ""]
    tables = []
    for key, field in Recipe.model_fields.items():
        config = MODELS[_FAMILY][0] if key == "model" else field.annotation
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
        elif typing.get_origin(inner) is dict:
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
    else:
        written = tomli_w.dumps({key: list(value) if isinstance(value, tuple) else value}, indent=0).strip()
        yield written.replace("[\n", "[").replace(",\n]", "]").replace(",\n", ", ")


def _example(annotation: Any, table: str) -> Iterator[str]:
    """A table by name, as a comment to copy."""
    yield f"# [{table}.some-name]"
    for key in typing.get_args(annotation)[1].model_fields:
        yield f'# {key} = "…"'
