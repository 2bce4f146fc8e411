"""What counted for each token that a translator wrote, with its tokens' names: `regard look --attribution METHOD`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch

from regard.errors import TextError
from regard.models.blocks import Transformer
from regard.tasks.translate import Translator, load
from regard.text import END
from regard.text.sentences import words as words_in

from .attributions import Scores, Written, attributed
from .changes import config_of
from .look import Attention, Part, Side, both_sides, side_of

_MOST = 256
"""Tokens of either side: each that is written needs a pass over all, and integrated gradients one for every step."""


@dataclass(frozen=True)
class Attribution:
    """How much each token of the source, and each that was written before, counted for each written token."""

    method: str
    source: str
    target: str
    scores: Scores
    """By part, with signs, in float64: see `regard.explore.attributions.attributed`."""
    sides: dict[str, tuple[Side, Side]]
    """Of each part the names of its rows and columns."""

    def shares(self) -> Attention:
        """In the form of attention: of each written token, each score's size as a share of all of its row.

        The rows of "cross" and "decoder" sum to one together; those of value zeroing each by themselves.
        """
        sizes = {part: np.abs(each) for part, each in self.scores.items()}
        if self.method != "value_zeroing":
            total = sum(each.sum(axis=-1, keepdims=True) for each in sizes.values())
            sizes = {part: each / np.where(total > 0, total, 1.0) for part, each in sizes.items()}
        parts = (
            Part(name, sizes[name][:, None].astype(np.float32), *self.sides[name])
            for name in ("encoder", "cross", "decoder")
            if name in sizes
        )
        return Attention(self.source, self.target, tuple(parts))


def attribute(
    bundle: str | Path | Translator,
    line: str,
    method: str,
    *,
    target: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    beam: int | None = None,
    steps: int = 50,
) -> Attribution:
    """How much each token counted while a translator wrote `target`, or its own translation of the line.

    Computed in float64. `steps` are those of integrated gradients. Raises TextError for a line that cannot be read or
    has more than 256 tokens, ModelError for no such method and for a model that is no Transformer.
    """
    translator = bundle if isinstance(bundle, Translator) else load(bundle, device="cpu")
    config_of(translator.recipe)
    ids, text, written, ended, spans = both_sides(translator, line, target, from_=from_, to=to, beam=beam)
    if (most := max(len(ids), len(written)) + 1) > _MOST:
        raise TextError(f"a side has {most:,} tokens with its end, and at most {_MOST} are attributed: split the line.")
    model = cast(Transformer, translator.engine.model_for("exact"))
    with torch.inference_mode(False):
        scores = attributed(model, Written((*ids, END), (*written, *[END] * ended)), method, steps)
    source = side_of(line, translator.source.tokens(ids), *translator.reading.spans(line, to))
    wrote = text, translator.target.tokens(written), spans, words_in(text)
    rows, prefix = side_of(*wrote, end=ended), side_of(*wrote, begin=True, end=False)
    count = len(rows.names)  # a line that did not end was not read to its last token
    read = Side(prefix.names[:count], prefix.words, prefix.shares[:count])
    # Zeroed values turn what stands at a position, which is the token that was read; the rest is of the one written.
    own = (read if method == "value_zeroing" else rows, read)
    return Attribution(
        method, line, text, scores, {"encoder": (source, source), "cross": (rows, source), "decoder": own}
    )
