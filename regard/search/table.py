"""What can be asked of a search and of a translator; the searches by their names; and how hypotheses are ranked.

A search of your own is one entry: `SEARCHES["mine"] = Search(run)`, from then on `method = "mine"` in a recipe's
[search], `--search mine` on the command line, and `translate(lines, method="mine")`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from regard.errors import NOT_FINITE, ModelError
from regard.extensions import entry

from . import ways

if TYPE_CHECKING:
    from .hypotheses import Hypothesis

Fields = TypeVar("Fields", bound=BaseModel)
Precision = Literal["auto", "exact", "float32", "bfloat16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("auto", "exact", "float32", "bfloat16", "int8")

MOST_HYPOTHESES = 1000  # of a sentence that a search may be asked for
_LONGEST = 5_000  # tokens: what lengths may be set to; the time that a line takes grows with their square

PANELS: dict[str, tuple[str, ...]] = {
    "Beam": ("penalty", "alpha", "coverage", "stop", "groups", "diversity"),
    "Draws": ("samples", "temperature", "top_k", "top_p", "seed", "mbr"),
    "What translations must keep": ("min_length", "max_length", "extra_length", "no_repeat_ngram_size"),
}
"""Headings under which the command line's help lists settings; the others come before them."""


class SearchConfig(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """How translations are searched for; the defaults are the paper's (section 6.1).

    Upper bounds keep a setting from asking for more memory than any machine has.
    """

    method: str = Field(
        "",
        description="the search by its name: greedy, beam, diverse, sample, mask-predict, exact, or one added; "
        "empty: what the model's family needs and beam, groups and samples ask for",
        json_schema_extra={"flag": "--search"},
    )
    beam: int = Field(4, gt=0, le=MOST_HYPOTHESES, description="hypotheses kept a sentence; 1 is greedy search")
    penalty: Literal["gnmt", "power", "none"] = Field(
        "gnmt", description="length penalty: gnmt ((5+L)/6)^alpha, power L^alpha, or none"
    )
    alpha: float = Field(0.6, ge=0, le=10, description="exponent of the length penalty")
    coverage: float = Field(0.0, ge=0, le=1000, description="beta of the coverage penalty; 0: none")
    stop: Literal["bound", "first", "beam", "full"] = Field(
        "bound",
        description="a beam stops when no open one can win (bound), when one (first) or as many as beam (beam) have "
        "ended, or at full length (full)",
    )
    groups: int = Field(1, gt=0, le=MOST_HYPOTHESES, description="groups of a diverse beam; 1: a plain beam")
    diversity: float = Field(0.5, ge=0, le=1000, description="what a token loses for each earlier group that took it")
    samples: int = Field(
        0, ge=0, le=10 * MOST_HYPOTHESES, description="translations drawn of each line instead of a beam; 0: the beam"
    )
    temperature: float = Field(
        1.0,
        gt=0,
        le=1000,
        description="log-probabilities are divided by it before a draw; below 1 likely tokens are drawn more often",
    )
    top_k: int = Field(0, ge=0, lt=2**31, description="tokens that may be drawn, the likeliest; 0: all")
    top_p: float = Field(1.0, gt=0, le=1, description="probability that the likeliest tokens drawn from must hold")
    seed: int = Field(1, ge=0, lt=2**63, description="of the draws")
    mbr: Literal["none", "chrf", "bleu"] = Field(
        "none",
        description="choose the sample or hypothesis that the others are most like by this metric: chrf, bleu or none",
    )
    min_length: int = Field(0, ge=0, le=_LONGEST, description="shortest output: tokens, the end counted")
    max_length: int = Field(
        0, ge=0, le=_LONGEST, description="longest output in tokens, the end counted; 0: by extra_length alone"
    )
    extra_length: int = Field(50, ge=0, le=_LONGEST, description="longest output: tokens of the source plus this many")
    no_repeat_ngram_size: int = Field(
        0, ge=0, le=_LONGEST, description="no sequence of this many tokens occurs twice in an output; 0: any may"
    )
    ensemble: Literal["probabilities", "logs"] = Field(
        "probabilities", description="what several models are averaged by: probabilities or logs"
    )
    passes: int = Field(
        10, gt=0, le=1000, description="of mask-predict over the target; beam is then how many lengths are tried"
    )
    most_steps: int = Field(20_000, gt=0, le=10**9, description="of exact search, for a line: then it gives up")
    shortlist: bool = Field(
        False, description="search each sentence over the tokens that go with its own alone: see `regard shortlist`"
    )
    batch_size: int = Field(32, gt=0, le=10_000, description="sentences decoded together")
    precision: Precision = Field(
        "auto",
        description="of products: exact (float64 products of float32 weights), float32, bfloat16 or int8 (the compiled "
        "engine where it can, else PyTorch); auto: the engine's float32, or exact where it cannot",
    )

    @model_validator(mode="after")
    def _fits(self) -> SearchConfig:
        if self.max_length and self.min_length > self.max_length:
            raise ValueError(f"min_length ({self.min_length}) must be at most max_length ({self.max_length})")
        if self.beam % self.groups:
            raise ValueError(f"groups ({self.groups}) must divide beam ({self.beam}); try beam = {2 * self.groups}")
        if self.method in ("", "sample") and not self.draws and (self.top_k or self.top_p < 1 or self.temperature != 1):
            raise ValueError("temperature, top_k and top_p say how samples are drawn; set samples to at least 1")
        for key, default in (("groups", 1), ("coverage", 0.0), ("stop", "bound")):
            if self.draws and getattr(self, key) != default:
                raise ValueError(f"{key} belongs to a beam, and samples ({self.samples}) asks for draws; drop one")
        return self

    @property
    def draws(self) -> int:
        """Samples of each line; 0: the search draws none."""
        return max(self.samples, int(self.method == "sample")) if self.method in ("", "sample") else 0


_GONE = {
    "batch_independent": 'set precision to "exact" for True, to "float32" for False',
    "bfloat16": 'set precision to "bfloat16"',
    "no_repeat": "it is called no_repeat_ngram_size now",
}
"""Options of older versions, and what to do instead."""


def search_with(search: SearchConfig, changes: Mapping[str, Any]) -> SearchConfig:
    """Settings of a search with some of them replaced; ModelError for a key or a value that there is not."""
    given = {key: value for key, value in changes.items() if value is not None}
    for key in given:
        check_name(key, SearchConfig.model_fields, "search has no key")
    return checked(SearchConfig, {**search.model_dump(), **given})


def checked(model: type[Fields], given: Mapping[str, Any]) -> Fields:
    """A model of these fields; raises ModelError for a value that there is not."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise ModelError(explained(error)) from None


def check_name(key: str, known: Collection[str], what: str) -> None:
    """Raises ModelError, which names the nearest, for the name of an option that there is not."""
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


def _rule(default: Any, description: str, **extra: str) -> Any:
    extra["panel"] = "What translations must keep"
    return Field(default, description=description, json_schema_extra={**extra})


class Constraints(BaseModel, extra="forbid", frozen=True):
    """What the translations of a line, or of all lines, must keep."""

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


class Options(BaseModel, extra="forbid", frozen=True):
    """What is asked of a translator beside the lines; what is left out is as the bundle's recipe says."""

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
                check_name(key, {**cls.model_fields, **SearchConfig.model_fields}, "translate has no option")
                search[key] = value
        return checked(cls, {**fields, "search": search})

    def setting(self, key: str) -> Any:
        """What a key of [search] is set to here, else its default; ModelError for a value that there is not."""
        given = {key: self.search[key]} if key in self.search else {}
        return getattr(search_with(SearchConfig(), given), key)

    @property
    def detailed(self) -> bool:
        """Whether anything is asked for beside the text."""
        return self.confidence or self.alignment or self.attention


# -- the searches ------------------------------------------------------------------------------------------------------

Found = list[list["Hypothesis"]]
Stream = Generator[list[int], None, "Hypothesis | None"]


@dataclass(frozen=True)
class Search:
    """A way to search."""

    run: Callable[[Any, SearchConfig, int], Found]
    """A `Problem` (of a search that is not `step_by_step`, `Blanks`), the settings and a number -> of each sentence so
    many hypotheses at most, best first; samples are all given. None for a sentence: its rules cannot be kept."""
    stream: Callable[[Any, SearchConfig], Stream] | None = None
    """Of a problem of one sentence: after each step the ids that its best hypothesis begins with for certain; at last
    that hypothesis. None: it chooses at the end."""
    settings: frozenset[str] = frozenset()  # keys of [search] that this search reads, and not every search does
    step_by_step: bool = True
    """Whether it asks a model for one token after another; else for all positions at once, as a mask-predictor can."""
    compiled: bool = False
    """Whether the compiled decoder has it inside: as a beam of width max(beam, n), greedy where that is 1."""


_BEAM = frozenset({"beam", "stop", "coverage"})
SEARCHES: dict[str, Search] = {
    "greedy": Search(ways.greedy, ways.greedy_stream, compiled=True),
    "beam": Search(ways.beam, ways.beam_stream, _BEAM, compiled=True),
    "diverse": Search(ways.diverse, settings=_BEAM | {"groups", "diversity"}),
    "sample": Search(ways.sample, ways.sample_stream, frozenset({"samples", "temperature", "top_k", "top_p", "seed"})),
    "mask-predict": Search(ways.mask_predict, settings=frozenset({"beam", "passes"}), step_by_step=False),
}

_BY_STEPS = {"min_length", "no_repeat_ngram_size", "shortlist"}
"""Keys that change the step function, which a search of all positions at once has not."""
_SILENT = {"beam", "seed", "stop", "diversity"}
"""Keys that ask for nothing by themselves, and may stay in a recipe whose search does not read them."""


def search_of(
    settings: SearchConfig, *, step_by_step: bool = True, n_best: int = 1, constrained: bool = False
) -> Search:
    """The search that the settings ask for; where they name none, the one that beam, samples and groups speak of.

    `step_by_step`: whether the model writes one token after another. `constrained`: whether there are phrases to keep.
    Raises ModelError for a name that is not there, and for settings that do not go together.
    """
    name = settings.method or _derived(settings, step_by_step, n_best, constrained)
    search = SEARCHES.get(name) or entry(SEARCHES, name, "search.method", ModelError)
    if step_by_step != search.step_by_step:
        ways = ("token by token", "all positions at once")
        mine, its = ways if search.step_by_step else ways[::-1]
        raise ModelError(f"search.method = {name!r} writes {mine}, and this model {its}; leave search.method out.")
    keys = {"most_steps"}.union(*(each.settings for each in SEARCHES.values())) - search.settings - _SILENT
    if not search.step_by_step:
        keys |= _BY_STEPS
    off = SearchConfig()
    wrong = sorted(key for key in keys if getattr(settings, key) != getattr(off, key))
    if constrained and not search.step_by_step:
        wrong.append("constraints")
    if wrong and (settings.method or not search.step_by_step):
        how = "" if search.step_by_step else "writes all positions at once and "
        raise ModelError(f"the search {name} {how}takes no {' and no '.join(wrong)}; leave that out.")
    if n_best > 1 and name == "greedy":
        raise ModelError(f"n_best ({n_best}) ranks the hypotheses of a beam, and greedy search has one; leave it out.")
    return search


def check_for(settings: SearchConfig, *, step_by_step: bool, attends: bool) -> None:
    """Raises ModelError, before a model is trained, for settings that it could not be searched with.

    `attends`: whether its decoder looks at the source with attention.
    """
    search_of(settings, step_by_step=step_by_step)
    if settings.coverage and not attends:
        raise ModelError("search.coverage counts what attention has read, and this model has none: set coverage = 0.")
    if settings.shortlist:
        raise ModelError(
            "search.shortlist asks for a list that a new bundle has not learnt yet: leave it out, and let the bundle "
            "learn one when it is trained (`regard shortlist`)."
        )


def _derived(settings: SearchConfig, step_by_step: bool, n_best: int, constrained: bool) -> str:
    if not step_by_step:
        return "mask-predict"
    if settings.samples:
        return "sample"
    if settings.groups > 1:
        return "diverse"
    ruled = constrained or settings.min_length > 0 or settings.no_repeat_ngram_size > 0
    return "greedy" if settings.beam == 1 and n_best == 1 and not (settings.coverage or ruled) else "beam"


# -- what is found -----------------------------------------------------------------------------------------------------

Penalty = Callable[[int], float]
"""Of a hypothesis of L tokens, its end counted: it is ranked by log-probability / penalty(L)."""


def gnmt(length: int, alpha: float) -> float:
    """((5 + L) / 6)^alpha (Wu et al. 2016, equation 14; Vaswani et al. 2017, section 6.1)."""
    return math.pow((5.0 + length) / 6.0, alpha)


def power(length: int, alpha: float) -> float:
    """L^alpha: the mean log-probability at alpha = 1, the lectures' 1 / L^0.75 at alpha = 0.75."""
    return math.pow(length, alpha)


PENALTIES: dict[str, Callable[[int, float], float]] = {"gnmt": gnmt, "power": power, "none": lambda length, alpha: 1.0}


def penalty_of(name: str, alpha: float) -> Penalty:
    """The named penalty with its alpha filled in."""
    penalty = PENALTIES[name]
    return lambda length: penalty(length, alpha)


def check_found(hypotheses: Sequence[Hypothesis], line: int) -> None:
    """Raises ModelError where a line has no translation: its rules forbid all, or the weights are not numbers."""
    scores = [each.log_probability for each in hypotheses]
    if any(map(math.isnan, scores)):
        raise ModelError(NOT_FINITE)
    if not scores or -math.inf in scores:
        raise ModelError(
            f"line {line}: no translation keeps all of its rules within the length limit; loosen one, or raise "
            "max_length or extra_length."
        )
