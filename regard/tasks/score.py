"""How likely a model finds given translations: the log-probability of each target line after its source line.

Sizes: B lines, S source pieces, T target pieces, ends counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from regard.errors import TextError
from regard.metrics import Score, perplexity
from regard.models.interface import device_of, layout_of
from regard.text import BEGIN, END, PAD
from regard.train import mixed, token_log_probabilities

from .translate import Translator

__all__ = ["Scored", "perplexity_of", "score_lines"]

_ROWS = 8
_CHUNK = 1024


@dataclass(frozen=True)
class Scored:
    """One target line: its log-probability (natural logarithm) in all and by piece."""

    log_probability: float
    pieces: tuple[str, ...]
    """The target's pieces and the end."""
    log_probabilities: tuple[float, ...]
    """Of each piece, given the source and the pieces before it."""


@torch.inference_mode()
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

    Batch-independent: a line's score is the same, bit for bit, whatever else is scored with it.
    Raises TextError for unequal counts and for lines that cannot be read.
    """
    if len(source) != len(target):
        raise TextError(
            f"{len(source):,} source lines but {len(target):,} target lines; line n of one must go with line n of the "
            "other."
        )
    read = translator.encode(source, from_=from_, to=to)
    written = [translator.target.encode(_checked(line, number)) for number, line in enumerate(target, start=1)]
    _check_lengths(written, translator)
    scored: list[Scored | None] = [None] * len(source)
    lengths = [(len(s), len(t)) for s, t in zip(read, written, strict=True)]
    for batch in _batches(lengths, batch_size, batch_independent):
        copies = batch + [batch[-1]] * (-len(batch) % _ROWS if batch_independent else 0)
        found = _log_probabilities(translator, [read[i] for i in copies], [written[i] for i in copies], bfloat16)
        for i, values in zip(batch, found, strict=False):  # the copies at the end are left out
            pieces = tuple(translator.target.pieces([*written[i], END]))
            scored[i] = Scored(sum(values), pieces, tuple(values))
    return [s for s in scored if s is not None]


def perplexity_of(scored: Sequence[Scored]) -> Score:
    """Perplexity per piece, ends counted, of lines that were scored."""
    return perplexity(sum(s.log_probability for s in scored), sum(len(s.pieces) for s in scored), "piece")


def _checked(line: str, number: int) -> str:
    if "\0" in line or "\n" in line:
        what = "a NUL (U+0000)" if "\0" in line else "a line break"
        raise TextError(f"target line {number} contains {what}; a line is one segment of text: remove it.")
    return line


def _check_lengths(written: Sequence[Sequence[int]], translator: Translator) -> None:
    for number, ids in enumerate(written, start=1):
        if len(ids) > translator.limit:
            raise TextError(
                f"target line {number} has {len(ids):,} pieces; this bundle takes at most {translator.limit:,} in one "
                "line: split the pair into sentences."
            )


def _log_probabilities(
    translator: Translator, read: Sequence[Sequence[int]], written: Sequence[Sequence[int]], bfloat16: bool
) -> list[list[float]]:
    """log p of every piece of every target, the end's last."""
    model = translator.model
    device = device_of(model)  # type: ignore[arg-type]

    def rows(lines: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        lengths = [len(line) for line in lines]
        padded = [[*line, *[PAD] * (max(lengths) - len(line))] for line in lines]
        return torch.tensor(padded, device=device), torch.tensor(lengths, device=device)

    source, source_lengths = rows([[*line, END] for line in read])  # (B, S)
    tokens, target_lengths = rows([[BEGIN, *line] for line in written])  # (B, T)
    targets, _ = rows([[*line, END] for line in written])
    reading = layout_of("padded", source_lengths, source.shape[1])
    writing = layout_of("padded", target_lengths, tokens.shape[1])
    with mixed(device, bfloat16):
        state = model.start(model.encode(source, reading), reading)
        hidden, _ = model.decode(tokens, state, writing)
        flat = token_log_probabilities(model.project, hidden.flatten(0, 1), targets.flatten(), _CHUNK)
    grid = flat.view(tokens.shape).double().tolist()
    return [row[: len(line) + 1] for row, line in zip(grid, written, strict=True)]


def _batches(lengths: Sequence[tuple[int, int]], size: int, same: bool) -> Iterator[list[int]]:
    """Indices in batches of at most `size`, of near or exactly the same lengths, longest first."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], i), reverse=True):
        if batch and (len(batch) == size or (same and lengths[batch[0]] != lengths[i])):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
