"""What “Attention Is All You Need” prints of time, operations and results, beside what is counted and measured here."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from typing import TypedDict, cast

from regard.models.transformer import TransformerConfig
from regard.pictures import bars
from regard.tasks.costs import count_costs

from .page import Lecture, Value

_VOCABULARY = 37_000
_LENGTH = 25  # tokens of a sentence: of the products alone that attention makes is this an assumption
_CONFIGS = {"base": TransformerConfig(), "big": TransformerConfig(width=1024, feedforward=4096, heads=16)}


class Run(TypedDict):
    """How long one of the two models was trained, as printed."""

    hours: float
    updates: int
    seconds: float  # an update
    flops: float


class Time(TypedDict):
    """What the paper trained on (section 5.2)."""

    gpus: int
    teraflops: float
    tokens: int
    base: Run
    big: Run


class Texts(TypedDict):
    """A row of Table 2."""

    name: str
    values: list[str]


class Figures(TypedDict, total=False):
    """A row of Table 3 or 4; `here` names what was measured."""

    name: str
    values: list[float]
    here: str


class Printed(TypedDict):
    """The paper's own figures."""

    time: Time
    bleu: list[Texts]
    variation: list[Figures]
    parsing: list[Figures]


class Small(TypedDict):
    """Table 3 in small: perplexity and BLEU of the base, and of each change how they differ from it."""

    file: str
    command: str
    rows: dict[str, dict[str, float]]


class Score(TypedDict):
    """A figure measured here, and the file of the repository that it is of."""

    value: float
    file: str


class Measured(TypedDict):
    """What was measured here."""

    table3: Small
    scores: dict[str, Score]


@cache
def printed() -> Printed:
    """The paper's own figures."""
    return cast(Printed, tomllib.loads((files(__package__) / "paper.toml").read_text("utf-8")))


@cache
def measured() -> Measured:
    """What was measured here, each with the file in the repository that it is of (`python tools/lectures.py`)."""
    return cast(Measured, json.loads((files(__package__) / "measured.json").read_text("utf-8")))


@cache
def update_flops(size: str) -> float:
    """Model FLOPs of an update of the "base" or "big" model: batches of 25,000 tokens a side in sentences of 25."""
    costs = count_costs(_CONFIGS[size], _VOCABULARY, _VOCABULARY, bfloat16=False)
    pairs = printed()["time"]["tokens"] / _LENGTH
    return costs.flops.fixed + pairs * float(costs.flops.of(_LENGTH, _LENGTH))


def arithmetic() -> Lecture:
    """Table 2's training cost is hours · GPUs · 9.5 TFLOPS: 12 h and 3.5 days on eight P100 are 3.3·10^18 and
    2.3·10^19. What the model itself needs, counted as `regard plan` counts it, is less: the rest is what the GPUs
    could have done and did not.
    """
    time = printed()["time"]
    rate = time["gpus"] * time["teraflops"] * 1e12
    numbers: dict[str, Value] = {}
    shown: dict[str, list[float]] = {"hours · GPUs · TFLOPS": [], "counted on the model": []}
    for size, of in (("base", time["base"]), ("big", time["big"])):
        each = update_flops(size)
        numbers |= {
            f"{size}: hours of the updates at the paper's seconds each": of["updates"] * of["seconds"] / 3600,
            f"{size}: hours as printed": float(of["hours"]),
            f"{size}: hours · 8 GPUs · 9.5 TFLOPS": of["hours"] * 3600 * rate,
            f"{size}: FLOPs as printed": of["flops"],
            f"{size}: FLOPs of an update, counted": each,
            f"{size}: FLOPs of all updates, counted": each * of["updates"],
            f"{size}: share of the printed FLOPs that the model needs": each * of["updates"] / of["flops"],
            f"{size}: TFLOPS of a GPU that the counted ones make": each / of["seconds"] / time["gpus"] / 1e12,
        }
        shown["hours · GPUs · TFLOPS"].append(of["hours"] * 3600 * rate)
        shown["counted on the model"].append(each * of["updates"])
    return Lecture(numbers, (bars("FLOPs of training", list(_CONFIGS), shown),))


def tables() -> Lecture:
    """Tables 2 to 4 of the paper as printed, and beside them what was measured here: not the same models on the same
    data, but the same changes of a small model (Table 3, differences from its base), and parsers of smaller treebanks.
    """
    here = measured()
    numbers: dict[str, Value] = {}
    for system in printed()["bleu"]:
        numbers[f"Table 2, {system['name']}: BLEU en-de, en-fr; FLOPs en-de, en-fr"] = "; ".join(
            (", ".join(system["values"][:2]), ", ".join(system["values"][2:]), "not run")
        )
    base = printed()["variation"][0]["values"]
    change: dict[str, list[float]] = {"printed": [], "here, in small": []}
    compared: list[str] = []
    for row in printed()["variation"]:
        said = f"{row['values'][0]:.2f}, {row['values'][1]:.1f}"
        name, small = row["name"], here["table3"]["rows"].get(row.get("here", ""))
        numbers[f"Table 3, {name}: perplexity, BLEU"] = f"{said}; {_small(name, small)}"
        if small is not None and name != "base":
            compared.append(name)
            change["printed"].append(row["values"][0] - base[0])
            change["here, in small"].append(small["perplexity"])
    for parser in printed()["parsing"]:
        numbers[f"Table 4, {parser['name']}: F1"] = f"{parser['values'][0]:.1f}; not run"
    numbers |= {f"here, {name}": f"{score['value']:.2f} ({score['file']})" for name, score in here["scores"].items()}
    numbers["Table 3 in small is of"] = f"{here['table3']['file']}: {here['table3']['command']}"
    return Lecture(numbers, (bars("Perplexity against the base", compared, change),))


def _small(name: str, small: dict[str, float] | None) -> str:
    if small is None:
        return "not run"
    form = "{:.2f}, {:.2f}" if name == "base" else "{:+.2f}, {:+.2f}"
    return "in small " + form.format(small["perplexity"], small["bleu"])
