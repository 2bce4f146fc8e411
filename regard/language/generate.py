"""Text gone on with by a language model: greedy, sampled or by a beam, as a whole or token by token.

What no longer fits in the model's context slides out of it: when it is full, the last half is read again, and text
goes on from there. Sizes: N rows, t tokens in the context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.models.blocks import device_of
from regard.models.interface import LanguageModel
from regard.nn.state import State
from regard.search.hypotheses import Hypothesis, Problem
from regard.search.table import SearchConfig, penalty_of, search_of, search_with
from regard.text import BEGIN, END, PAD

from .open import Pipeline, open_bundle


@dataclass(frozen=True)
class Continuation:
    """How a text goes on."""

    text: str  #: Without the prompt.
    log_probability: float  #: Natural logarithm, summed over its tokens and the end.
    ids: tuple[int, ...]
    ended: bool  #: False where the length limit cut it off.


def generate(
    bundle: str | Path | Pipeline,
    prompt: str = "",
    *,
    search: Mapping[str, Any] | None = None,
    precision: str = "auto",
    device: str = "cpu",
) -> list[Continuation]:
    """How a text may go on: the samples that `search` asks for, or the best hypotheses of a beam, best first.

    `search` replaces keys of the recipe's [search]: samples, temperature, top_k, top_p, seed, beam, max_length. A model
    of lines ends a line; one of a stream (data.context) goes on over line ends, but a beam stops at one. Raises
    ModelError for a bundle that is no language model.
    """
    opened = open_bundle(bundle, ["language-model"], device=device)
    settings = search_with(opened.recipe.search, search or {})
    found = continued(
        cast(LanguageModel, opened.model_for(precision)), _ids(opened, prompt), settings, **_frame(opened)
    )
    return [Continuation(_text(opened, prompt, h.ids), h.log_probability, tuple(h.ids), h.ended) for h in found]


@torch.inference_mode()
def stream(
    bundle: str | Path | Pipeline,
    prompt: str = "",
    *,
    search: Mapping[str, Any] | None = None,
    precision: str = "auto",
    device: str = "cpu",
) -> Iterator[str]:
    """The first of what `generate` gives, in parts, each as soon as it is certain. A beam cannot be streamed."""
    opened = open_bundle(bundle, ["language-model"], device=device)
    settings = search_with(opened.recipe.search, search or {})
    if not settings.samples and settings.beam > 1:
        raise ModelError(f"a beam ({settings.beam}) chooses at the end, so nothing can be streamed; set beam to 1.")
    model = cast(LanguageModel, opened.model_for(precision))
    problem = _problem(model, _ids(opened, prompt), settings, **_frame(opened))
    chosen, said, whole = search_of(settings), "", ""
    assert chosen.stream is not None
    for ids in chosen.stream(problem, settings):
        # A character that is spelt in bytes shows as U+FFFD until it is whole.
        whole = _text(opened, prompt, ids)
        text = whole.rstrip("\ufffd")
        yield text[len(said) :]
        said = text
    yield whole[len(said) :]


@torch.inference_mode()
def continued(
    model: LanguageModel, ids: Sequence[int], search: SearchConfig, *, first: int, end: int, capacity: int
) -> list[Hypothesis]:
    """Hypotheses of what follows `ids`: draws, the likeliest token each time, or a beam."""
    one = search.draws or search.beam == 1
    problem = _problem(model, ids, search, first=first, end=end if one else END, capacity=capacity)
    return search_of(search).run(problem, search, search.beam)[0]


@dataclass(frozen=True)
class _Sliding:
    """A state with the tokens that are in it, (N, t), so that the last of them can be read again."""

    inner: State
    seen: Tensor

    def select(self, rows: Tensor) -> _Sliding:
        return _Sliding(self.inner.select(rows), self.seen.index_select(0, rows))


def _problem(
    model: LanguageModel, ids: Sequence[int], search: SearchConfig, *, first: int, end: int, capacity: int
) -> Problem[_Sliding]:
    """What follows `first` and `ids`, of which only what fits in the context is read."""
    read = [first, *ids][-capacity:]  # no limit is 0
    kept = torch.tensor([read], device=device_of(model))
    inner = model.start() if len(read) == 1 else model.decode(kept[:, :-1], model.start())[1]

    def step(tokens: Tensor, state: _Sliding) -> tuple[Tensor, _Sliding]:
        inner, new = state.inner, tokens[:, None]
        seen = torch.cat((state.seen, new), 1)
        if capacity and seen.shape[1] > capacity:
            inner, new = model.start(), seen[:, -max(1, capacity // 2) :]
            seen = new
        hidden, inner = model.decode(new, inner)
        found = model.project(hidden[:, -1]).log_softmax(-1)
        found[:, [PAD, BEGIN]] = float("-inf")  # they are no text
        return found, _Sliding(inner, seen)

    limit, penalty = search.max_length or search.extra_length, penalty_of(search.penalty, search.alpha)
    return Problem(step, _Sliding(inner, kept[:, :-1]), kept[:, -1], torch.tensor([limit]), end, penalty)


def _frame(opened: Pipeline) -> dict[str, int]:
    """What a text begins after and ends with: a line's begin and end, or in a stream the end before, and nothing."""
    whole = opened.recipe.data.context > 0
    return {"first": END if whole else BEGIN, "end": -1 if whole else END, "capacity": opened.capacity}


def _ids(opened: Pipeline, prompt: str) -> list[int]:
    if opened.recipe.text.kind == "words":
        prompt = prompt.rstrip(" ")  # else a word of no letters would follow
    if not opened.recipe.data.context:
        return opened.encode(prompt)
    return [i for line in prompt.split("\n") for i in (*opened.encode(line), END)][:-1]


def _text(opened: Pipeline, prompt: str, ids: Sequence[int]) -> str:
    """The text of ids, with the space that parts it from the prompt where there is one; an end is a line break."""
    before = opened.encode(prompt.rpartition("\n")[2].rstrip(" "))
    lines: list[list[int]] = [[*before]]
    for i in ids:
        if i == END:
            lines.append([])
        else:
            lines[-1].append(i)
    text, said = "\n".join(map(opened.target.decode, lines)), opened.target.decode(before)
    new = text[len(said) :]
    return new[1:] if prompt.endswith(" ") and new.startswith(" ") else new
