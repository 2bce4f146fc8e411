"""A bundle as a CTranslate2 model, for inference on CPUs and GPUs without PyTorch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.bundle import Bundle
from regard.errors import ModelError
from regard.search.table import SearchConfig
from regard.text import BEGIN, END, UNK, Shortlist

QUANTIZATIONS = ("float32", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16")
_APART = re.compile("[ \t\n]")  #: What parts the fields of a vmap.


def write_ctranslate2(bundle: Bundle, directory: Path, quantization: str = "float32") -> None:
    """Write what ctranslate2.Translator loads, both SentencePiece models, and the bundle's shortlist if it has one.

    The shortlist is what `use_vmap` reads: a line for each source token, and before them one of what may always come.
    Raises ModelError for a model that CTranslate2 cannot run.
    """
    tokenizers = {"source.spm": bundle.source, "target.spm": bundle.target}
    source, target = [tokenizer.tokens(range(len(tokenizer))) for tokenizer in tokenizers.values()]
    spec = _spec(bundle)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (target[i] for i in (UNK, BEGIN, END))
    spec.config.decoder_start_token = target[BEGIN]
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(directory))
    for file, tokenizer in tokenizers.items():
        (directory / file).write_bytes(tokenizer.to_bytes())
    if (shortlist := bundle.shortlist()) is not None:
        (directory / "vmap.txt").write_text("".join(_vmap(shortlist, source, target)), encoding="utf-8", newline="\n")


def _vmap(shortlist: Shortlist, source: Sequence[str], target: Sequence[str]) -> Iterator[str]:
    rows = [shortlist.always, *np.split(shortlist.tokens, shortlist.starts[1:-1])]
    for token, row in zip(["", *source], rows, strict=True):
        if not _APART.search(token):  # a key of the file cannot have one
            yield f"{token}\t{' '.join(target[i] for i in row if not _APART.search(target[i]))}\n"


def _spec(bundle: Bundle) -> Any:  # ctranslate2 has no types
    """The network with its weights."""
    from ctranslate2.specs import TransformerSpec, common_spec

    config = bundle.recipe.model
    refused = [what for key, what in config.beyond.items() if key != "score" or config.score != "dot"]
    reasons = [f"{what}: not written" for what in refused]
    if not {config.key_width, config.value_width} <= {0, config.width / config.heads}:
        reasons = ["model.key_width and model.value_width: its heads are all width / heads wide", *reasons]
    if reasons:
        raise ModelError(f"{bundle.path}: cannot become a CTranslate2 model: {'; '.join(reasons)}.")
    model: Any = bundle.model().requires_grad_(False)
    if config.score == "dot":
        # CTranslate2 scales the products by 1 / sqrt(Dk); the model does not, so its queries make up for it.
        for name, parameter in model.named_parameters():
            parameter.mul_(math.sqrt(config.width // config.heads) if ".query." in name else 1.0)
    activation = common_spec.Activation["SWISH" if config.activation == "silu" else config.activation.upper()]
    pre_norm, counts = config.norm == "pre", (config.encoder_layers, config.decoder_layers)
    spec = TransformerSpec.from_config(counts, config.heads, pre_norm=pre_norm, activation=activation)
    # Room for the longest line that the bundle takes, for as much more as it may write, and for both ends.
    count = 4 * bundle.recipe.data.filters.max_length + bundle.recipe.search.extra_length + 2
    if config.positions == "learned":
        count = config.max_positions
    for side, ours in ((spec.encoder, model.source), (spec.decoder, model.target)):
        side.scale_embeddings = ours.scale
        vectors = ours.positions(torch.arange(count), count)  # zeros where nothing is added to the embeddings
        side.position_encodings.encodings = _array(vectors.expand(count, config.width))
    spec.encoder.embeddings[0].weight = _array(model.source.table.weight)
    spec.decoder.embeddings.weight = _array(model.target.table.weight)
    spec.decoder.projection.weight = _array(model.output.weight)
    if config.output_bias:
        spec.decoder.projection.bias = _array(model.output.bias)
    layers = zip([*spec.encoder.layer, *spec.decoder.layer], [*model.encoder, *model.decoder], strict=True)
    for there, here in layers:
        own, ffn = here.attention, here.feedforward
        _copy(there.self_attention.linear, (own.query, own.key_value), (own.output,))
        _copy((there.ffn.linear_0, there.ffn.linear_1), (ffn.inner,), (ffn.outer,))
        _copy_norm(there.self_attention.layer_norm, here.attention_residual.norm)
        _copy_norm(there.ffn.layer_norm, here.feedforward_residual.norm)
    for there, here in zip(spec.decoder.layer, model.decoder, strict=True):
        _copy(there.attention.linear, (here.cross.query,), (here.cross.key_value,), (here.cross.output,))
        _copy_norm(there.attention.layer_norm, here.cross_residual.norm)
    if pre_norm:
        _copy_norm(spec.encoder.layer_norm, model.encoder_norm)
        _copy_norm(spec.decoder.layer_norm, model.decoder_norm)
    return spec


def _copy(linears: Sequence[Any], *parts: Sequence[nn.Linear]) -> None:
    """Each of theirs is one product, which makes what several of ours make, side by side."""
    for linear, ours in zip(linears, parts, strict=True):
        linear.weight = _array(torch.cat([part.weight for part in ours]))
        linear.bias = _array(torch.cat([part.bias for part in ours]))


def _copy_norm(there: Any, ours: nn.LayerNorm) -> None:
    there.gamma, there.beta = _array(ours.weight), _array(ours.bias)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = tensor.detach().float().contiguous().numpy()
    return found


class CTranslate2:
    """A directory as CTranslate2 reads it, an `Other`; its tokens are the bundle's."""

    stop: Literal["bound", "beam"] = "beam"

    def __init__(self, directory: Path, bundle: Bundle) -> None:
        import ctranslate2

        self.name = f"ctranslate2 {ctranslate2.__version__}"
        self.source, self.target = bundle.source, bundle.target
        self.ids = {token: id_ for id_, token in enumerate(self.target.tokens(range(len(self.target))))}
        self.translator = ctranslate2.Translator(str(directory), device="cpu", intra_threads=1)

    def otherwise(self, bundle: Bundle) -> list[str]:
        return []  # it neither reads nor writes text

    def reads(self, line: str, ids: Sequence[int]) -> bool:
        return self.source.encode(line) == list(ids)

    def translate(self, source: Sequence[int], search: SearchConfig, limit: int) -> list[int]:
        (found,) = self.translator.translate_batch(
            [self.source.tokens(source)],
            beam_size=search.beam,
            length_penalty=search.alpha,
            return_end_token=True,  # a length counts the end only where the end is asked for
            max_decoding_length=limit,
            min_decoding_length=0,
            max_input_length=0,
        )
        ids = [self.ids[token] for token in found.hypotheses[0]]
        return ids[:-1] if ids[-1:] == [END] else ids

    def log_probability(self, source: Sequence[int], target: Sequence[int]) -> float:
        lines = [self.source.tokens(source)], [self.target.tokens(target)]
        (found,) = self.translator.score_batch(*lines, max_input_length=0)
        return float(sum(found.log_probs))
