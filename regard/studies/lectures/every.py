"""Every lecture by its name."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from regard.errors import DataError

from . import attention, blocks, context, generation, measures, paper, positions, recurrent, texts
from .page import Lecture
from .trained import TRAINED

LECTURES: dict[str, Callable[[], Lecture]] = {
    "bottleneck": context.bottleneck,
    "memorial-text": texts.memorial_text,
    "recurrent-cells": recurrent.recurrent_cells,
    "vanishing-gradients": recurrent.vanishing_gradients,
    "context-vector": context.context_vector,
    "exponential": context.exponential,
    "scores": context.scores,
    "hard-and-soft": context.hard_and_soft,
    "local-window": context.local_window,
    "joining": context.joining,
    "serial-parallel": recurrent.serial_parallel,
    "pronoun-table": texts.pronoun_table,
    "queries-keys-values": attention.queries_keys_values,
    "by-hand": attention.by_hand,
    "scaling": attention.scaling,
    "heads": attention.heads,
    "masks": attention.masks,
    "order": attention.order,
    "complexity": attention.complexity,
    "sinusoids": positions.sinusoids_,
    "sinusoid-laws": positions.sinusoid_laws,
    "learned-positions": positions.learned_positions,
    "buckets": positions.buckets,
    "rotation": positions.rotation,
    "rotation-decay": positions.rotation_decay,
    "feed-forward": blocks.feed_forward,
    "add-and-norm": blocks.add_and_norm,
    "layer-or-batch": blocks.layer_or_batch,
    "dropout": blocks.dropout,
    "architecture": blocks.architecture,
    "smoothing": blocks.smoothing,
    "warm-up": blocks.warm_up,
    "prediction": blocks.prediction,
    "chain-rule": generation.chain_rule,
    "greedy": generation.greedy_or_not,
    "sampling": generation.sampling,
    "exposure-bias": recurrent.exposure_bias,
    "exhaustive": generation.exhaustive,
    "search-cost": generation.search_cost,
    "beams": generation.beams,
    "length": generation.length_normalisation,
    "bleu": measures.bleu_,
    "rouge": measures.rouge_,
    "perplexity": measures.perplexity_,
    "paper-arithmetic": paper.arithmetic,
    "paper-tables": paper.tables,
}
"""Every lecture by name, in the order in which they are given."""


WORDS = Path(__file__).parent / "words.toml"


@cache
def words() -> dict[str, dict[str, str]]:
    """The tables of words.toml: "zh", "title" and "widget", each by the lectures' names."""
    found: dict[str, dict[str, str]] = tomllib.loads(WORDS.read_text("utf-8"))
    return found


def about(name: str, language: str = "en") -> str:
    """What a lecture shows, in a sentence or two: in English, or in Chinese (zh)."""
    if language == "zh":
        return words()["zh"][name]
    return " ".join((inspect.getdoc({**LECTURES, **TRAINED}[name]) or "").split())


def lecture(name: str) -> Lecture:
    """The named lecture, computed: the same numbers each time. DataError for a name that there is not."""
    if name in TRAINED:
        raise DataError(f"lecture {name!r} shows a trained model: give one, `regard lecture {name} --bundle DIR`.")
    if name not in LECTURES:
        raise DataError(f"there is no lecture {name!r}; there are {', '.join(LECTURES)}.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LECTURES[name]()
