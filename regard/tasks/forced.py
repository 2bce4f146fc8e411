"""Forced decoding: a model is made to write given tokens, and says how likely each is and where it looks.

The compiled engine does it where it knows the model, and PyTorch the rest; see `regard.tasks.engine`.

Sizes: B lines, L layers, H heads, S source tokens, T target tokens, ends counted; N tokens in all, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.metrics import Score, perplexity
from regard.models.interface import EncoderDecoder
from regard.text.tokenizer import BEGIN, END

from .engine import Backend, instead_of
from .lines import check_counts, encode_targets, pad

if TYPE_CHECKING:
    from torch import Tensor

    from regard.nn.state import Observer

    from .translate import Translator

_CHUNK = 1024
"""Tokens projected to the vocabulary together."""

Ids = Sequence[int]


@dataclass(frozen=True)
class Forced:
    """One pair of lines."""

    log_probabilities: tuple[float, ...]
    """Of each target token and the end, given the source and the tokens before it; natural logarithm."""
    attention: tuple[NDArray[np.float32], ...] = ()
    """Each decoder layer's weights (H, T, S): a row for each step, the first of which reads begin and writes the first
    token; the source's end is the last column."""


def forced(
    model: EncoderDecoder | Backend,
    sources: Sequence[Ids],
    targets: Sequence[Ids],
    *,
    temperature: float = 1.0,
    attention: bool = False,
    scores: bool = True,
    batch_size: int = 32,
) -> list[Forced]:
    """What the model makes of each target after its source, ids without ends, in order; it computes as it is.

    Logits are divided by `temperature` before the softmax. `attention` asks for the weights too; a model that has none
    gives none. Without `scores` there are no log-probabilities, and nothing is projected to the vocabulary.
    """
    backend = model if isinstance(model, Backend) else Backend([model])
    found: dict[int, Forced] = {}
    order = sorted(range(len(sources)), key=lambda i: (len(targets[i]), len(sources[i]), i), reverse=True)
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        read, written = [[*sources[i], END] for i in batch], [targets[i] for i in batch]
        if backend.decoders:
            [decoder] = backend.decoders
            layers = range(decoder.shape.decoder_layers) if attention else ()
            made = decoder.forced(read, written, (BEGIN, END), temperature=temperature, scores=scores, layers=layers)
            found |= {i: Forced(tuple(row), tuple(weights)) for i, (row, weights) in zip(batch, made, strict=True)}
        else:
            rows, layers_seen = _in_pytorch(backend, read, written, temperature, attention, scores)
            for row, i in enumerate(batch):
                t, s = len(targets[i]) + 1, len(sources[i]) + 1
                found[i] = Forced(tuple(rows[row][:t]), tuple(layer[row, :, :t, :s] for layer in layers_seen))
    return [found[i] for i in range(len(sources))]


def _in_pytorch(
    backend: Backend, read: Sequence[Ids], written: Sequence[Ids], temperature: float, attention: bool, scores: bool
) -> tuple[list[list[float]], list[NDArray[np.float32]]]:
    """Log-probabilities (B, T), and of each layer the weights (B, H, T, S), where they are asked for."""
    import torch
    from torch.nn.functional import cross_entropy

    from regard.nn.state import Observer

    [model] = backend.models
    observe = Observer("cross") if attention else None
    with torch.inference_mode(), backend.autocast():
        hidden, wanted = hidden_of(model, [line[:-1] for line in read], written, observe)
        rows: list[list[float]] = [[]] * len(read)
        if scores:
            parts = zip(logits_of(model, hidden.flatten(0, 1)), wanted.flatten().split(_CHUNK), strict=True)
            each = [-cross_entropy(z / temperature, w, reduction="none").double() for z, w in parts]
            rows = torch.cat(each).view(wanted.shape).tolist()
    return rows, [each.float().cpu().numpy() for each in (observe.weights["cross"] if observe else ())]


def hidden_of(
    model: EncoderDecoder, sources: Sequence[Ids], targets: Sequence[Ids], observe: Observer | None = None
) -> tuple[Tensor, Tensor]:
    """What `project` takes at each target token (B, T, D), and the tokens that should come (B, T), filled with PAD."""
    from regard.models.blocks import device_of

    device = device_of(model)
    read, reading = pad([[*line, END] for line in sources], device)  # (B, S)
    tokens, writing = pad([[BEGIN, *line] for line in targets], device)  # (B, T)
    wanted, _ = pad([[*line, END] for line in targets], device)
    hidden, _ = model.decode(tokens, model.start(model.encode(read, reading), reading), writing, observe)
    return hidden, wanted


def logits_of(model: EncoderDecoder, hidden: Tensor) -> Iterator[Tensor]:
    """Hidden (N, D) -> logits (at most 1024, V), token after token, in the model's precision, float32 at least."""
    for part in hidden.split(_CHUNK):
        logits = model.project(part)
        yield logits.float() if logits.itemsize < 4 else logits


# -- scores of given lines --------------------------------------------------------------------------------------------


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

    A line's score is the same whatever else is scored with it, as `regard.tasks.engine` says of each precision.
    Raises TextError for unequal counts and for lines that cannot be read.
    """
    check_counts(source, target, "target")
    translator.check_steps("a target's probability is the product of its tokens', each after those before it")
    read = translator.encode(source, from_=from_, to=to)
    written = encode_targets(translator.target, target, translator.limit)
    if precision == "int8" and (reason := translator.engine.refusal()):
        translator.engine.warn_once(instead_of(precision, reason))
    each = forced(translator.engine.forcing(precision), read, written, batch_size=batch_size)
    return [
        Scored(sum(found.log_probabilities), tuple(translator.target.tokens([*ids, END])), found.log_probabilities)
        for ids, found in zip(written, each, strict=True)
    ]


def perplexity_of(scored: Sequence[Scored]) -> Score:
    """Perplexity per token, ends counted, of lines that were scored."""
    return perplexity(sum(s.log_probability for s in scored), sum(len(s.tokens) for s in scored), "token")
