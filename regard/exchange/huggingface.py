"""Hugging Face's Marian (OPUS-MT) models: what their weights are called, directories written, and what they compute.

Theirs and ours are the same network: post-norm, sinusoids with all sines first, scaled embeddings, a bias on the
logits. So a weight is copied and never computed with; where our sinusoids are interleaved, features change their order
throughout.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from regard.bundle import Bundle
from regard.errors import ModelError
from regard.search.table import SearchConfig
from regard.text import BEGIN, END, PAD, UNK

from .vocabulary import marian_names

SETTINGS = {
    "d_model": "width",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "encoder_attention_heads": "heads",
    "decoder_attention_heads": "heads",
    "encoder_ffn_dim": "feedforward",
    "decoder_ffn_dim": "feedforward",
    "dropout": "dropout",
    "activation_dropout": "activation_dropout",
}
"""Keys of config.json, and ours."""
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
_SOURCE, _TARGET, _OUTPUT = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"
TABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "all": {"source.table.weight": ("model.shared.weight", _SOURCE, _TARGET, _OUTPUT)},
    "target": {"source.table.weight": (_SOURCE,), "target.table.weight": (_TARGET, _OUTPUT)},
    "none": {"source.table.weight": (_SOURCE,), "target.table.weight": (_TARGET,), "output.weight": (_OUTPUT,)},
}
"""By what is shared: our table and its names there, of which at least one is in a file."""
_MAX_POSITIONS = 1024
_OTHERWISE = {
    ">>de<< a": "a line that begins with >>…<< (one language tag there, text here)",
    "a </s> b": "a literal </s>, <unk> or <pad> (a special token there)",
    "a\u2581b": "U+2581 (a space there)",
}
"""Lines that MarianTokenizer reads in its own way, whatever its files say; a tag may be one of the bundle's too."""


def layer_names(name: str) -> list[str]:
    """What Marian calls the parts of a layer's parameter of ours, in their order in it."""
    side, number, *rest = name.split(".")
    part, kind = ".".join(rest[:-1]), rest[-1]
    parts = [part.replace("key_value", one) for one in ("key", "value")] if "key_value" in part else [part]
    return [f"model.{side}.layers.{number}.{_PARTS[one]}.{kind}" for one in parts]


def write_marian(bundle: Bundle, directory: Path) -> None:
    """Write what MarianMTModel and MarianTokenizer load. Raises ModelError for a model that Marian cannot be."""
    _refuse(bundle)
    save_file(_weights(bundle), directory / "model.safetensors", metadata={"format": "pt"})
    config, separate = bundle.recipe.model, bundle.recipe.model.share != "all"
    for side, tokenizer in (("source", bundle.source), ("target", bundle.target)):
        (directory / f"{side}.spm").write_bytes(tokenizer.to_bytes())
    specials = {"pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END, "decoder_start_token_id": BEGIN}
    unknown, end, pad = bundle.source.tokens([UNK, END, PAD])
    files: dict[str, Mapping[str, object]] = {
        "vocab.json": {token: id_ for id_, token in enumerate(marian_names(bundle.source))},
        "config.json": {
            "architectures": ["MarianMTModel"],
            "model_type": "marian",
            "vocab_size": len(bundle.source),
            "decoder_vocab_size": len(bundle.target),
            **{theirs: getattr(config, ours) for theirs, ours in SETTINGS.items()},
            "activation_function": "swish" if config.activation == "silu" else config.activation,
            "scale_embedding": True,
            "static_position_embeddings": True,
            "normalize_before": False,
            "max_position_embeddings": _MAX_POSITIONS,
            "share_encoder_decoder_embeddings": not separate,
            "tie_word_embeddings": config.share != "none",
            "forced_eos_token_id": None,
            "is_encoder_decoder": True,
            **specials,
        },
        "generation_config.json": {**specials, **_generation(bundle.recipe.search), "max_length": _MAX_POSITIONS},
        "tokenizer_config.json": {
            "tokenizer_class": "MarianTokenizer",
            "unk_token": unknown,
            "eos_token": end,
            "pad_token": pad,
            "separate_vocabs": separate,
            "model_max_length": _MAX_POSITIONS,
            "clean_up_tokenization_spaces": False,
            "source_lang": bundle.recipe.data.source_language or None,
            "target_lang": bundle.recipe.data.target_language or None,
        },
    }
    if separate:
        files["target_vocab.json"] = {token: id_ for id_, token in enumerate(marian_names(bundle.target))}
    for file, value in files.items():
        (directory / file).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _generation(search: SearchConfig) -> dict[str, object]:
    """Their names of our search's settings."""
    alpha = 0.0 if search.penalty == "none" else search.alpha
    beam = {} if search.beam == 1 else {"length_penalty": alpha, "early_stopping": "never"}
    return {"num_beams": search.beam, "do_sample": False, **beam}


def _weights(bundle: Bundle) -> dict[str, Tensor]:
    """The model's weights under their names there."""
    config = bundle.recipe.model
    weights = {name: p.detach() for name, p in bundle.model().named_parameters()}
    if config.positions == "sinusoidal":
        weights = {name: in_halves(name, tensor, config.width) for name, tensor in weights.items()}
    theirs = {BIAS: weights.pop("output.bias", torch.zeros(len(bundle.target)))[None]}
    for name, tensor in weights.items():
        names = TABLES[config.share][name][:1] if name in TABLES[config.share] else layer_names(name)
        theirs.update(zip(names, tensor.chunk(len(names)), strict=True))
    return {name: tensor.contiguous() for name, tensor in theirs.items()}


def in_halves(name: str, tensor: Tensor, width: int) -> Tensor:
    """A parameter of a model with interleaved sinusoids, its features (D) in the order that puts all sines first."""
    order = torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))
    if name == "output.weight" or name.endswith(("table.weight", "query.weight", "key_value.weight", "inner.weight")):
        return tensor[:, order]
    return tensor[order] if any(part in name for part in (".output.", ".outer.", ".norm.")) else tensor


