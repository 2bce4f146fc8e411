"""What a sweep may try: keys of a recipe, each with a range or with choices, and recipes with values of these."""

from __future__ import annotations

import json
import math
import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from regard import recipe as recipes
from regard.errors import RecipeError
from regard.recipe import Recipe
from regard.recipe.schema import put

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Settings = dict[str, object]  # by key, such as "train.learning_rate"
Drawn = float | int | str  # a value as Optuna has it: a number, or a choice as JSON

_NUMBER = r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})")
_WHOLE = re.compile(r"[+-]?\d+")
_FAR = 10  #: Ends of a range that are further apart than this factor are searched by the logarithm.
_DRAWS = 100  #: Settings of the other keys with which a value is tried that the recipe refuses by itself.
_JUDGES = ("train.validate_with", "data.test", "data.valid_")


@dataclass(frozen=True)
class Range:
    """All numbers between two ends, both included; whole ones if both ends are."""

    key: str
    written: str
    low: float
    high: float

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are tried."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def log(self) -> bool:
        """Whether equal factors count as equal steps."""
        return self.low > 0 and self.high / self.low > _FAR

    @property
    def size(self) -> float:
        """How many values there are."""
        return self.high - self.low + 1 if self.whole else math.inf

    @property
    def ends(self) -> tuple[object, ...]:
        """The values by which a mistake would show."""
        return self.low, self.high

    def distribution(self) -> BaseDistribution:
        """What Optuna draws from."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def any(self, rng: random.Random) -> object:
        """Some value."""
        return rng.randint(int(self.low), int(self.high)) if self.whole else rng.uniform(self.low, self.high)

    def every(self) -> Iterator[object]:
        """All values; raises RecipeError if there is no end of them."""
        if not self.whole:
            raise RecipeError(
                f"--try {self.key}={self.written}: a range of numbers has no end of values, and --sampler grid tries "
                "each; name some with commas between them, or choose another --sampler."
            )
        yield from range(int(self.low), int(self.high) + 1)

    def drawn(self, value: object) -> Drawn:
        """A value as Optuna has it."""
        assert isinstance(value, int | float)
        return value

    def value(self, drawn: Drawn) -> object:
        """The value that Optuna drew."""
        return drawn


@dataclass(frozen=True)
class Choices:
    """Some values."""

    key: str
    written: str
    values: tuple[object, ...]

    @property
    def size(self) -> float:
        """How many values there are."""
        return len(self.values)

    @property
    def ends(self) -> tuple[object, ...]:
        """The values by which a mistake would show."""
        return self.values

    def distribution(self) -> BaseDistribution:
        """What Optuna draws from: JSON, for it keeps no lists."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution([json.dumps(value) for value in self.values])

    def any(self, rng: random.Random) -> object:
        """Some value."""
        return rng.choice(self.values)

    def every(self) -> Iterator[object]:
        """All values."""
        yield from self.values

    def drawn(self, value: object) -> Drawn:
        """A value as Optuna has it."""
        return json.dumps(value)

    def value(self, drawn: Drawn) -> object:
        """The value that Optuna drew."""
        found: object = json.loads(str(drawn))
        return found


Axis = Range | Choices
Tried = Mapping[str, str | Sequence[object]]


@dataclass(frozen=True)
class Space:
    """What may be tried of a recipe."""

    recipe: Recipe
    axes: tuple[Axis, ...]

    @property
    def written(self) -> dict[str, str]:
        """The values of each key as they were written."""
        return {axis.key: axis.written for axis in self.axes}

    @property
    def size(self) -> float:
        """How many settings there are, those that the recipe refuses included."""
        return math.prod(axis.size for axis in self.axes)

    def allows(self, settings: Settings) -> bool:
        """Whether the recipe takes these values together."""
        try:
            with_settings(self.recipe, settings, name="the recipe")
        except RecipeError:
            return False
        return True

    def every(self) -> list[Settings]:
        """All settings that the recipe takes; the last key's values change first."""
        lists = [list(axis.every()) for axis in self.axes]
        found = (dict(zip(self.written, values, strict=True)) for values in product(*lists))
        return [settings for settings in found if self.allows(settings)]

    def check(self) -> None:
        """Raises RecipeError for a value that the recipe takes neither by itself nor with others of the space."""
        rng = random.Random(0)
        draws = [{axis.key: axis.any(rng) for axis in self.axes} for _ in range(_DRAWS if len(self.axes) > 1 else 0)]
        for axis in self.axes:
            for value in axis.ends:
                try:
                    with_settings(self.recipe, {axis.key: value}, name=f"--try {axis.key}={axis.written}")
                except RecipeError:
                    if not any(self.allows({**draw, axis.key: value}) for draw in draws):
                        raise


