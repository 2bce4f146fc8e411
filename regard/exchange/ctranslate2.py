"""A bundle as a CTranslate2 model, for inference on CPUs and GPUs without PyTorch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from regard.bundle import Bundle
from regard.errors import ModelError
from regard.search.config import SearchConfig
from regard.text import BEGIN, END, UNK, Shortlist

QUANTIZATIONS = ("float32", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16")
_FILES = ("source.spm", "target.spm")
_APART = re.compile("[ \t\n]")
"""What parts the fields of a vmap."""


def write_ctranslate2(bundle: Bundle, directory: Path, quantization: str = "float32") -> None:
    """Write what ctranslate2.Translator loads, both SentencePiece models, and the bundle's shortlist if it has one.

    The shortlist is what `use_vmap` reads: a line for each source token, and before them one of what may always come.
    Raises ModelError for a model that CTranslate2 cannot run.
    """
    from ctranslate2.specs import TransformerSpec, common_spec

    config = bundle.recipe.model
    _refuse(bundle)
    model: Any = bundle.model()
    activations = {
        "relu": common_spec.Activation.RELU,
        "gelu": common_spec.Activation.GELU,
        "silu": common_spec.Activation.SWISH,
    }
    spec: Any = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=config.norm == "pre",
        activation=activations[config.activation],
    )
    # Room for the longest line that the bundle takes, for as much more as it may write, and for both ends.
    count = 4 * bundle.recipe.data.filters.max_length + bundle.recipe.search.extra_length + 2
    if config.positions == "learned":
        count = config.max_positions
    for side, ours in ((spec.encoder, model.source), (spec.decoder, model.target)):
        side.scale_embeddings = ours.scale
        side.position_encodings.encodings = _position_vectors(ours.positions, count, config.width)
    spec.encoder.embeddings[0].weight = _array(model.source.table.weight)
    spec.decoder.embeddings.weight = _array(model.target.table.weight)
    spec.decoder.projection.weight = _array(model.output.weight)
    if config.output_bias:
        spec.decoder.projection.bias = _array(model.output.bias)
    # CTranslate2 scales the products by 1 / sqrt(Dk); where the model does not, its queries make up for it.
    factor = math.sqrt(config.width // config.heads) if config.score == "dot" else 1.0
    for there, here in zip(spec.encoder.layer, model.encoder, strict=True):
        _attention(there.self_attention, here.attention, here.attention_residual.norm, factor, alone=True)
        _feedforward(there.ffn, here)
    for there, here in zip(spec.decoder.layer, model.decoder, strict=True):
        _attention(there.self_attention, here.attention, here.attention_residual.norm, factor, alone=True)
        _attention(there.attention, here.cross, here.cross_residual.norm, factor, alone=False)
        _feedforward(there.ffn, here)
    if config.norm == "pre":
        _norm(spec.encoder.layer_norm, model.encoder_norm)
        _norm(spec.decoder.layer_norm, model.decoder_norm)
    sides = [tokenizer.tokens(range(len(tokenizer))) for tokenizer in (bundle.source, bundle.target)]
    spec.register_source_vocabulary(sides[0])
    spec.register_target_vocabulary(sides[1])
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (sides[1][i] for i in (UNK, BEGIN, END))
    spec.config.decoder_start_token = sides[1][BEGIN]
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(directory))
    for file, tokenizer in zip(_FILES, (bundle.source, bundle.target), strict=True):
        (directory / file).write_bytes(tokenizer.to_bytes())
    if (shortlist := bundle.shortlist()) is not None:
        (directory / "vmap.txt").write_text("".join(_vmap(shortlist, *sides)), encoding="utf-8", newline="\n")


def _vmap(shortlist: Shortlist, source: Sequence[str], target: Sequence[str]) -> Iterator[str]:
    rows = [shortlist.always, *np.split(shortlist.tokens, shortlist.starts[1:-1])]
    for token, row in zip(["", *source], rows, strict=True):
        if not _APART.search(token):  # a key of the file cannot have one
            yield f"{token}\t{' '.join(target[i] for i in row if not _APART.search(target[i]))}\n"


def _refuse(bundle: Bundle) -> None:
    config = bundle.recipe.model
    wrong = [
        (
            not {config.key_width, config.value_width} <= {0, config.width / config.heads},
            "model.key_width and model.value_width: its heads are all width / heads wide",
        ),
        *((key != "score" or config.score != "dot", f"{what}: not written") for key, what in config.beyond.items()),
    ]
    reasons = [reason for refused, reason in wrong if refused]
    if reasons:
        raise ModelError(f"{bundle.path}: cannot become a CTranslate2 model: {'; '.join(reasons)}.")


def _position_vectors(positions: Any, count: int, width: int) -> Any:
    """Vectors (count, D) as they are added to the embeddings; zeros where nothing is."""
    return _array(positions(torch.arange(count), count).expand(count, width))


def _attention(there: Any, here: Any, norm: Any, factor: float, *, alone: bool) -> None:
    """Queries, keys and values are one product in self-attention (`alone`), and two where there is a memory."""
    query = (here.query.weight * factor, here.query.bias * factor)
    key_value = (here.key_value.weight, here.key_value.bias)
    if alone:
        parts = [(torch.cat((query[0], key_value[0])), torch.cat((query[1], key_value[1])))]
    else:
        parts = [query, key_value]
    parts.append((here.output.weight, here.output.bias))
    for linear, (weight, bias) in zip(there.linear, parts, strict=True):
        linear.weight, linear.bias = _array(weight), _array(bias)
    _norm(there.layer_norm, norm)


def _feedforward(there: Any, here: Any) -> None:
    for linear, ours in ((there.linear_0, here.feedforward.inner), (there.linear_1, here.feedforward.outer)):
        linear.weight, linear.bias = _array(ours.weight), _array(ours.bias)
    _norm(there.layer_norm, here.feedforward_residual.norm)


def _norm(there: Any, here: Any) -> None:
    there.gamma, there.beta = _array(here.weight), _array(here.bias)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().float().contiguous().numpy()


class CTranslate2:
    """A directory as CTranslate2 reads it; its tokens are the bundle's."""

    stop: Literal["bound", "beam"] = "beam"

    def __init__(self, directory: Path, bundle: Bundle) -> None:
        import ctranslate2

        self.name = f"ctranslate2 {ctranslate2.__version__}"
        self.source, self.target = bundle.source, bundle.target
        self.ids = {token: id_ for id_, token in enumerate(self.target.tokens(range(len(self.target))))}
        self.translator = ctranslate2.Translator(str(directory), device="cpu", intra_threads=1)

    def otherwise(self, bundle: Bundle) -> list[str]:
        """See `Other`; it neither reads nor writes text."""
        return []

    def reads(self, line: str, ids: Sequence[int]) -> bool:
        """See `Other`; it is given tokens."""
        return self.source.encode(line) == list(ids)

    def translate(self, source: Sequence[int], search: SearchConfig, limit: int) -> list[int]:
        """See `Other`."""
        (found,) = self.translator.translate_batch(
            [self.source.tokens(source)],
            beam_size=search.beam,
            length_penalty=search.alpha,
            # A length counts the end only where the end is asked for.
            return_end_token=True,
            max_decoding_length=limit,
            min_decoding_length=0,
            max_input_length=0,
        )
        ids = [self.ids[token] for token in found.hypotheses[0]]
        return ids[:-1] if ids[-1:] == [END] else ids

    def log_probability(self, source: Sequence[int], target: Sequence[int]) -> float:
        """See `Other`."""
        (found,) = self.translator.score_batch(
            [self.source.tokens(source)], [self.target.tokens(target)], max_input_length=0
        )
        return float(sum(found.log_probs))
