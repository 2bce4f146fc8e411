"""Which models the compiled decoder takes, and a model's weights in the order in which it reads them.

Weights are arrays by their parameters' names, as a bundle has them. PyTorch is not needed. All widths, and the features
of each head, are filled up with zeros to whole vectors of the processor, which change no sum.

Sizes: D width, I inner width of the feed-forward network, E and F widths of all heads' keys and values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from pydantic import BaseModel

from regard.models.choices import PAPER
from regard.models.interface import HasParameters
from regard.models.transformer import TransformerConfig

from . import decoding
from .decoding import Array, Decoder, Embeddings, Numbers, Part, Shape, Tensors, Whole

Weights = Mapping[str, Array]
"""Parameters by name, in float32; a shared matrix under the first of its names."""

Stored = tuple[Array | Whole, Array | None]
"""A matrix, and the scale of each row where it is in whole numbers."""

_FREE = {
    *("width", "encoder_layers", "decoder_layers", "heads", "feedforward", "key_width", "value_width", "norm"),
    *("encoder_heads", "decoder_heads", "cross_heads", "decoder_mixer"),
    *("dropout", "activation_dropout", "attention_dropout", "max_positions", "share", "output_bias"),
}
"""Settings that may have any value; all others must be at their default, or one of `_KNOWN`."""
_KNOWN = {**PAPER, "positions": (*PAPER["positions"], "rotary")}
_ALIGN = 16
_EPSILON = 1e-5
"""Of the norms, as `regard.nn` has it."""


def refuses(config: BaseModel, device: str = "cpu") -> str | None:
    """None if a model of this config on this device can be compiled for decoding, else why not."""
    if device != "cpu":
        return f"it is compiled for CPUs, and the model is on {device}"
    settings = dict(config)
    if settings["family"] != "transformer":
        return f"it knows the transformer, and this model is a {settings['family']}"
    for key, value in settings.items():
        if key not in _FREE and value not in _KNOWN.get(key, (type(config).model_fields[key].default,)):
            return f"it does not know model.{key} = {value!r}"
    return decoding.refusal()


def shapes_of(config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Name and shape of each parameter of a model of this config, which `refuses` accepts."""
    D, widths = config.width, config.widths
    found: dict[str, tuple[int, ...]] = {"source.table.weight": (source_vocabulary, D)}
    if config.share != "all":
        found["target.table.weight"] = (target_vocabulary, D)
    if config.share == "none":
        found["output.weight"] = (target_vocabulary, D)
    if config.output_bias:
        found["output.bias"] = (target_vocabulary,)
    if config.positions == "learned":
        found |= {f"{side}.positions.weight": (config.max_positions, D) for side in ("source", "target")}

    def linear(name: str, outputs: int, inputs: int) -> None:
        found.update({f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)})

    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        norms = [f"{side}_norm"] if config.norm == "pre" else []
        for number in range(layers):
            layer = f"{side}.{number}"
            for part in ("attention", "cross")[: 1 + (side == "decoder")]:
                heads = config.heads_in(side if part == "attention" else part)[number]
                keys, values = (heads * width for width in widths)
                if heads:
                    linear(f"{layer}.{part}.query", keys, D)
                    linear(f"{layer}.{part}.key_value", keys + values, D)
                    linear(f"{layer}.{part}.output", D, values)
                else:
                    linear(f"{layer}.{part}.gates", 2 * D, D)
                norms.append(f"{layer}.{part}_residual.norm")
            linear(f"{layer}.feedforward.inner", config.feedforward, D)
            linear(f"{layer}.feedforward.outer", D, config.feedforward)
            norms.append(f"{layer}.feedforward_residual.norm")
        found |= {f"{norm}.{part}": (D,) for norm in norms for part in ("weight", "bias")}
    return found


def compiled(model: HasParameters, config: TransformerConfig, precision: str) -> Decoder:
    """A model in PyTorch, whose config `refuses` accepts, in one of decoding.PRECISIONS."""
    return packed({name: p.detach().float().numpy() for name, p in model.named_parameters()}, config, precision)


def packed(
    weights: Weights,
    config: TransformerConfig,
    precision: str,
    whole: Callable[[str], tuple[Whole, Array] | None] = lambda name: None,
) -> Decoder:
    """The model of this config, which `refuses` accepts, with these weights, in one of decoding.PRECISIONS.

    In int8, matrices of which `whole` has whole numbers and each row's scale are taken as they are.
    """

    def matrix(name: str) -> Stored:
        return (precision == "int8" and whole(name)) or (weights[name], None)

    def table(name: str) -> Tensors:
        numbers, scale = matrix(name)
        return Tensors(_wide(numbers), None, scale)

    tables = [table(name) for name in ("source.table.weight", "target.table.weight") if name in weights]
    output = table("output.weight") if "output.weight" in weights else tables[-1]
    if config.output_bias:
        output = output._replace(bias=_plain(weights["output.bias"]))
    keys, values = config.widths
    shape = Shape(
        width=_up(config.width),
        heads=config.heads,
        key_width=_up(keys),
        value_width=_up(values),
        inner=_up(config.feedforward),
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        vocabulary=len(output.weight),
        activation=PAPER["activation"].index(config.activation),
        pre_norm=config.norm == "pre",
        features=config.width,
        turned=config.positions == "rotary",
        each=tuple(n for part in ("encoder", "decoder", "cross") for n in config.heads_in(part)),
    )
    scale = math.sqrt(config.width)
    shared = output.weight if precision == "float32" or output.scale is not None else None
    words = [
        Embeddings(None if x is shared else x, len(x), scale, _positions(weights, side, config), config.capacity, each)
        for side, (x, _, each) in (("source", tables[0]), ("target", tables[-1]))
    ]
    first = [output]
    del tables, output, shared  # so that a table that is packed is not held beside it
    return Decoder(shape, precision, _EPSILON, _tensors(weights, matrix, config, first), words)


