"""A bundle's network as Marian reads it: the weights as .npz with Marian's names, and the vocabulary.

Marian begins a translation with zeros in the place of an embedding, and has sinusoids of its own, so what it would
write by these weights is not what the bundle writes. They serve to measure speed: its end of sentence is made
impossible, so that every sentence becomes as long as `--max-length-factor` lets it, whatever the weights say.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from workers import BenchmarkError

from regard.bundle import Bundle
from regard.text import END, UNK

__all__ = ["write_marian"]

_PARTS = {
    "attention.query": "self_Wq self_bq",
    "attention.key": "self_Wk self_bk",
    "attention.value": "self_Wv self_bv",
    "attention.output": "self_Wo self_bo",
    "attention_residual.norm": "self_Wo_ln_scale self_Wo_ln_bias",
    "cross.query": "context_Wq context_bq",
    "cross.key": "context_Wk context_bk",
    "cross.value": "context_Wv context_bv",
    "cross.output": "context_Wo context_bo",
    "cross_residual.norm": "context_Wo_ln_scale context_Wo_ln_bias",
    "feedforward.inner": "ffn_W1 ffn_b1",
    "feedforward.outer": "ffn_W2 ffn_b2",
    "feedforward_residual.norm": "ffn_ffn_ln_scale ffn_ffn_ln_bias",
}
"""Parts of a layer: ours, and theirs of its weight and its bias."""
NEVER = -1e9


def write_marian(bundle: Bundle, directory: Path) -> None:
    """Write model.npz and vocabulary.yml; raises BenchmarkError for a shape that Marian does not have."""
    config = bundle.recipe.model
    if config.family != "transformer" or config.share != "all":
        raise BenchmarkError(
            f"{bundle.path}: only a Transformer with one table for all tokens is written for Marian; leave Marian out "
            "by --only, or take another bundle."
        )
    found: dict[str, object] = {}
    pre = config.norm == "pre"
    for name, parameter in bundle.model().named_parameters():
        tensor = parameter.detach().float()
        side, number, *rest = name.split(".")
        if side in ("encoder", "decoder"):
            part, kind = ".".join(rest[:-1]), rest[-1] == "bias"
            ours = [part.replace("key_value", one) for one in ("key", "value")] if "key_value" in part else [part]
            for one, piece in zip(ours, tensor.chunk(len(ours)), strict=True):
                theirs = _PARTS[one].split()[kind] + ("_pre" if pre and "norm" in part else "")
                found[f"{side}_l{int(number) + 1}_{theirs}"] = piece.T if piece.dim() == 2 else piece[None]
        elif side.endswith("_norm"):
            found[f"{side.removesuffix('_norm')}_top_ln_{'bias' if number == 'bias' else 'scale'}"] = tensor[None]
        elif name == "source.table.weight":
            found["Wemb"] = tensor
    bias = np.zeros((1, len(bundle.source)), np.float32)
    bias[0, END] = NEVER
    settings = {
        "version": "v1.12.0",
        "type": "transformer",
        "dim-vocabs": [len(bundle.source)] * 2,
        "dim-emb": config.width,
        "enc-depth": config.encoder_layers,
        "dec-depth": config.decoder_layers,
        "transformer-heads": config.heads,
        "transformer-dim-ffn": config.feedforward,
        "transformer-ffn-depth": 2,
        "transformer-ffn-activation": config.activation,
        "transformer-preprocess": "n" if pre else "",
        "transformer-postprocess": "da" if pre else "dan",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": "n" if pre else "",
        "transformer-decoder-autoreg": "self-attention",
        "tied-embeddings-all": True,
        "max-length": 1000,
        "input-types": [],
    }
    text = np.frombuffer(json.dumps(settings).encode() + b"\0", np.int8)  # JSON is YAML
    arrays = {name: np.ascontiguousarray(tensor) for name, tensor in found.items()}
    np.savez(directory / "model.npz", **arrays, **{"decoder_ff_logit_out_b": bias, "special:model.yml": text})
    tokens = bundle.source.tokens(range(len(bundle.source)))
    tokens[UNK], tokens[END] = "<unk>", "</s>"
    lines = (f"{json.dumps(token, ensure_ascii=False)}: {id_}\n" for id_, token in enumerate(tokens))
    (directory / "vocabulary.yml").write_text("".join(lines), encoding="utf-8")
