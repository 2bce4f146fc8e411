"""Which models the compiled decoder takes, and a model's weights in the order in which it reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor
from torch.nn import functional as F

from regard.models.interface import capacity_of

from . import decoding
from .decoding import Decoder, Shape, Words

__all__ = ["compiled", "refuses"]

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
    heads = config.heads
    key_width, value_width = (w or config.width // heads for w in (config.key_width, config.value_width))
    factor = key_width**-0.5 if config.score == "scaled_dot" else 1.0

    def matrix(linear: Any) -> tuple[Tensor, Tensor | None]:
        return _plain(linear.weight), None if linear.bias is None else _plain(linear.bias)

    def norm(residual: Any) -> tuple[Tensor, Tensor]:
        # A copy, which keeps no file and no other parameter in memory.
        return _plain(residual.weight).clone(), _plain(residual.bias).clone()

    def split(attention: Any) -> tuple[list[tuple[Tensor, Tensor]], tuple[Tensor, Tensor | None]]:
        """Queries, keys and values with heads filled up to whole vectors, and the output that reads such heads."""
        parts = [(attention.query.weight * factor, attention.query.bias * factor)]
        widths = heads * key_width, heads * value_width
        parts += zip(attention.key_value.weight.split(widths), attention.key_value.bias.split(widths), strict=True)
        output = _filled(attention.output.weight.T, heads).T
        return [(_filled(w, heads), _filled(b, heads)) for w, b in parts], (
            _plain(output),
            _plain(attention.output.bias),
        )

    def joined(*parts: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return torch.cat([w for w, _ in parts]).contiguous(), torch.cat([b for _, b in parts]).contiguous()

    def places(side: Any) -> Callable[[int], Tensor | None]:
        positions = side.positions  # alone, for the model may be put aside
        return lambda most: None if config.positions == "none" else _plain(positions(torch.arange(most), most))

    def pairs() -> Iterator[tuple[tuple[Tensor, Tensor | None], bool]]:
        for stack, last in ((model.encoder, model.encoder_norm), (model.decoder, model.decoder_norm)):
            for layer in stack:
                parts, output = split(layer.attention)
                yield joined(*parts), False
                yield output, False
                yield norm(layer.attention_residual.norm), True
                if stack is model.decoder:
                    parts, output = split(layer.cross)
                    yield parts[0], False
                    yield joined(*parts[1:]), False
                    yield output, False
                    yield norm(layer.cross_residual.norm), True
                yield matrix(layer.feedforward.inner), False
                yield matrix(layer.feedforward.outer), False
                yield norm(layer.feedforward_residual.norm), True
            if config.norm == "pre":
                yield norm(last), True
        yield matrix(model.output), False

    with torch.no_grad():
        shape = Shape(
            config.width,
            heads,
            _up(key_width),
            _up(value_width),
            config.feedforward,
            len(model.encoder),
            len(model.decoder),
            len(model.output.weight),
            decoding.ACTIVATIONS.index(config.activation),
            config.norm == "pre",
        )
        sides = [
            Words(_plain(side.table.weight), side.scale, places(side), capacity_of(side))
            for side in (model.source, model.target)
        ]
        epsilon = model.encoder[0].attention_residual.norm.eps
        return Decoder(shape, precision, epsilon, pairs(), (sides[0], sides[1]))


def _up(width: int) -> int:
    return -(-width // _ALIGN) * _ALIGN


def _plain(x: Tensor) -> Tensor:
    return x.detach().float().contiguous()


def _filled(x: Tensor, heads: int) -> Tensor:
    """(heads * width, …) with each head filled up with zeros to a whole number of vectors."""
    rows = _plain(x).unflatten(0, (heads, -1))
    width = rows.shape[1]
    return F.pad(rows, (*(0, 0) * (x.dim() - 1), 0, _up(width) - width)).flatten(0, 1).contiguous()
