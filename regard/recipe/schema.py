"""The recipe as a value, and how it is read from TOML and written to it."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import tomli_w
from pydantic import BaseModel, Field, PlainValidator, ValidationError, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from regard.errors import ModelError, RecipeError
from regard.extensions import load_installed
from regard.models import FAMILIES
from regard.search.table import SearchConfig, check_for
from regard.settings import DataConfig, TrainConfig
from regard.text.subwords import TextConfig

if TYPE_CHECKING:
    from regard.train import Objective

FAMILY = "transformer"  # what a `[model]` table is when it names no family

Key = tuple[str, ...]  # a key below its tables: ("train", "warmup")
Values = Mapping[str, str] | None  # of variables, by the names that stand in `${NAME}`

RENAMED: dict[Key, str] = {
    ("train", "updates"): "max_updates",
    ("train", "rate"): "learning_rate",
    ("train", "damping"): "regularizers.token-weights",
    ("train", "input_damping"): "regularizers.input-weights",
    ("train", "attention_penalty"): "regularizers.attention-cost",
    ("model", "initial"): "init_range",
    ("model", "score_size"): "score_width",
    ("search", "no_repeat"): "no_repeat_ngram_size",
}
"""Keys of older recipes and what they are called now: errors name the new key, and older bundles are read with it."""

RENAMED_VALUES: dict[Key, dict[str, str]] = {
    ("train", "objective"): {"continue": "language-model", "mask": "masked-lm", "fill": "cmlm"}
}
"""The same of values, by the key whose value it is: ("train", "objective") -> {"old": "new"}."""

_SIDES = {"text": "text of one side", "pairs": "pairs of lines"}
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_LARGEST = 1 << 20  # characters of a recipe
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
# A key below forty tables: Python's reader takes time with the square of their number.
_DEEP = re.compile(rf"{_PART}(?:[ \t]*\.[ \t]*{_PART}){{40}}")
_TRAINED: Mapping[str, object] = {"trained": True}


def _objectives() -> Mapping[str, Objective]:
    from regard.train import OBJECTIVES  # which loads all of training: only where it is asked for

    return OBJECTIVES


def _model_table(table: object) -> Any:
    """The `[model]` table by the config of its family, which is looked up when it is needed: families may be added."""
    if isinstance(table, BaseModel):
        return table
    if not isinstance(table, Mapping):
        raise PydanticCustomError("table", "must be a table")
    family = table.get("family", FAMILY)
    if not isinstance(family, str) or family not in FAMILIES:
        raise PydanticCustomError("family", "must be a family")
    return FAMILIES[family].config.model_validate_json(json.dumps(table, default=str), strict=True)


class Recipe(BaseModel, extra="forbid", frozen=True):
    """What a run is made of."""

    name: str = Field("", description="what the run is called")
    seed: int = Field(1, ge=0, lt=2**31, description="of the initial weights, the order, dropout and sampling")
    data: DataConfig = Field(description="text files and how batches are made of them")
    text: TextConfig = Field(default_factory=TextConfig, description="how text becomes tokens")
    model: Annotated[Any, PlainValidator(_model_table)] = Field(
        default_factory=lambda: FAMILIES[FAMILY].config(), description="the model family and its sizes"
    )
    train: TrainConfig = Field(default_factory=TrainConfig, description="how weights are found")
    search: SearchConfig = Field(default_factory=SearchConfig, description="how outputs are searched for")

    @property
    def objective(self) -> str:
        """What is learnt: as `train.objective` says, or what the model's family and the data are for."""
        kind, side = FAMILIES[self.model.family].kind, self.data.side
        fitting = (name for name, o in _objectives().items() if kind in o.kinds and side in ("", o.reads))
        return self.train.objective or next(fitting, "")

    @property
    def corpus(self) -> DataConfig:
        """`data` as the objective wants it: what a classifier learns to write is labels."""
        wanted = _objectives()[self.objective].target
        return self.data if wanted == "text" else self.data.model_copy(update={"targets": wanted})

    @property
    def carries(self) -> bool:
        """Whether the model takes its state from window to window of a stream."""
        return FAMILIES[self.model.family].carries and bool(getattr(self.model, "carry", False))

    @property
    def spelling(self) -> TextConfig:
        """`text` with the symbols that the objective needs."""
        symbols = _objectives()[self.objective].symbols
        return self.text.model_copy(update={"symbols": (*dict.fromkeys((*symbols, *self.text.symbols)),)})

    @model_validator(mode="after")
    def _agrees(self, info: ValidationInfo) -> Self:
        if info.context == _TRAINED:
            return self
        family, side = FAMILIES[self.model.family], self.data.side
        kind = family.kind
        possible = {name: o for name, o in _objectives().items() if kind in o.kinds}
        wanted = self.objective or next(iter(possible))
        if wanted not in possible:
            article = "an" if kind[0] in "aeiou" else "a"
            raise ValueError(
                f"train.objective = {wanted!r} is not for model.family = {self.model.family!r}, {article} {kind}; "
                f"it can: {', '.join(possible)}."
            )
        objective = possible[wanted]
        if side not in ("", objective.reads):
            key = "data.text" if objective.reads == "text" else "data.source and data.target"
            raise ValueError(
                f"train.objective = {wanted!r} learns from {_SIDES[objective.reads]} and the data are {_SIDES[side]}; "
                f"name files in {key}, or choose another objective or family."
            )
        judge = self.train.validate_with
        if judge not in objective.measures:
            raise ValueError(
                f"train.validate_with = {judge!r} is not for train.objective = {wanted!r}; choose "
                f"{' or '.join(objective.measures)}."
            )
        if self.text.order != "left-to-right" and (objective.reads, objective.targets) != ("pairs", "every"):
            raise ValueError(
                f"text.order = {self.text.order!r} is for train.objective = 'translate', which writes a target of its "
                f"own, and not for {wanted!r}; leave text.order out."
            )
        wrong = self.train.regularizers.keys() - {"input-weights", "stochastic-depth"}
        if objective.targets == "spans" and wrong:
            raise ValueError(f"train.regularizers.{min(wrong)} is for targets of tokens, not of spans; leave it out.")
        if self.data.context and not objective.stream:
            raise ValueError(
                f"data.context cuts a stream to be continued, and train.objective = {wanted!r} reads line by line; "
                "leave data.context out."
            )
        if self.carries and not self.data.context:
            raise ValueError("model.carry goes from window to window of a stream; set data.context, or leave it out.")
        if self.data.context and self.text.sampling:
            raise ValueError("data.context and text.sampling do not go together; leave one of them out.")
        _check_text(self.text, objective)
        if kind in ("encoder-decoder", "mask-predictor"):
            attends = family.cross_attention(self.model) != (0, 0)
            try:
                check_for(self.search, step_by_step=family.step_by_step, attends=attends)
            except ModelError as error:
                raise ValueError(str(error)) from None
        return self


