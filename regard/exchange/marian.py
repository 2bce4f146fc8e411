"""Hugging Face's Marian (OPUS-MT) models: what their weights are called, and directories written from bundles.

Theirs and ours are the same network: post-norm, sinusoids with all sines first, scaled embeddings, a bias on the
logits. So a weight is copied and never computed with; where our sinusoids are interleaved, features change their order
throughout.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from regard.bundle import Bundle
from regard.errors import ModelError
from regard.search.config import SearchConfig
from regard.text import BEGIN, END, PAD, UNK

from .vocabulary import marian_names

_MAX_POSITIONS = 1024

_PARTS = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.out_proj",
    "cross.query": "encoder_attn.q_proj",
    "cross.key": "encoder_attn.k_proj",
    "cross.value": "encoder_attn.v_proj",
    "cross.output": "encoder_attn.out_proj",
    "attention_residual.norm": "self_attn_layer_norm",
    "cross_residual.norm": "encoder_attn_layer_norm",
    "feedforward.inner": "fc1",
    "feedforward.outer": "fc2",
    "feedforward_residual.norm": "final_layer_norm",
}
"""Parts of a layer: ours and theirs."""
BIAS = "final_logits_bias"
_SHARED, _SOURCE, _TARGET, _OUTPUT = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
TABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "all": {"source.table.weight": (_SHARED, _SOURCE, _TARGET, _OUTPUT)},
    "target": {"source.table.weight": (_SOURCE,), "target.table.weight": (_TARGET, _OUTPUT)},
    "none": {"source.table.weight": (_SOURCE,), "target.table.weight": (_TARGET,), "output.weight": (_OUTPUT,)},
}
"""By what is shared: our table and its names there, of which at least one is in a file."""


def layer_names(name: str) -> list[str]:
    """What Marian calls the parts of a layer's parameter of ours, in their order in it."""
    side, number, *rest = name.split(".")
    part, kind = ".".join(rest[:-1]), rest[-1]
    parts = [part.replace("key_value", one) for one in ("key", "value")] if "key_value" in part else [part]
    return [f"model.{side}.layers.{number}.{_PARTS[one]}.{kind}" for one in parts]


def generation(search: SearchConfig) -> dict[str, Any]:
    """Their names of our search's settings."""
    if search.beam == 1:
        return {"num_beams": 1, "do_sample": False}
    alpha = 0.0 if search.penalty == "none" else search.alpha
    return {"num_beams": search.beam, "length_penalty": alpha, "early_stopping": "never", "do_sample": False}


def write_marian(bundle: Bundle, directory: Path) -> None:
    """Write what MarianMTModel and MarianTokenizer load. Raises ModelError for a model that Marian cannot be."""
    _refuse(bundle)
    save_file(_weights(bundle), directory / "model.safetensors", metadata={"format": "pt"})
    share = bundle.recipe.model.share
    vocabularies = {"vocab.json": bundle.source} | ({} if share == "all" else {"target_vocab.json": bundle.target})
    for file, tokenizer in vocabularies.items():
        _write_json(directory / file, {token: id_ for id_, token in enumerate(marian_names(tokenizer))})
    for file, tokenizer in (("source.spm", bundle.source), ("target.spm", bundle.target)):
        (directory / file).write_bytes(tokenizer.to_bytes())
    specials = {"pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END, "decoder_start_token_id": BEGIN}
    _write_json(directory / "config.json", _config(bundle) | specials)
    search = generation(bundle.recipe.search)
    _write_json(directory / "generation_config.json", specials | search | {"max_length": _MAX_POSITIONS})
    unknown, end, pad = bundle.source.tokens([UNK, END, PAD])
    about = {
        "tokenizer_class": "MarianTokenizer",
        "unk_token": unknown,
        "eos_token": end,
        "pad_token": pad,
        "separate_vocabs": share != "all",
        "model_max_length": _MAX_POSITIONS,
        "clean_up_tokenization_spaces": False,
        "source_lang": bundle.recipe.data.source_language or None,
        "target_lang": bundle.recipe.data.target_language or None,
    }
    _write_json(directory / "tokenizer_config.json", about)


def _weights(bundle: Bundle) -> dict[str, Tensor]:
    """The model's weights under their names there."""
    config = bundle.recipe.model
    weights = {name: p.detach() for name, p in bundle.model().named_parameters()}
    if config.positions == "sinusoidal":
        weights = {name: _in_halves(name, tensor, config.width) for name, tensor in weights.items()}
    theirs = {BIAS: weights.pop("output.bias", torch.zeros(len(bundle.target)))[None]}
    for name, tensor in weights.items():
        names = TABLES[config.share][name][:1] if name in TABLES[config.share] else layer_names(name)
        theirs.update(zip(names, tensor.chunk(len(names)), strict=True))
    return {name: tensor.contiguous() for name, tensor in theirs.items()}


def _in_halves(name: str, tensor: Tensor, width: int) -> Tensor:
    """A parameter of a model with interleaved sinusoids, its features (D) in the order that puts all sines first."""
    order = torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))
    if name == "output.weight" or name.endswith(("table.weight", "query.weight", "key_value.weight", "inner.weight")):
        return tensor[:, order]
    if ".output." in name or ".outer." in name or ".norm." in name:
        return tensor[order]
    return tensor


def _config(bundle: Bundle) -> dict[str, Any]:
    config = bundle.recipe.model
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": len(bundle.source),
        "decoder_vocab_size": len(bundle.target),
        "d_model": config.width,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.feedforward,
        "decoder_ffn_dim": config.feedforward,
        "activation_function": "swish" if config.activation == "silu" else config.activation,
        "dropout": config.dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "max_position_embeddings": _MAX_POSITIONS,
        "share_encoder_decoder_embeddings": config.share == "all",
        "tie_word_embeddings": config.share != "none",
        "forced_eos_token_id": None,
        "is_encoder_decoder": True,
    }


def _refuse(bundle: Bundle) -> None:
    """ModelError for what MarianMTModel or MarianTokenizer cannot do."""
    config = bundle.recipe.model
    wrong = [
        (config.norm == "pre", 'model.norm = "pre": Marian there is post-norm only'),
        (
            config.positions not in ("sinusoidal", "sinusoidal-halves"),
            f'model.positions = "{config.positions}": Marian there has sinusoids only',
        ),
        *((key != "positions", f"{what}: Marian there has none") for key, what in config.beyond.items()),
        (
            not {config.key_width, config.value_width} <= {0, config.width / config.heads},
            "model.key_width and model.value_width: Marian's heads there are all width / heads wide",
        ),
        (
            config.share == "all" and marian_names(bundle.source) != marian_names(bundle.target),
            "shared embeddings with two vocabularies that name their tokens otherwise: Marian there has one vocab.json",
        ),
        (
            {bundle.source.normalization, bundle.target.normalization} != {"identity"},
            f'text.normalization = "{bundle.source.normalization}": MarianTokenizer does not normalise',
        ),
    ]
    reasons = [reason for refused, reason in wrong if refused]
    if reasons:
        other = "" if config.beyond.keys() - {"score"} else " Try --to ctranslate2."
        raise ModelError(f"{bundle.path}: cannot become a Marian model: {'; '.join(reasons)}.{other}")


def _write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
