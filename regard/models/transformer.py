"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), made of `regard.models.blocks`.

The decoder's blocks look at the memory between their two other sub-layers (figure 1); embeddings are multiplied by
sqrt(D) and have positions added to them (sections 3.4 and 3.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from .choices import PAPER, EncoderDecoderConfig, own_capacity
from .interface import Family

if TYPE_CHECKING:
    from .blocks import Transformer


class TransformerConfig(EncoderDecoderConfig):
    """A row of the paper's Table 3, or what came after; the defaults are its base model."""

    family: Literal["transformer"] = Field("transformer", description="the model family")


def build(config: TransformerConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> Transformer:
    """See `transformer_of`, which is imported when a model is made: the config alone needs no PyTorch."""
    from .blocks import transformer_of

    return transformer_of(config, source_vocabulary, target_vocabulary, pad)


def _shares_parts(config: TransformerConfig) -> bool:
    if config.positions in PAPER["positions"]:
        return False
    from regard.nn.positions import shared_by_layers

    return shared_by_layers(config.positions)


FAMILIES = {
    "transformer": Family(
        TransformerConfig,
        build,
        {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 1},
        cross_attention=lambda config: (config.decoder_layers, config.heads),
        capacity=own_capacity,
        vectors=True,
        shares_parts=_shares_parts,
    )
}
