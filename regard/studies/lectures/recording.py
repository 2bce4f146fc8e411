"""A translation kept step by step, for a page that shows it where no model is."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from regard.explore.look import look
from regard.explore.steps import step_by_step
from regard.language.open import open_bundle
from regard.models.interface import EncoderDecoder
from regard.tasks.translate import Translator

_TOP = 3


def _shown(token: str) -> str:
    """A token with a space where the tokenizer has its mark."""
    return token.replace("\u2581", " ").strip() or "\u2423"


def recorded(bundle: str | Path, line: str) -> dict[str, object]:
    """Of each token that is written greedily: where it looks (all layers and heads averaged), and the likeliest three.

    Plain values for JSON: "model", "sha256" of its weights, "line", "translation", "source" (tokens) and "steps".
    """
    opened = open_bundle(bundle, ["encoder-decoder"])
    translator = Translator(cast(EncoderDecoder, opened.model), opened.recipe, opened.source, opened.target)
    written, cross = step_by_step(translator, line, beam=1, top=_TOP), look(opened, line, beam=1).part("cross")
    steps = [
        {
            "token": _shown(step.token),
            "attention": [round(weight, 4) for weight in row],
            "likeliest": [[_shown(each.token), round(each.probability, 4)] for each in step.alternatives],
        }
        for step, row in zip(written.steps, cross.matrix().tolist(), strict=True)
    ]
    made = opened.bundle
    of = {} if made is None else {"model": made.name, "sha256": str(made.files["weights.safetensors"].sha256)}
    source = [_shown(token) for token in cross.columns.names]
    return of | {"line": line, "translation": written.target, "source": source, "steps": steps}
