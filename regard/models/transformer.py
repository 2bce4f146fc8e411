"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), made of `regard.models.blocks`.

The decoder's blocks look at the memory between their two other sub-layers (figure 1); embeddings are multiplied by
sqrt(D) and have positions added to them (sections 3.4 and 3.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from .choices import SMALL, EncoderDecoderConfig, family_of

if TYPE_CHECKING:
    from .blocks import Transformer


class TransformerConfig(EncoderDecoderConfig):
    """A row of the paper's Table 3, or what came after; the defaults are its base model."""

    family: Literal["transformer"] = Field("transformer", description="the model family")


def build(config: TransformerConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> Transformer:
    """A new, randomly initialised model; the config alone needs no PyTorch, so that is imported here."""
    from .blocks import Transformer

    return Transformer(config, source_vocabulary, target_vocabulary, pad)


FAMILIES = {"transformer": family_of(TransformerConfig, build, SMALL, vectors=True)}
