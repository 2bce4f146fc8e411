"""Where a trained model looks: the figures of the lectures that no formula gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import TextError
from regard.models import KINDS
from regard.text import BEGIN, END

from ..forced import forced
from ..open import Opened, open_bundle, rectangle
from ..translate import Translator
from .page import Lecture, heat

__all__ = ["looks"]


@torch.inference_mode()
def looks(bundle: str | Path | Opened, line: str) -> Lecture:
    """What each piece of a line looks at, in the last layer, the mean of its heads.

    Of a translator: what each piece of its own translation looks at in the line. Of a language model: what each piece
    looks at among those before, as in Cheng et al. 2016, Figure 1; of a masked one: in the whole line.
    """
    opened = open_bundle(bundle, ["encoder-decoder", "language-model", "reader"])
    ids = opened.encode(line)
    opened.check_length([*ids, END], 1)
    kind = KINDS.get(opened.recipe.model.family, "encoder-decoder")
    model: Any = opened.model
    record: list[Tensor] = []
    across = [*opened.source.pieces(ids), "</s>"]
    numbers: dict[str, str] = {}
    if kind == "encoder-decoder":
        translator = Translator(model, opened.recipe, opened.source, opened.target)
        text = translator.translate([line])[0].text
        written = opened.target.encode(text)
        record = [
            torch.from_numpy(layer)[None] for layer in forced(model, [ids], [written], attention=True)[0].attention
        ]
        down, numbers["translation"] = [*opened.target.pieces(written), "</s>"], text
    elif kind == "language-model":
        tokens, layout = rectangle(model, [[BEGIN, *ids]])
        model.decode(tokens, model.start(), layout, record=record)
        down = across = ["<s>", *across[:-1]]
    else:
        tokens, layout = rectangle(model, [[*ids, END]])
        model.encode(tokens, layout, record)
        down = across
    if not record:
        raise TextError(f"a {opened.recipe.model.family} model has no attention to look at; take one that has.")
    weights = record[-1][0].float().mean(0)[:, : len(across)]
    for place, row in enumerate(weights):
        best = int(row.argmax())
        numbers[f"{place + 1} {down[place]}"] = f"{across[best]} ({float(row[best]):.3f})"
    return Lecture(numbers, (heat("Where each piece looks", weights, down, across),))
