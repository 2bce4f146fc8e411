"""One head opened: queries, keys, scores, mask, weights, values and output, with the numbers that the model computes.

Sizes: T rows (what looks), S columns (what is looked at), K and E widths of a head's keys and values, D of the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import TextError
from regard.models.blocks import Block, Transformer
from regard.nn.attention import Causal, Lengths, Mask, MultiHead, mix, weigh
from regard.nn.attention.core import matrix
from regard.nn.state import Cache, KeysValues, Layout
from regard.tasks.translate import Translator, load
from regard.text import BEGIN, END

from .changes import Head, config_of, heads_named
from .look import both_sides

Numbers = NDArray[np.float64]
_MOST = 128
"""Tokens of either side: every number of the head is told."""


@dataclass(frozen=True)
class OpenedHead:
    """What a head computes over one line, in float64; everything is of this head alone."""

    head: Head
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    queries: Numbers  #: (T, K), as they are compared: scaled, and turned by rotary positions.
    keys: Numbers  #: (S, K)
    scores: Numbers  #: (T, S), what positions add to them counted.
    mask: NDArray[np.bool_]  #: (T, S): true where it may look.
    weights: Numbers  #: (T, S)
    values: Numbers  #: (S, E)
    mixed: Numbers  #: (T, E)
    output: Numbers  #: (T, D): what the head adds to what its attention says, the bias aside.

    def to_dict(self, digits: int | None = None) -> dict[str, object]:
        """Plain values for JSON, all digits kept, or so many behind the point."""
        arrays = {
            name: (x if digits is None or x.dtype == bool else x.round(digits)).tolist()
            for name, x in vars(self).items()
            if isinstance(x, np.ndarray)
        }
        return {"head": str(self.head), "rows": self.rows, "columns": self.columns, **arrays}


def open_head(
    bundle: str | Path | Translator,
    line: str,
    head: str,
    *,
    target: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    beam: int | None = None,
    precision: str = "exact",
) -> OpenedHead:
    """What one head, as `encoder.2.3`, computes while a translator writes `target`, or its own translation of the line.

    Rows are as in `regard.look`, but that a row of cross-attention is named by the token that the step reads. Raises
    TextError for lines that cannot be read or have more than 128 tokens, DataError for a head that there is not,
    ModelError for a model that has none.
    """
    translator = bundle if isinstance(bundle, Translator) else load(bundle, device="cpu")
    [named, *_] = heads_named([head], config_of(translator.recipe))
    ids, _, written, _, _ = both_sides(translator, line, target, from_=from_, to=to, beam=beam)
    if (most := max(len(ids), len(written)) + 1) > _MOST:
        raise TextError(f"a side has {most:,} tokens with its end, and a head is opened over {_MOST}: split the line.")
    model = cast(Transformer, translator.engine.model_for(precision))
    source, target_names = ((*translator.source.tokens(ids), "</s>"), ("<s>", *translator.target.tokens(written)))
    with torch.inference_mode():
        found = opened(model, (*ids, END), (BEGIN, *written), named)
    rows = source if named.part == "encoder" else target_names
    columns = target_names if named.part == "decoder" else source
    mask, numbers = found
    return OpenedHead(named, rows, columns, mask=mask, **numbers)


Found = tuple[NDArray[np.bool_], dict[str, Numbers]]


def opened(model: Transformer, source: tuple[int, ...], target: tuple[int, ...], head: Head) -> Found:
    """The mask of a head and its numbers by their names; the target is what the decoder reads."""
    device = model.source.table.weight.device
    tokens = [torch.tensor([ids], device=device) for ids in (source, target)]
    reading, writing = (Layout(torch.tensor([x.shape[1]], device=device), x.shape[1]) for x in tokens)
    if head.part == "encoder":
        x = model.source(tokens[0], reading.positions(), reading.width)
        for number, block in enumerate(cast("Iterable[Block]", model.encoder)):
            x = model.source.again(x, reading.positions(), reading.width) if number else x
            if number == head.layer - 1:
                y = block.attention_residual.enter(x, reading)
                attention = cast(MultiHead, block.attention)  # a model with anything else was refused
                memory, mask = attention.prepare(y, reading), Lengths(reading.lengths)
                return _numbers(attention, y, reading, memory, mask, head)
            x, _ = block(x, reading, Lengths(reading.lengths))
    state = model.start(model.encode(tokens[0], reading), reading)
    looks = Lengths(reading.lengths)
    x = model.target(tokens[1], writing.positions(), writing.width)
    for number, block in enumerate(cast("Iterable[Block]", model.decoder)):
        x = model.target.again(x, writing.positions(), writing.width) if number else x
        if number == head.layer - 1:
            break
        x, _ = block(x, writing, Causal(), Cache(), (state.memory[number], looks))
    y, attention = block.attention_residual.enter(x, writing), cast(MultiHead, block.attention)
    if head.part == "decoder":
        return _numbers(attention, y, writing, attention.prepare(y, writing), Causal(), head)
    own, _ = attention.of_itself(y, writing, Causal(), Cache())
    y = block.cross_residual.enter(block.attention_residual.add(x, own, writing), writing)
    assert block.cross is not None
    return _numbers(block.cross, y, writing, state.memory[number], looks, head)


def _numbers(attention: MultiHead, y: Tensor, layout: Layout, memory: KeysValues, mask: Mask, head: Head) -> Found:
    """What an attention computes of y (1, T, D) for one of its heads, as `MultiHead` and `attend` do."""
    at, count = head.head - 1, y.shape[1]
    queries = attention.score.queries(attention.query(y).view(1, count, attention.heads, -1).transpose(1, 2))
    if attention.rotary is not None:
        queries = attention.rotary(queries, layout.positions(), layout.width)
    share = attention.heads // attention.groups
    keys, values = (x.repeat_interleave(share, 1) for x in (memory.keys, memory.values))
    scores = attention.score.compare(queries, keys)  # (1, H, T, S)
    positions = torch.arange(count, device=y.device), torch.arange(keys.shape[2], device=y.device)
    if attention.bias is not None:
        scores = scores + attention.bias.scores(queries, *positions)
    seen = matrix(mask, 1, count, keys.shape[2], y.device)  # (1 or none, 1, T, S)
    weights = weigh(scores, seen, normalize=attention.normalize)
    mixed = mix(weights, values)
    if attention.bias is not None and attention.bias.mixes:
        mixed = mixed + attention.bias.mixed(weights, *positions)
    width = attention.value_width
    output = mixed[0, at] @ attention.output.weight[:, at * width : (at + 1) * width].T
    found = {"queries": queries, "keys": keys, "scores": scores, "weights": weights, "values": values, "mixed": mixed}
    numbers = {name: x[0, at].double().cpu().numpy() for name, x in found.items()}
    return seen.expand_as(scores)[0, at].cpu().numpy(), {**numbers, "output": output.double().cpu().numpy()}
