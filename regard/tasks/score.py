"""How likely a model finds given translations: the log-probability of each target line after its source line.

Sizes: B lines, S source pieces, T target pieces, ends counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from regard.errors import TextError
from regard.metrics import Score, perplexity
from regard.models.interface import EncoderDecoder, device_of, layout_of
from regard.text import BEGIN, END, PAD
from regard.train import mixed

from .translate import Translator

__all__ = ["Scored", "perplexity_of", "score_lines"]

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

    Batch-independent: a line's score is the same to about 1e-12, whatever else is scored with it (see `decode`).
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
    model = translator.computing(batch_independent, bfloat16)
    found: dict[int, Scored] = {}
    order = sorted(range(len(source)), key=lambda i: (len(written[i]), len(read[i]), i), reverse=True)
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        each = _log_probabilities(model, [read[i] for i in batch], [written[i] for i in batch], bfloat16)
        for i, values in zip(batch, each, strict=True):
            found[i] = Scored(sum(values), tuple(translator.target.pieces([*written[i], END])), tuple(values))
    return [found[i] for i in range(len(source))]


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
    model: EncoderDecoder, read: Sequence[Sequence[int]], written: Sequence[Sequence[int]], bfloat16: bool
) -> list[list[float]]:
    """log p of every piece of every target, the end's last."""
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
        flat = _of_targets(model, hidden.flatten(0, 1), targets.flatten())
    grid = flat.view(tokens.shape).double().tolist()
    return [row[: len(line) + 1] for row, line in zip(grid, written, strict=True)]


def _of_targets(model: EncoderDecoder, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """log p of each target, hidden (N, D) and targets (N,) -> (N,), in the model's own precision, float32 at least."""
    found = []
    for h, t in zip(hidden.split(_CHUNK), targets.split(_CHUNK), strict=True):
        logits = model.project(h)  # (n, V)
        logits = logits.float() if logits.dtype == torch.bfloat16 else logits
        found.append(-functional.cross_entropy(logits, t, reduction="none"))
    return torch.cat(found)