def _check_text(text: TextConfig, objective: Objective) -> None:
    """Raises ValueError for settings of [text] that do not go together, or not with what is learnt."""
    if text.target_kind and text.joint:
        raise ValueError(
            f'text.target_kind = "{text.target_kind}" needs a vocabulary of its own; set text.joint = false, or leave '
            "target_kind out."
        )
    if text.noise:
        from regard.text.noise import check  # few recipes have noise

        check(text.noise)
        if objective.reads != "pairs":
            raise ValueError("text.noise is put into the source of pairs, and this recipe reads text; leave it out.")


def load(path: str | Path, variables: Values = None, overrides: Iterable[str] = (), *, trained: bool = False) -> Recipe:
    """Read a recipe file; `variables` fill in `${NAME}`, `overrides` such as "train.learning_rate=0.5" replace values.

    With `trained` it is that of a model which is trained already: keys of older recipes are read under their present
    names (see `RENAMED`), and what concerns training alone is not checked again.
    Raises RecipeError for a missing file, text that is not TOML, wrong keys and wrong values.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            text = file.read(4 * _LARGEST + 1).decode("utf-8-sig")
    except OSError as error:
        raise RecipeError(f"{path}: the recipe cannot be read ({error.strerror}); `regard init` writes one.") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: not UTF-8 (byte {error.start + 1}); a recipe is TOML in UTF-8.") from None
    return parse(text, variables, overrides, name=str(path), trained=trained)


def parse(
    text: str, variables: Values = None, overrides: Iterable[str] = (), *, name: str = "recipe", trained: bool = False
) -> Recipe:
    """A recipe from TOML; `name` is for messages. See `load`."""
    if len(text) > _LARGEST:
        raise RecipeError(f"{name}: more than {_LARGEST:,} characters, which is too much for a recipe.")
    try:
        if _DEEP.search(text):
            raise RecursionError
        tables = tomllib.loads(text)
        if trained:
            _rename(tables)
        for override in overrides:
            _override(tables, override)
        return validate(_expand(tables, (), variables or {}, name), name=name, trained=trained)
    except ValueError as error:
        raise RecipeError(f"{name}: not valid TOML: {error}.") from None
    except RecursionError:
        raise RecipeError(f"{name}: tables or lists are nested too deeply; a recipe has two levels of them.") from None


def validate(tables: Mapping[str, object], *, name: str = "recipe", trained: bool = False) -> Recipe:
    """A recipe from plain dicts; raises RecipeError with a line for each wrong key or value."""
    context = _TRAINED
    if not trained:
        from regard.train import TABLES

        context = {"tables": TABLES}
    try:
        # Strict, so that "12" is no number; by way of JSON, which lets a list stand for a tuple.
        return Recipe.model_validate_json(json.dumps(tables, default=str), strict=True, context=context)
    except ValidationError as error:
        if load_installed():  # one of them may have added what is missing
            return validate(tables, name=name, trained=trained)
        from .messages import Reader, explain

        raise RecipeError(explain(error, name, Reader(Recipe, tables, RENAMED, RENAMED_VALUES))) from None


def changed(recipe: Recipe, tables: Mapping[str, Mapping[str, object]], *, name: str) -> Recipe:
    """The recipe with other values in some of its tables, checked like any other."""
    held = recipe.model_dump(mode="json", exclude_none=True)
    return validate({**held, **{key: {**held[key], **table} for key, table in tables.items()}}, name=name)


def to_toml(recipe: Recipe, *, defaults: bool = True) -> str:
    """The recipe as TOML, with or without what is as the defaults say; `parse` gives the same recipe back."""
    return tomli_w.dumps(recipe.model_dump(mode="json", exclude_none=True, exclude_defaults=not defaults))


def _rename(tables: dict[str, Any]) -> None:
    """Give the keys and values of an older recipe their present names."""
    search = tables.get("search")
    if isinstance(search, dict) and "no_repeat" in search:  # so old that precision had other meanings
        meant = {"float32": "auto", "auto": "int8"}
        search["precision"] = meant.get(search.get("precision", "float32"), search.get("precision"))
    for (table, old), new in RENAMED.items():
        keys = tables.get(table)
        if isinstance(keys, dict) and old in keys:
            value, (*above, last) = keys.pop(old), new.split(".")
            for name in above:
                keys = keys.setdefault(name, {})
            if isinstance(keys, dict):  # else it is a mistake, which validating names
                keys.setdefault(last, value)
    for (table, key), values in RENAMED_VALUES.items():
        keys = tables.get(table)
        if isinstance(keys, dict) and isinstance(keys.get(key), str):
            keys[key] = values.get(keys[key], keys[key])
    data = tables.get("data")
    if isinstance(data, dict) and data.get("metrics") == ["brackets"]:  # what once said that targets are trees
        data.setdefault("targets", "trees")


# -- variables and overrides ----------------------------------------------------------------------------------------


def _expand(value: Any, key: Key, variables: Mapping[str, str], name: str) -> Any:
    """The value with every `${NAME}` in its strings filled in; RecipeError for a number that is not finite."""
    if isinstance(value, dict):
        return {inner: _expand(below, (*key, inner), variables, name) for inner, below in value.items()}
    if isinstance(value, list):
        return [_expand(below, key, variables, name) for below in value]
    where = f"[{'.'.join(key[:-1])}] {key[-1]}" if key[1:] else "".join(key)
    if isinstance(value, float) and not math.isfinite(value):
        raise RecipeError(f"{name}: {where} = {value}: must be a finite number.")
    if not isinstance(value, str):
        return value

    def known(found: re.Match[str]) -> str:
        if key[0] != "data" and key != ("train", "start_from"):
            raise RecipeError(
                f"{name}: {where} = {value!r}: variables such as {found.group()} stand for folders, in [data] and "
                "in train.start_from; write the value out."
            )
        if found.group(1) not in variables:
            raise RecipeError(
                f"{name}: {where} = {value!r}: {found.group()} has no value that is a file or folder "
                f"here; set the variable to one (`export {found.group(1)}=…`) or write the path out."
            )
        return variables[found.group(1)]

    return _VARIABLE.sub(known, value)


def _override(tables: dict[str, Any], override: str) -> None:
    """Put "train.learning_rate=0.5" into the tables; a value that is no TOML is taken for text."""
    key, equals, written = override.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise RecipeError(f"--set {override}: must be table.key=value, like --set train.max_updates=2000.")
    try:
        value = tomllib.loads(f"value = {written}")["value"]
    except ValueError:
        value = written.strip()
    put(tables, names, value, name=f"--set {override}")


def put(tables: dict[str, object], key: Sequence[str], value: object, *, name: str) -> None:
    """Put a value under a key below its tables, which are made; RecipeError where a value stands in their place."""
    for table in key[:-1]:
        inner = tables.setdefault(table, {})
        if not isinstance(inner, dict):
            raise RecipeError(f"{name}: {table} is a value and has no keys below it.")
        tables = inner
    tables[key[-1]] = value
