"""Where a trained model looks: the figures of the lectures that no formula gives."""

from __future__ import annotations

from pathlib import Path

import torch

from ..look import look
from ..open import Opened
from .page import Lecture, heat

__all__ = ["looks"]


def looks(bundle: str | Path | Opened, line: str) -> Lecture:
    """What each piece of a line looks at, in the last layer, the mean of its heads.

    Of a translator: what each piece of its own translation looks at in the line. Of a language model: what each piece
    looks at among those before, as in Cheng et al. 2016, Figure 1; of a masked one: in the whole line.
    """
    found = look(bundle, line)
    part = found.part()
    down, across = part.rows.names, part.columns.names
    numbers = {"translation": found.target} if part.name == "cross" else {}
    weights = torch.from_numpy(part.matrix(len(part.weights)))
    for place, row in enumerate(weights):
        best = int(row.argmax())
        numbers[f"{place + 1} {down[place]}"] = f"{across[best]} ({float(row[best]):.3f})"
    return Lecture(numbers, (heat("Where each piece looks", weights, down, across),))