def _refuse(bundle: Bundle) -> None:
    """ModelError for what MarianMTModel or MarianTokenizer cannot do."""
    config = bundle.recipe.model
    wrong = {
        'model.norm = "pre": Marian there is post-norm only': config.norm == "pre",
        f'model.positions = "{config.positions}": Marian there has sinusoids only': (
            config.positions not in ("sinusoidal", "sinusoidal-halves")
        ),
        **{f"{what}: Marian there has none": key != "positions" for key, what in config.beyond.items()},
        "model.key_width and model.value_width: Marian's heads there are all width / heads wide": (
            not {config.key_width, config.value_width} <= {0, config.width / config.heads}
        ),
        "shared embeddings with two vocabularies that name their tokens otherwise: Marian there has one vocab.json": (
            config.share == "all" and marian_names(bundle.source) != marian_names(bundle.target)
        ),
        f'text.normalization = "{bundle.source.normalization}": MarianTokenizer does not normalise': (
            {bundle.source.normalization, bundle.target.normalization} != {"identity"}
        ),
    }
    if reasons := [reason for reason, refused in wrong.items() if refused]:
        other = "" if config.beyond.keys() - {"score"} else " Try --to ctranslate2."
        raise ModelError(f"{bundle.path}: cannot become a Marian model: {'; '.join(reasons)}.{other}")


@dataclass(frozen=True)
class Foreign:
    """What has been read and checked of a directory that somebody else made; transformers is given nothing else."""

    config: Mapping[str, Any]  #: Settings of MarianConfig.
    tokenizer: Mapping[str, Any]  #: Settings of MarianTokenizer, its files included.
    weights: Mapping[str, Tensor]
    rows: tuple[Sequence[int], Sequence[int]]  #: Its ids of our source's and of our target's.
    silent: Sequence[int]  #: Our ids that it may not write.


class HuggingFace:
    """A directory as transformers reads it, an `Other`. Without `foreign` it is one of ours, and its ids are ours."""

    stop: Literal["bound", "beam"] = "bound"

    def __init__(self, directory: Path, foreign: Foreign | None = None) -> None:
        from transformers import MarianConfig, MarianMTModel, MarianTokenizer

        self.name = f"transformers {metadata.version('transformers')}"
        # transformers has no types that say what these are.
        self.tokenizer: Any
        self.model: Any
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it recommends another package
                if foreign is None:
                    self.tokenizer = MarianTokenizer.from_pretrained(directory, local_files_only=True)
                    self.model = MarianMTModel.from_pretrained(directory, local_files_only=True)
                else:
                    self.tokenizer = MarianTokenizer(**foreign.tokenizer)
                    self.model = MarianMTModel(MarianConfig(**foreign.config))
                    weights = {name: tensor.float() for name, tensor in foreign.weights.items()}
                    self.model.load_state_dict(weights, strict=False)
        except (OSError, ValueError, KeyError, TypeError, AssertionError, RuntimeError) as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise ModelError(
                f"{directory}: {self.name} cannot read it ({reason}); --no-verify does without."
            ) from error
        self.model.float().eval()
        self.model.generation_config.forced_eos_token_id = None  # an output that is cut is not ended here either
        same = range(max(self.model.config.vocab_size, self.model.config.decoder_vocab_size))
        self.source, self.target = foreign.rows if foreign else (same, same)
        silent = set(foreign.silent) if foreign else set()
        # One of our ids may be silent because another of ours has the same row; that row may be written.
        written = {row for i, row in enumerate(self.target) if i not in silent}
        self.suppressed = sorted({self.target[i] for i in silent} - written - {-1})

    def reads(self, line: str, ids: Sequence[int]) -> bool:
        found: list[int] = self.tokenizer(line).input_ids
        return found[:-1] == [self.source[i] for i in ids]

    def otherwise(self, bundle: Bundle) -> list[str]:
        found = [what for line, what in _OTHERWISE.items() if not self.reads(line, bundle.source.encode(line))]
        written = bundle.target.encode("\x1fa")
        text = self.tokenizer.decode([self.target[i] for i in written], skip_special_tokens=True)
        if text != bundle.target.decode(written):
            found.append("outputs that begin or end with spaces or control characters (stripped there)")
        return found

    @torch.inference_mode()
    def translate(self, source: Sequence[int], search: SearchConfig, limit: int) -> list[int]:
        settings = {"max_new_tokens": limit, "suppress_tokens": self.suppressed or None, **_generation(search)}
        found = self.model.generate(input_ids=self._read(source), **settings)[0].tolist()[1:]
        end = self.target[END]
        return [self.target.index(i) for i in (found[: found.index(end)] if end in found else found)]

    @torch.inference_mode()
    def log_probability(self, source: Sequence[int], target: Sequence[int]) -> float:
        written = torch.tensor([[self.target[i] for i in (BEGIN, *target, END)]])
        logits = self.model(input_ids=self._read(source), decoder_input_ids=written[:, :-1]).logits[0]
        logits[:, self.suppressed] = float("-inf")
        return float(logits.log_softmax(-1).gather(1, written[0, 1:, None]).double().sum())

    def _read(self, source: Sequence[int]) -> Tensor:
        return torch.tensor([[self.source[i] for i in (*source, END)]])
