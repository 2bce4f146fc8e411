"""A translator with corrections, beside the one without: what they share is shared. No PyTorch here."""

from __future__ import annotations

import threading

import numpy as np

from regard.bundle import Bundle
from regard.engine.decoding import Array, Decoder, Tensors
from regard.errors import ModelError
from regard.tasks.engine import Engine
from regard.tasks.translate import Translator

from .file import AdaptedBundle, Adapter, adapted


def place_of(bundle: Bundle) -> str:
    """The matrix that corrections change: the last of the decoder's last feed-forward network.

    Raises ModelError for a model that has none such.
    """
    config = bundle.recipe.model.model_dump()
    if config["family"] != "transformer" or config["activation"] not in ("relu", "gelu", "silu"):
        raise ModelError(
            f"{bundle.path}: single corrections are learnt by Transformers with a plain feed-forward network, and this "
            f"is a {config['family']} (activation {config.get('activation')}); `regard adapt` learns from many pairs."
        )
    return f"decoder.{config['decoder_layers'] - 1}.feedforward.outer.weight"


class _Corrected(Engine):
    """Another's decoders with one matrix in the place of theirs; the rest of the memory is shared."""

    def __init__(self, base: Engine, translator: Translator, bundle: AdaptedBundle, outer: tuple[Array, Array]) -> None:
        super().__init__(translator.recipe, bundle, None, base.device)
        self._base, self._outer, self._made = base, outer, dict[str, Decoder]()
        self._making = threading.Lock()

    def decoder(self, precision: str) -> Decoder:
        """See `Engine.decoder`."""
        base = self._base.decoder(precision)
        with self._making:
            if base.precision not in self._made:
                self._made[base.precision] = _replaced(base, *self._outer)
            return self._made[base.precision]


def _replaced(decoder: Decoder, weight: Array, bias: Array) -> Decoder:
    shape = decoder.shape
    wide = np.zeros((shape.width, shape.inner), np.float32)
    wide[: weight.shape[0], : weight.shape[1]] = weight
    ends = np.zeros(shape.width, np.float32)
    ends[: len(bias)] = bias
    # Behind it come the norm of its residual and, with pre-norm, that of the decoder.
    return decoder.with_matrix(-2 - shape.pre_norm, Tensors(wide, ends))


def corrected(base: Translator, changes: Adapter | None) -> Translator:
    """A translator with these changes of its bundle's weights, beside `base`; itself, where there are none.

    Changes of the matrix of `place_of` alone take milliseconds where the compiled decoder is used: it shares all else
    with that of `base`, which stays as it is.
    """
    if changes is None:
        return base
    assert base.bundle is not None
    bundle = adapted(base.bundle, changes)
    made = Translator(None, base.recipe, base.source, base.target, bundle, base.engine.device)
    name = place_of(base.bundle)
    if changes.names == [name] and base.engine.refusal() is None:
        weights = bundle.changed_weights()
        bias = name.removesuffix("weight") + "bias"
        made.engine = _Corrected(base.engine, base, bundle, (weights[name], weights[bias]))
    return made
