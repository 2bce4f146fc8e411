"""What models share in PyTorch: their end, the settings of recurrent ones, their size, device and layouts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Protocol, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

import regard.kernels.table  # noqa: F401  (fills the table of compiled kernels that `nn` asks)
from regard.errors import ModelError
from regard.nn.attention.scores import Score
from regard.nn.layers import Map
from regard.nn.positions import Added
from regard.nn.state import Layout, Packed, Padded

from . import FAMILIES
from .choices import Chance, Config, InitRange, Size, TokenWidth, one_of
from .interface import HasParameters, NeedsVocabulary

CellName = Annotated[str, one_of("recurrent.CELLS"), Field(description="the recurrence: elman, gru or lstm")]
RecurrentDropout = Annotated[Chance, Field(description="on embeddings, between layers and before the output")]
RecurrentLayers = Annotated[Size, Field(description="recurrent layers: of a translator, on each side")]
RecurrentWidth = Annotated[Size, Field(description="features of a recurrent layer")]


class RecurrentConfig(Config):
    """Sizes of recurrent layers; the defaults are those of Sutskever et al. 2014 (section 3.4)."""

    cell: CellName = "lstm"
    width: RecurrentWidth = 1000
    embedding: TokenWidth = 1000
    layers: RecurrentLayers = 4
    dropout: RecurrentDropout = 0.0
    init_range: InitRange = 0.08


class RecurrentEncoder(RecurrentConfig):
    """The same, of which the encoder reads in one direction or in both."""

    bidirectional: bool = Field(False, description="the encoder reads in both directions, each with half of the width")
    reverse_source: bool = Field(True, description="the encoder reads the source from its end to its beginning")

    @model_validator(mode="after")
    def _reads(self) -> Self:
        if self.bidirectional and self.width % 2:
            raise ValueError(
                f"width ({self.width}) must be even, half for each direction of the encoder; try {self.width + 1}"
            )
        if self.bidirectional and self.reverse_source:
            raise ValueError("bidirectional reads the source both ways; set reverse_source = false")
        return self

    @property
    def direction(self) -> Literal["forwards", "backwards", "both"]:
        """In which the encoder reads."""
        return "both" if self.bidirectional else "backwards" if self.reverse_source else "forwards"


class Projecting(nn.Module):
    """A model that ends in one linear map, which makes the logits."""

    output: Map

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V)."""
        return self.output(hidden)


def zero_padding(model: nn.Module, pad: int) -> None:
    """Make the vector of the padding zero in every table of the model."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.zeros_(module.weight[pad])


def begin_uniform(model: nn.Module, most: float, pad: int) -> None:
    """Draw all parameters from -`most` to `most`, in their order; the padding's vectors are zero."""
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -most, most)
    zero_padding(model, pad)


def layout_of(kind: str, lengths: Tensor, width: int, tokens: int = 0) -> Layout:
    """The layout of a batch of this kind ("padded" or "packed"): its longest row, and the tokens of a packed one."""
    return Packed(lengths, width, tokens) if kind == "packed" else Padded(lengths, width)


class Vocabulary(Protocol):
    """What a model is told of a side's tokens."""

    def __len__(self) -> int: ...
    def tokens(self, ids: Iterable[int]) -> list[str]: ...


def new_model(config: Any, source: Vocabulary, target: Vocabulary) -> nn.Module:
    """A randomly initialised model of a recipe's [model], for these vocabularies."""
    family = FAMILIES[config.family]
    model: nn.Module = family.build(config, len(source), len(target), 0)  # the id of padding, as everywhere
    if family.needs_vocabulary:
        cast(NeedsVocabulary, model).spell(source.tokens(range(len(source))), target.tokens(range(len(target))))
    return model


def parameter_count(model: nn.Module) -> int:
    """Trained numbers, each shared matrix counted once."""
    return sum(p.numel() for p in model.parameters())


def capacity_of(model: nn.Module) -> int | None:
    """The most tokens that a row may have, where a part of the model has weights for no more; None: any number."""
    parts = (part.capacity for part in model.modules() if isinstance(part, (Added, Score)))
    return min((most for most in parts if most is not None), default=None)


def device_of(model: HasParameters) -> torch.device:
    """Where the model's parameters lie."""
    return next(iter(model.named_parameters()))[1].device


def device_named(name: str) -> torch.device:
    """The device of this name, "auto" being a GPU where there is one; raises ModelError if it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).tolist()  # "meta" has shapes and no numbers
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f'train.device = "{name}", or --device {name}, cannot be used: this machine or build of PyTorch has no '
            f"such device to compute on ({reason}); take auto, cpu, cuda or cuda:N."
        ) from None
    return device
