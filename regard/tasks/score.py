"""How likely a model finds given translations: the log-probability of each target line after its source line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.metrics import Score, perplexity
from regard.text import END

from .forced import forced
from .lines import check_counts, encode_targets
from .translate import Translator


@dataclass(frozen=True)
class Scored:
    """One target line: its log-probability (natural logarithm) in all and by token."""

    log_probability: float
    tokens: tuple[str, ...]
    """The target's tokens and the end."""
    log_probabilities: tuple[float, ...]
    """Of each token, given the source and the tokens before it."""


def score_lines(
    translator: Translator,
    source: Sequence[str],
    target: Sequence[str],
    *,
    from_: str | None = None,
    to: str | None = None,
    batch_size: int = 32,
    precision: str = "auto",
) -> list[Scored]:
    """The score of each target line; with an empty source the target is still read, after nothing but the end.

    In exact precision a line's score is the same to about 1e-12, whatever else is scored with it; see
    `regard.tasks.engine`, of which scoring takes what runs in PyTorch.
    Raises TextError for unequal counts and for lines that cannot be read.
    """
    check_counts(source, target, "target")
    translator.check_steps("a target's probability is the product of its tokens', each after those before it")
    read = translator.encode(source, from_=from_, to=to)
    written = encode_targets(translator.target, target, translator.limit)
    each = forced(translator.engine.reference(precision), read, written, batch_size=batch_size)
    return [
        Scored(sum(found.log_probabilities), tuple(translator.target.tokens([*ids, END])), found.log_probabilities)
        for ids, found in zip(written, each, strict=True)
    ]


def perplexity_of(scored: Sequence[Scored]) -> Score:
    """Perplexity per token, ends counted, of lines that were scored."""
    return perplexity(sum(s.log_probability for s in scored), sum(len(s.tokens) for s in scored), "token")