def space_of(recipe: Recipe, tried: Tried) -> Space:
    """What may be tried of a recipe: of each key a range or choices as text, or a list of values.

    Raises RecipeError for what cannot be tried.
    """
    if not tried:
        raise RecipeError("nothing is to be tried; name a key, such as --try train.learning_rate=1e-4..3e-3.")
    for key in tried:
        if key.startswith(_JUDGES):
            raise RecipeError(f"--try {key}: trials are compared by this, so it must be the same for all; use --set.")
        if key.startswith("text.") and recipe.train.validate_with == "loss":
            raise RecipeError(
                f"--try {key}: this changes what a token is, and the loss is counted per token, so that losses do not "
                "compare; use --metric bleu."
            )
    space = Space(recipe, tuple(axis_of(key, values) for key, values in tried.items()))
    space.check()
    return space


def axis_of(key: str, values: str | Sequence[object]) -> Axis:
    """The values of a key: "1e-4..3e-3" is a range, "0.1,0.2,0.3" or a list are choices."""
    if not isinstance(values, str):
        return _choices(key, ",".join(json.dumps(value) for value in values), list(values))
    written = values.strip()
    if not (ends := _RANGE.fullmatch(written)):
        return _choices(key, written, _listed(key, written))
    low, high = (int(end) if _WHOLE.fullmatch(end) else float(end) for end in ends.groups())
    if not low < high or math.isinf(high - low):
        raise RecipeError(
            f"--try {key}={written}: a range goes from a lower to a higher number, such as 1e-4..3e-3 or 2..6; turn "
            "its ends round, or fix one value with --set."
        )
    if isinstance(low, float) or isinstance(high, float):
        low, high = float(low), float(high)
    return Range(key, written, low, high)


def pairs_of(arguments: Sequence[str]) -> dict[str, str]:
    """The keys and values of arguments such as "model.dropout=0.1,0.2"; RecipeError for others."""
    found: dict[str, str] = {}
    for argument in arguments:
        key, equals, values = argument.partition("=")
        key = key.strip()
        if not equals or not all(key.split(".")):
            raise RecipeError(f"--try {argument}: must be table.key=values, like --try model.dropout=0.1,0.2,0.3.")
        if key in found:
            raise RecipeError(f"--try {key} is given twice; name all of its values at once.")
        found[key] = values
    return found


def with_settings(recipe: Recipe, settings: Settings, *, name: str) -> Recipe:
    """The recipe with these values by their keys, such as "data.filters.max_length"; checked like any other."""
    tables: dict[str, object] = recipe.model_dump(mode="json", exclude_none=True)
    for key, value in settings.items():
        put(tables, key.split("."), value, name=name)
    return recipes.validate(tables, name=name)


def _choices(key: str, written: str, values: Sequence[object]) -> Choices:
    told = [json.dumps(value) for value in values]
    if twice := [each for each in told if told.count(each) > 1]:
        raise RecipeError(f"--try {key}={written}: {twice[0]} is named twice; name each value once.")
    if len(values) < 2:
        raise RecipeError(
            f"--try {key}={written}: there is nothing to choose from; write a range such as 1e-4..3e-3 or 2..6, "
            "several values with commas between them, or fix one with --set."
        )
    return Choices(key, written, tuple(values))


def _listed(key: str, written: str) -> list[object]:
    """Values between commas, each as `--set` reads it: TOML, or else text."""
    try:
        whole: list[object] = tomllib.loads(f"values = [{written}]")["values"]
        return json.loads(json.dumps(whole, default=str))  # type: ignore[no-any-return]  # a list of plain values
    except ValueError:
        return [_read(key, part.strip(), written) for part in written.split(",")]


def _read(key: str, part: str, written: str) -> object:
    if not part:
        raise RecipeError(f"--try {key}={written}: a value is missing; write values with commas between them.")
    try:
        found: object = tomllib.loads(f"value = {part}")["value"]
        return found if isinstance(found, str | int | float | bool) else part
    except ValueError:
        return part
