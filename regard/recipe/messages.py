"""Mistakes in a recipe in words: where each is, which rule it breaks and what to write instead."""

from __future__ import annotations

import difflib
import json
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from regard.extensions import HINT
from regard.models import FAMILIES

Key = tuple[str, ...]

_MOST = 20  # mistakes that are explained at a time
_LONGEST = 200  # characters of a value that are shown
_KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: 'text in quotes ("…")',
    dict: "a table",
}
_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


@dataclass(frozen=True)
class Reader:
    """What a recipe may hold, to be asked about the tables of one."""

    root: type[BaseModel]
    tables: Mapping[str, Any]
    renamed: Mapping[Key, str]  # an older key -> its new name
    renamed_values: Mapping[Key, Mapping[str, str]]  # a key -> the new names of its older values

    def show(self, key: Key) -> str:
        """A key with its table in brackets."""
        if len(key) > 1:
            return f"[{'.'.join(key[:-1])}] {key[-1]}"
        field = self.root.model_fields.get(key[0])
        return f"[{key[0]}]" if field and (key[0] == "model" or _kind(field.annotation) == "a table") else key[0]

    def message(self, details: ErrorDetails, key: Key) -> str:
        """One mistake in words."""
        kind, value = details["type"], details["input"]
        if kind == "extra_forbidden":
            return self._unknown(key, value)
        field = self._field(key)
        about = f" ({field.description.rstrip('.')})" if field and field.description else ""
        if kind == "missing":
            return f"{self.show(key)}: must be given{about}."
        if kind == "value_error":
            text = (f"{self.show(key)}: " if key else "") + details["msg"].removeprefix("Value error, ")
            return text if text.endswith((".", "?", "!")) else f"{text}."
        if kind == "family":
            family = value.get("family")
            return f"[model] family = {family!r}: {_one_of(FAMILIES, str(family))}"
        if isinstance(value, Mapping) and kind != "unknown_name":
            return f"{self.show(key)}: is a table here, and must be a single value{about}."
        shown = json.dumps(value, ensure_ascii=False, default=str)
        shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
        if new := self.renamed_values.get(key, {}).get(str(value)):
            return f'{self.show(key)} = {shown}: this is called "{new}" now; write that instead.'
        if kind == "unknown_name":
            name = details["ctx"]["name"]
            return f"{self.show(key)} = {json.dumps(name)}: {_one_of(details['ctx']['names'], name)}"
        if kind == "literal_error" and field is not None:
            return f"{self.show(key)} = {shown}: {_one_of(map(str, typing.get_args(field.annotation)), str(value))}"
        return f"{self.show(key)} = {shown}: {_rule(details, field)}{about}."

    def _unknown(self, key: Key, value: Any) -> str:
        *above, name = key
        known = self._table(tuple(above))
        fields = known.model_fields if known is not None else {}
        what = "table" if isinstance(value, Mapping) else "key"
        where = f"[{'.'.join(key)}]" if what == "table" else self.show(key)
        if (new := self.renamed.get(key)) and new.partition(".")[0] in fields:
            return f"{where}: this key is called {new} now; write {new} instead."
        if near := _close(name, fields):
            return f"{where}: unknown {what}; did you mean {near}?"
        if above == ["model"] and (others := [n for n, f in FAMILIES.items() if name in f.config.model_fields]):
            known_here = ", ".join(fields)
            return f"{where}: unknown {what}; it is of the families {', '.join(others)}. Known here: {known_here}."
        everywhere = {found[-1]: found for found in reversed([*self._keys()])}
        if found := everywhere.get(name):
            above_all = "" if len(found) > 1 else ", before the first table"
            return f"{where}: unknown {what} here; did you mean {self.show(found)}{above_all}?"
        if near := _close(name, everywhere, 0.75):
            return f"{where}: unknown {what}; did you mean {self.show(everywhere[near])}?"
        return f"{where}: unknown {what}; known here: {', '.join(fields)}."

    def _table(self, key: Key) -> type[BaseModel] | None:
        """The config that rules a table, or None."""
        config: Any = self.root
        for part in key:
            if config is self.root and part == "model":
                table = self.tables.get("model")
                family = FAMILIES.get(str(table.get("family", "transformer"))) if isinstance(table, Mapping) else None
                config = family.config if family else None
            elif isinstance(config, type) and issubclass(config, BaseModel):
                config = config.model_fields[part].annotation if part in config.model_fields else None
            elif typing.get_origin(config) is dict:
                config = typing.get_args(config)[1]
            else:
                return None
        return config if isinstance(config, type) and issubclass(config, BaseModel) else None

    def _field(self, key: Key) -> FieldInfo | None:
        table = self._table(key[:-1]) if key else None
        return table.model_fields.get(key[-1]) if table is not None else None

    def _keys(self) -> Iterator[Key]:
        """Every key that a recipe may have."""
        for table, field in self.root.model_fields.items():
            yield (table,)
            configs = [f.config for f in FAMILIES.values()] if table == "model" else [field.annotation]
            for config in configs:
                if isinstance(config, type) and issubclass(config, BaseModel):
                    yield from ((table, key) for key in config.model_fields)


def explain(error: ValidationError, name: str, reader: Reader) -> str:
    """One line for each of the first mistakes; of several at one key, or below it, the first."""
    lines: dict[Key, str] = {}
    for details in error.errors(include_url=False):
        key = _key(details["loc"], reader.tables)
        if len(lines) < _MOST and not any(key[: len(known)] == known for known in lines):
            lines[key] = f"{name}: {reader.message(details, key)}"
    return "\n".join(lines.values())


def _key(location: tuple[int | str, ...], tables: Mapping[str, Any]) -> Key:
    """Where it is in the file: pydantic's location without what is no key of it."""
    key: list[str] = []
    here: Any = tables
    for part in location:
        if isinstance(here, Mapping) and part in here:
            here = here[str(part)]
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            here = here[part]
        elif not (isinstance(here, Mapping) and part == location[-1]):
            continue
        key.append(str(part))
    return tuple(key)


def _rule(details: ErrorDetails, field: FieldInfo | None) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return f"must be {words} {context[bound]}"
    if field is not None and kind.endswith(("_type", "_parsing", "_from_float")):
        return f"must be {_kind(field.annotation)}"
    return details["msg"][:1].lower() + details["msg"][1:]


def _kind(annotation: Any) -> str:
    """A type in words."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return " or ".join(_kind(choice) for choice in typing.get_args(annotation) if choice is not types.NoneType)
    if typing.get_origin(annotation) is tuple:
        return "a list"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a table"
    return _KINDS.get(typing.get_origin(annotation) or annotation, "of another kind")


def _close(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """The choice that is spelt most like the word, or nothing."""
    return next(iter(difflib.get_close_matches(word[:_LONGEST], list(choices), 1, cutoff)), "")


def _one_of(choices: Iterable[str], word: str) -> str:
    names = list(choices)
    near = _close(word, names)
    return f"must be one of {', '.join(names)}; " + (f"did you mean {near}?" if near else f"{HINT}.")
