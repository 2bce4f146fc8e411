"""Which models the compiled decoder takes, and a model's weights in the order in which it reads them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor
from torch.nn import functional as F

from . import decoding
from .decoding import Decoder, Embeddings, Pair, Shape

_KNOWN = {
    "family": {"transformer"},
    "positions": {"sinusoidal", "sinusoidal-halves", "learned", "none"},
    "norm": {"post", "pre"},
    "score": {"scaled_dot", "dot"},
    "activation": set(decoding.ACTIVATIONS),
}
"""Settings of a model and the values that are taken."""
_FREE = {
    *("width", "encoder_layers", "decoder_layers", "heads", "feedforward", "key_width", "value_width"),
    *("dropout", "activation_dropout", "attention_dropout", "max_positions", "share", "output_bias"),
}
"""Settings that may have any value; all others must be at their default, the paper's."""
_ALIGN = 16
_Whole = tuple[Tensor, Tensor]


def refuses(config: BaseModel, device: str = "cpu") -> str | None:
    """None if a model of this config on this device can be compiled for decoding, else why not."""
    if device != "cpu":
        return f"it is compiled for CPUs, and the model is on {device}"
    settings = config.model_dump()
    if settings["family"] != "transformer":
        return f"it knows the transformer, and this model is a {settings['family']}"
    for key, value in settings.items():
        allowed = _KNOWN.get(key, {type(config).model_fields[key].default})
        if key not in _FREE and value not in allowed:
            return f"it does not know model.{key} = {value!r}"
    for key in ("width", "feedforward"):
        if settings[key] % _ALIGN:
            return f"model.{key} ({settings[key]}) is no multiple of {_ALIGN}"
    return decoding.refusal()


def compiled(model: Any, config: Any, precision: str) -> Decoder:
    """The model, which `refuses` accepts, in one of decoding.PRECISIONS."""
    keys, values = (width or config.width // config.heads for width in (config.key_width, config.value_width))
    with torch.no_grad():
        shape = Shape(
            config.width,
            config.heads,
            _up(keys),
            _up(values),
            config.feedforward,
            len(model.encoder),
            len(model.decoder),
            len(model.output.weight),
            decoding.ACTIVATIONS.index(config.activation),
            config.norm == "pre",
        )
        sides = [_embeddings(side, config) for side in (model.source, model.target)]
        epsilon = model.encoder[0].attention_residual.norm.eps
        return Decoder(shape, precision, epsilon, _pairs(model, config, keys, values), (sides[0], sides[1]))


def _pairs(model: Any, config: Any, keys: int, values: int) -> Iterator[tuple[Pair, bool]]:
    """Matrices and norms (True) in the order of decoding.cpp; `keys` and `values` are a head's widths."""
    factor = keys**-0.5 if config.score == "scaled_dot" else 1.0
    split = partial(_split, heads=config.heads, widths=(config.heads * keys, config.heads * values), factor=factor)
    for stack, last in ((model.encoder, model.encoder_norm), (model.decoder, model.decoder_norm)):
        for layer in stack:
            parts, output = split(layer.attention)
            yield _joined(*parts), False
            yield output, False
            yield _norm(layer.attention_residual.norm), True
            if stack is model.decoder:
                parts, output = split(layer.cross)
                yield parts[0], False
                yield _joined(*parts[1:]), False
                yield output, False
                yield _norm(layer.cross_residual.norm), True
            yield _matrix(layer.feedforward.inner), False
            yield _matrix(layer.feedforward.outer), False
            yield _norm(layer.feedforward_residual.norm), True
        if config.norm == "pre":
            yield _norm(last), True
    yield _matrix(model.output), False


def _split(attention: Any, heads: int, widths: tuple[int, int], factor: float) -> tuple[list[_Whole], Pair]:
    """Queries, keys and values with heads filled up to whole vectors, and the output that reads such heads."""
    parts = [(attention.query.weight * factor, attention.query.bias * factor)]
    parts += zip(attention.key_value.weight.split(widths), attention.key_value.bias.split(widths), strict=True)
    output = _filled(attention.output.weight.T, heads).T
    return [(_filled(w, heads), _filled(b, heads)) for w, b in parts], (_plain(output), _plain(attention.output.bias))


def _joined(*parts: _Whole) -> Pair:
    return torch.cat([w for w, _ in parts]).contiguous(), torch.cat([b for _, b in parts]).contiguous()


def _matrix(linear: Any) -> Pair:
    return _plain(linear.weight), None if linear.bias is None else _plain(linear.bias)


def _norm(norm: Any) -> Pair:
    """A copy, which keeps no file and no other parameter in memory."""
    return _plain(norm.weight).clone(), _plain(norm.bias).clone()


def _embeddings(side: Any, config: Any) -> Embeddings:
    positions = side.positions  # alone, for the model may be put aside

    def table(most: int) -> Tensor | None:
        return None if config.positions == "none" else _plain(positions(torch.arange(most), most))

    return Embeddings(_plain(side.table.weight), side.scale, table, config.capacity)


def _up(width: int) -> int:
    return -(-width // _ALIGN) * _ALIGN


def _plain(x: Tensor) -> Tensor:
    return x.detach().float().contiguous()


def _filled(x: Tensor, heads: int) -> Tensor:
    """(heads * width, …) with each head filled up with zeros to a whole number of vectors."""
    rows = _plain(x).unflatten(0, (heads, -1))
    width = rows.shape[1]
    return F.pad(rows, (*(0, 0) * (x.dim() - 1), 0, _up(width) - width)).flatten(0, 1).contiguous()
