"""A bundle beside another library that reads its export: what it writes for the golden sentences, and how likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

import torch

from regard.bundle import Bundle
from regard.errors import ModelError
from regard.models.interface import EncoderDecoder, layout_of
from regard.search.config import SearchConfig
from regard.tasks.decode import decode
from regard.text import BEGIN, END

_TOLERANCE = 1e-4
"""Nats a token by which the same weights in float32 may differ."""


class Other(Protocol):
    """Another library with the exported model."""

    name: str
    stop: Literal["bound", "beam"]
    """When its beams stop, as `SearchConfig.stop` names it."""

    def otherwise(self, bundle: Bundle) -> list[str]:
        """Kinds of lines that it always reads or writes otherwise than the bundle does."""

    def reads(self, line: str, ids: Sequence[int]) -> bool:
        """Whether its tokeniser reads the line as these tokens (without end)."""

    def translate(self, source: Sequence[int], search: SearchConfig, limit: int) -> list[int]:
        """The best output's ids, without begin and end, of at most `limit` tokens, the end counted."""

    def log_probability(self, source: Sequence[int], target: Sequence[int]) -> float:
        """Natural logarithm, summed over the target's tokens and its end."""


@dataclass(frozen=True)
class Comparison:
    """What differed."""

    library: str
    sentences: int
    differing: tuple[tuple[str, str, str], ...]
    """Source, our output and theirs, where the outputs are not the same."""
    largest: float
    """The largest difference of a token's mean log-probability, in nats."""
    otherwise: tuple[str, ...] = ()
    """Kinds of lines that it always reads or writes otherwise."""

    def __str__(self) -> str:
        same = self.sentences - len(self.differing)
        lines = [
            f"{self.library}: {same} of {self.sentences} golden sentences come out the same; log-probabilities differ "
            f"by at most {self.largest:.1e} nats a token."
        ]
        for source, ours, theirs in self.differing:
            lines.append(f"  {source!r}\n    here   {ours!r}\n    there  {theirs!r}")
        if self.otherwise:
            lines.append(f"Not the same there: {'; '.join(self.otherwise)}.")
        return "\n".join(lines)


def nearest(search: SearchConfig, stop: Literal["bound", "beam"]) -> SearchConfig:
    """The search that others can be asked for: a plain beam whose length penalty is a power of the length."""
    alpha = 0.0 if search.penalty == "none" else search.alpha
    return SearchConfig(beam=search.beam, penalty="power", alpha=alpha, stop=stop, extra_length=search.extra_length)


def compare(bundle: Bundle, other: Other, *, exact: bool = True, model: EncoderDecoder | None = None) -> Comparison:
    """Translate the golden sentences with both, searching alike, and score our outputs with both.

    With `exact` the weights are the same numbers: ModelError if they are read or computed with otherwise. `model` is
    the bundle's, if it is at hand.
    """
    if not bundle.golden:
        raise ModelError(f"{bundle.path}: has no golden sentences to verify with; --no-verify exports without.")
    # A bundle does not say of what kind its model is; what is exchanged translates.
    network = model if model is not None else cast(EncoderDecoder, bundle.model())
    search = nearest(bundle.recipe.search, other.stop)
    sources = [golden.source_ids for golden in bundle.golden]
    ours = [found[0].ids for found in decode(network, sources, search)]
    differing, largest = [], 0.0
    for golden, written in zip(bundle.golden, ours, strict=True):
        if not other.reads(golden.source, golden.source_ids):
            raise ModelError(
                f"{other.name} reads golden sentence {golden.source!r} otherwise than as "
                f"{bundle.source.tokens(golden.source_ids)}: it would be given other tokens, so nothing is exchanged."
            )
        theirs = other.translate(golden.source_ids, search, len(golden.source_ids) + search.extra_length)
        if theirs != written:
            differing.append((golden.source, bundle.target.decode(written), bundle.target.decode(theirs)))
        there = other.log_probability(golden.source_ids, written)
        here = log_probability(network, golden.source_ids, written)
        largest = max(largest, abs(there - here) / (len(written) + 1))
    if exact and not largest <= _TOLERANCE:
        raise ModelError(
            f"{other.name} computes other log-probabilities: {largest:.1e} nats a token apart, and {_TOLERANCE:.0e} is "
            "what float32 may differ by; what was exchanged would be wrong, please report it."
        )
    return Comparison(other.name, len(sources), tuple(differing), largest, tuple(other.otherwise(bundle)))


@torch.inference_mode()
def log_probability(model: EncoderDecoder, source: Sequence[int], target: Sequence[int]) -> float:
    """Natural logarithm, summed over the target's tokens and its end."""
    read = torch.tensor([[*source, END]])
    layout = layout_of("padded", torch.tensor([read.shape[1]]), read.shape[1])
    state = model.start(model.encode(read, layout), layout)
    hidden, _ = model.decode(torch.tensor([[BEGIN, *target]]), state)
    rows = model.project(hidden)[0].log_softmax(-1)  # (T + 1, V)
    return float(rows.gather(1, torch.tensor([*target, END])[:, None]).double().sum())
