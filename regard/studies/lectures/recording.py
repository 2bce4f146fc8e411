"""A translation kept step by step, for a page that shows it where no model is."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch

from regard.explore.look import look
from regard.models.interface import EncoderDecoder
from regard.tasks.forced import hidden_of, logits_of
from regard.tasks.open import open_bundle
from regard.tasks.translate import Translator

_TOP = 3


def _shown(token: str) -> str:
    """A token with a space where the tokenizer has its mark."""
    return token.replace("\u2581", " ").strip() or "\u2423"


@torch.inference_mode()
def recorded(bundle: str | Path, line: str) -> dict[str, object]:
    """Of each token that is written greedily: where it looks (all layers and heads averaged), and the likeliest three.

    Plain values for JSON: "model", "sha256" of its weights, "line", "translation", "source" (tokens) and "steps".
    """
    opened = open_bundle(bundle, ["encoder-decoder"])
    translator = Translator(cast(EncoderDecoder, opened.model), opened.recipe, opened.source, opened.target)
    best = translator.translate([line], beam=1)[0].hypotheses[0]
    cross = look(opened, line, beam=1).part("cross")
    model = translator.engine.model_for("exact")
    hidden, _ = hidden_of(model, translator.encode([line]), [list(best.ids)])
    likely = torch.cat(list(logits_of(model, hidden[0, : len(cross.rows.names)]))).softmax(-1)
    steps = []
    for row, all_ in zip(cross.matrix().tolist(), likely, strict=True):
        values, ids = (found.tolist() for found in all_.topk(_TOP))
        names = [_shown(token) for token in opened.target.tokens(ids)]
        pairs = [[name, round(value, 4)] for name, value in zip(names, values, strict=True)]
        steps.append({"token": names[0], "attention": [round(weight, 4) for weight in row], "likeliest": pairs})
    made = opened.bundle
    of = {} if made is None else {"model": made.name, "sha256": str(made.files["weights.safetensors"].sha256)}
    source = [_shown(token) for token in cross.columns.names]
    return of | {"line": line, "translation": best.text, "source": source, "steps": steps}
