"""How likely a model finds given translations: the log-probability of each target line after its source line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import TextError
from regard.metrics import Score, perplexity
from regard.text import END

from .forced import forced
from .translate import Translator

__all__ = ["Scored", "perplexity_of", "score_lines"]


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
    batch_independent: bool = True,
    bfloat16: bool = False,
) -> list[Scored]:
    """The score of each target line; with an empty source the target is still read, after nothing but the end.

    Batch-independent: a line's score is the same to about 1e-12, whatever else is scored with it (see `decode`).
    Raises TextError for unequal counts and for lines that cannot be read.
    """
    if len(source) != len(target):
        raise TextError(
            f"{len(source):,} source lines but {len(target):,} target lines; line n of one must go with line n of the "
            "other."
        )
    translator.check_steps("a target's probability is the product of its tokens', each after those before it")
    read = translator.encode(source, from_=from_, to=to)
    written = [translator.target.encode(_checked(line, number)) for number, line in enumerate(target, start=1)]
    _check_lengths(written, translator)
    model = translator.model_for(batch_independent, bfloat16)
    each = forced(model, read, written, bfloat16=bfloat16, batch_size=batch_size)
    return [
        Scored(sum(found.log_probabilities), tuple(translator.target.tokens([*ids, END])), found.log_probabilities)
        for ids, found in zip(written, each, strict=True)
    ]


def perplexity_of(scored: Sequence[Scored]) -> Score:
    """Perplexity per token, ends counted, of lines that were scored."""
    return perplexity(sum(s.log_probability for s in scored), sum(len(s.tokens) for s in scored), "token")


def _checked(line: str, number: int) -> str:
    if "\0" in line or "\n" in line:
        what = "a NUL (U+0000)" if "\0" in line else "a line break"
        raise TextError(f"target line {number} contains {what}; a line is one segment of text: remove it.")
    return line


def _check_lengths(written: Sequence[Sequence[int]], translator: Translator) -> None:
    for number, ids in enumerate(written, start=1):
        if len(ids) > translator.limit:
            raise TextError(
                f"target line {number} has {len(ids):,} tokens; this bundle takes at most {translator.limit:,} in one "
                "line: split the pair into sentences."
            )
