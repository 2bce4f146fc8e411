"""A bundle beside another library that reads its export: what it writes for the golden sentences, and how likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from regard.bundle import Bundle
from regard.errors import ModelError
from regard.models.interface import EncoderDecoder
from regard.search.table import SearchConfig
from regard.tasks.decode import decode
from regard.tasks.forced import forced

_TOLERANCE = 1e-4  #: Nats a token by which the same weights in float32 may differ.


class Other(Protocol):
    """Another library with the exported model; ids are the bundle's, without begin and end."""

    name: str
    stop: Literal["bound", "beam"]  #: When its beams stop, as `SearchConfig.stop` names it.

    def otherwise(self, bundle: Bundle) -> list[str]:
        """Kinds of lines that it always reads or writes otherwise than the bundle does."""

    def reads(self, line: str, ids: Sequence[int]) -> bool:
        """Whether its tokeniser reads the line as these tokens."""

    def translate(self, source: Sequence[int], search: SearchConfig, limit: int) -> list[int]:
        """The best output, of at most `limit` tokens, the end counted."""

    def log_probability(self, source: Sequence[int], target: Sequence[int]) -> float:
        """Natural logarithm, summed over the target's tokens and its end."""


@dataclass(frozen=True)
class Comparison:
    """What differed."""

    library: str
    sentences: int
    differing: tuple[tuple[str, str, str], ...]  #: Source, our output and theirs, where the outputs are not the same.
    largest: float  #: The largest difference of a token's mean log-probability, in nats.
    otherwise: tuple[str, ...] = ()  #: Kinds of lines that it always reads or writes otherwise.

    def __str__(self) -> str:
        lines = [
            f"{self.library}: {self.sentences - len(self.differing)} of {self.sentences} golden sentences come out the "
            f"same; log-probabilities differ by at most {self.largest:.1e} nats a token.",
            *(f"  {line!r}\n    here   {ours!r}\n    there  {theirs!r}" for line, ours, theirs in self.differing),
        ]
        return "\n".join([*lines, *([f"Not the same there: {'; '.join(self.otherwise)}."] if self.otherwise else [])])


def compare(bundle: Bundle, other: Other, *, exact: bool = True, model: EncoderDecoder | None = None) -> Comparison:
    """Translate the golden sentences with both, searching alike, and score our outputs with both.

    With `exact` the weights are the same numbers: ModelError if they are read or computed with otherwise. `model` is
    the bundle's, if it is at hand.
    """
    if not bundle.golden:
        raise ModelError(
            f"{bundle.path}: has no golden sentences to verify with; `regard export --no-verify` does without."
        )
    # A bundle does not say of what kind its model is; what is exchanged translates.
    network = model if model is not None else cast(EncoderDecoder, bundle.model())
    own = bundle.recipe.search
    # What others can be asked for: a plain beam whose length penalty is a power of the length.
    alpha = 0.0 if own.penalty == "none" else own.alpha
    search = SearchConfig(beam=own.beam, penalty="power", alpha=alpha, stop=other.stop, extra_length=own.extra_length)
    sources = [golden.source_ids for golden in bundle.golden]
    ours = [found[0].ids for found in decode(network, sources, search)]
    differing, largest = [], 0.0
    for golden, written, here in zip(bundle.golden, ours, forced(network, sources, ours), strict=True):
        read = golden.source_ids
        if not other.reads(golden.source, read):
            raise ModelError(
                f"{other.name} reads golden sentence {golden.source!r} otherwise than as {bundle.source.tokens(read)}: "
                "it would be given other tokens, so nothing is exchanged."
            )
        theirs = other.translate(read, search, len(read) + search.extra_length)
        if theirs != written:
            differing.append((golden.source, bundle.target.decode(written), bundle.target.decode(theirs)))
        apart = other.log_probability(read, written) - sum(here.log_probabilities)
        largest = max(largest, abs(apart) / (len(written) + 1))
    if exact and not largest <= _TOLERANCE:
        raise ModelError(
            f"{other.name} computes other log-probabilities: {largest:.1e} nats a token apart, and {_TOLERANCE:.0e} is "
            "what float32 may differ by; what was exchanged would be wrong, please report it."
        )
    return Comparison(other.name, len(sources), tuple(differing), largest, tuple(other.otherwise(bundle)))