def _tensors(
    weights: Weights, matrix: Callable[[str], Stored], config: TransformerConfig, first: list[Tensors]
) -> Iterator[Part]:
    """Matrices and norms (True) in the order of decoding.cpp; `first`, the output, is taken out of its list."""
    yield first.pop(), False
    keys = config.widths[0]
    factor = np.float32(keys**-0.5 if config.score == "scaled_dot" else 1.0)

    def linear(name: str) -> Tensors:
        numbers, scale = matrix(f"{name}.weight")
        return Tensors(_wide(numbers), weights[f"{name}.bias"], scale)

    def norm(name: str) -> Tensors:
        return Tensors(weights[f"{name}.weight"], weights[f"{name}.bias"]).each(lambda x: _filled(x, 1))

    def attention(name: str, heads: int, *, apart: bool) -> Iterator[Part]:
        """Queries, keys and values (E + E + F, D), or (E, D) and (E + F, D), and the output (D, F); or 2 D gates."""
        if not heads:
            yield linear(f"{name}.gates").each(lambda x: _filled(x, 2)), False
            yield norm(f"{name}_residual.norm"), True
            return
        queries = linear(f"{name}.query").times(factor).each(lambda x: _filled(x, heads))
        rest = linear(f"{name}.key_value").each(
            lambda x: np.concatenate([_filled(part, heads) for part in np.split(x, [heads * keys])])
        )
        if apart:
            yield queries, False
            yield rest, False
        else:
            yield queries.over(rest), False
        numbers, scale = matrix(f"{name}.output.weight")
        made = Tensors(_filled(numbers.T, heads).T, weights[f"{name}.output.bias"], scale)
        yield made.each(lambda x: _plain(_filled(x, 1))), False
        yield norm(f"{name}_residual.norm"), True

    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(layers):
            layer = f"{side}.{number}"
            yield from attention(f"{layer}.attention", config.heads_in(side)[number], apart=False)
            if side == "decoder":
                yield from attention(f"{layer}.cross", config.heads_in("cross")[number], apart=True)
            for part in ("inner", "outer"):  # (I, D) and (D, I)
                yield linear(f"{layer}.feedforward.{part}").each(lambda x: _filled(x, 1)), False
            yield norm(f"{layer}.feedforward_residual.norm"), True
        if config.norm == "pre":
            yield norm(f"{side}_norm"), True


def _positions(weights: Weights, side: str, config: TransformerConfig) -> Callable[[int], Array | None]:
    """How many are needed -> at least so many; of learned ones there are no more."""
    if config.positions == "learned":
        learned = _wide(weights[f"{side}.positions.weight"])
        return lambda most: learned
    if config.positions == "rotary":
        return lambda most: turns(most, config.widths[0])
    return lambda most: None if config.positions == "none" else _wide(sinusoids(most, config.width, config.positions))


def sinusoids(count: int, width: int, scheme: str) -> Array:
    """The first positions, (count, D), as `regard.nn` makes them: sines and cosines in turn, or all sines first."""
    angles = np.arange(count, dtype=np.float64)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)
    both = np.stack((np.sin(angles), np.cos(angles)), axis=-1 if scheme == "sinusoidal" else 1)
    return both.reshape(count, width).astype(np.float32)


def turns(count: int, width: int) -> Array:
    """What turns pairs of a head's features: cosines, and sines with their signs, each filled up to whole vectors."""
    sines, cosines = np.split(sinusoids(count, width, "sinusoidal-halves"), 2, axis=1)
    signed = np.stack((-sines, sines), axis=-1).reshape(count, width)
    return np.concatenate((_wide(np.repeat(cosines, 2, axis=1)), _wide(signed)), axis=1)


def _up(width: int) -> int:
    return -(-width // _ALIGN) * _ALIGN


def _plain(x: Numbers) -> Numbers:
    return np.ascontiguousarray(x, dtype=x.dtype if x.dtype == np.int8 else np.float32)


def _wide(x: Numbers) -> Numbers:
    """(…, width) filled up with zeros to whole vectors."""
    more = _up(x.shape[-1]) - x.shape[-1]
    return _plain(np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, more)]) if more else x)


def _filled(x: Numbers, heads: int) -> Numbers:
    """(heads * width, …) with each head filled up with zeros to whole vectors."""
    width = len(x) // heads
    if width == _up(width):
        return _plain(x)
    rows = np.zeros((heads, _up(width), *x.shape[1:]), x.dtype)
    rows[:, :width] = x.reshape(heads, width, *x.shape[1:])
    return rows.reshape(-1, *x.shape[1:])
