"""Writes what inseq says of a model, which tests compare ours with: it needs inseq, which the project does not.

    regard export tests/bundle/made-by-0.1/transformer --to huggingface --out marian
    python -m venv elsewhere && elsewhere/bin/pip install inseq "transformers<5" sentencepiece sacremoses
    elsewhere/bin/python tests/explore/inseq_numbers.py marian tests/explore/inseq.json "a e ff=FF E A"

Each line is SOURCE=TARGET. The model computes in float64, as ours does in the test. inseq's scores of gradients are
vectors, of which ours are sums or lengths; they are taken before it divides them by anything.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import inseq
import torch

METHODS = {
    "input_x_gradient": "input_x_gradient",
    "gradient": "saliency",
    "integrated_gradients": "integrated_gradients",
    "occlusion": "occlusion",
    "value_zeroing": "value_zeroing",
}


def scores(model: inseq.AttributionModel, line: str, target: str, method: str) -> dict[str, object]:
    """Of the source's and the prefix's tokens on each written one, [layer][written][read]."""
    more = {"n_steps": 50} if method == "integrated_gradients" else {}
    found = model.attribute(
        line, target, method=METHODS[method], attribute_target=True, show_progress=False, device="cpu", **more
    )[0]
    sides = {"cross": found.source_attributions, "decoder": found.target_attributions}
    if method == "value_zeroing":  # (read, written, layers)
        sides |= {"encoder": next(iter(found.sequence_scores.values()))}
    made = {}
    for part, each in sides.items():
        x = torch.nan_to_num(each.double())
        if method == "value_zeroing":
            x = x.permute(2, 1, 0)
        elif method == "gradient":
            x = x.norm(dim=-1).T[None]
        elif method == "occlusion":
            x = x.T[None]
        else:
            x = x.sum(-1).T[None]
        made[part] = x.tolist()
    return {"source": [token.id for token in found.source], "target": [token.id for token in found.target], **made}


def main() -> None:
    directory, out, *pairs = sys.argv[1:]
    versions = {name: metadata.version(name) for name in ("inseq", "transformers", "torch", "captum")}
    lines = []
    for pair in pairs:
        line, _, target = pair.partition("=")
        each = {}
        for method in METHODS:
            model = inseq.load_model(directory, METHODS[method], device="cpu")
            model.model.double()
            # Marian's decoder scales the vectors that it is given, which inseq has scaled already: they would be twice.
            model.model.model.decoder.embed_scale = 1.0
            each[method] = scores(model, line, target, method)
        lines.append({"line": line, "target": target, "scores": each})
    Path(out).write_text(json.dumps({"versions": versions, "lines": lines}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
