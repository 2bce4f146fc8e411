"""What can be asked of a translator: one frozen object from the command line to the search.

The fields' descriptions are the help of the command line, whose flags `regard.apps.options` makes of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from regard.errors import ModelError
from regard.search.table import MOST_HYPOTHESES, SearchConfig

_GONE = {
    "batch_independent": 'set precision to "exact" for True, to "float32" for False',
    "bfloat16": 'set precision to "bfloat16"',
    "no_repeat": "it is called no_repeat_ngram_size now",
}
"""Options of older versions, and what to do instead."""


def _rule(default: Any, description: str, **extra: str) -> Any:
    extra["panel"] = "What translations must keep"
    return Field(default, description=description, json_schema_extra={**extra})


class Constraints(BaseModel):
    """What the translations of a line, or of all lines, must keep."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    include: tuple[str, ...] = _rule((), "a phrase that must occur; may be repeated")
    forbid: tuple[str, ...] = _rule((), "a phrase that must not occur; may be repeated")
    prefix: str = _rule("", "what translations begin with")
    glossary: tuple[tuple[str, str], ...] = _rule(
        (), "a file of lines with a source term, a tab and the target term that it requires"
    )
    placeholders: bool = _rule(
        False, "what looks like {name}, <x1>, %s or a URL in a line must occur as it stands", flag="--keep-placeholders"
    )


NONE = Constraints()
"""Translations need keep nothing."""


class Options(BaseModel):
    """What is asked of a translator beside the lines; what is left out is as the bundle's recipe says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    search: Mapping[str, Any] = Field({}, description="keys of [search] and the values in their place")
    n_best: int = Field(1, description="translations of each line, best first")
    constraints: Constraints | tuple[Constraints, ...] = Field(
        NONE, description="what translations must keep: the same for all lines, or one for each line"
    )
    from_: str | None = Field(
        None, description="source language, to be checked", json_schema_extra={"flag": "--from", "metavar": "CODE"}
    )
    to: str | None = Field(
        None,
        description="target language: chooses one where the bundle has several, is checked otherwise",
        json_schema_extra={"flag": "--to", "metavar": "CODE"},
    )
    confidence: bool = Field(False, description="how sure each token and word is; prints a JSON object a line")
    alignment: bool = Field(False, description="which word comes from which; prints a JSON object a line")
    attention: bool = Field(False, description="weights between tokens; prints a JSON object a line")
    replace_unknown: bool = Field(
        False, description="put the source word that is looked at most in the place of each unknown word"
    )

    @field_validator("n_best")
    @classmethod
    def _some(cls, number: int) -> int:
        if not 1 <= number <= MOST_HYPOTHESES:
            raise ValueError(f"n_best is {number}; it must be from 1 to {MOST_HYPOTHESES}.")
        return number

    @classmethod
    def of(cls, options: Self | None = None, **given: Any) -> Self:
        """These options with what is given in their place: fields, or keys of [search]. What is None is left as it is.

        Raises ModelError for a name or a value that there is not.
        """
        given = {key: value for key, value in given.items() if value is not None}
        search = {**(options.search if options else {}), **given.pop("search", {})}
        fields: dict[str, Any] = {} if options is None else {key: getattr(options, key) for key in cls.model_fields}
        for key, value in given.items():
            if key in cls.model_fields:
                fields[key] = value
            else:
                _check_name(key, {**cls.model_fields, **SearchConfig.model_fields}, "translate has no option")
                search[key] = value
        try:
            return cls.model_validate({**fields, "search": search})
        except ValidationError as error:
            raise ModelError(explained(error)) from None

    def setting(self, key: str) -> Any:
        """What a key of [search] is set to here, else its default; ModelError for a value that there is not."""
        given = {key: self.search[key]} if key in self.search else {}
        return getattr(search_with(SearchConfig(), given), key)

    @property
    def detailed(self) -> bool:
        """Whether anything is asked for beside the text."""
        return self.confidence or self.alignment or self.attention


def search_with(search: SearchConfig, changes: Mapping[str, Any]) -> SearchConfig:
    """Settings of a search with some of them replaced; ModelError for a key or a value that there is not."""
    given = {key: value for key, value in changes.items() if value is not None}
    for key in given:
        _check_name(key, SearchConfig.model_fields, "search has no key")
    try:
        return SearchConfig.model_validate({**search.model_dump(), **given})
    except ValidationError as error:
        raise ModelError(explained(error)) from None


def _check_name(key: str, known: Collection[str], what: str) -> None:
    if key in known:
        return
    if key in _GONE:
        raise ModelError(f"{key}: there is no such option any more; {_GONE[key]}.")
    near = difflib.get_close_matches(key, known, n=1, cutoff=0)[0]
    raise ModelError(f"{what} {key!r}; did you mean {near!r}?")


def explained(error: ValidationError) -> str:
    """What is wrong with the first value that is, in a sentence."""
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    if not first["loc"] or first["type"] == "value_error":
        return f"{message}."
    return f"{first['loc'][0]} = {first['input']!r}: {message.replace('Input should', 'must')}."
