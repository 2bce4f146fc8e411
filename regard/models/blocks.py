"""What models are made of in PyTorch: blocks and stacks of Transformers; and what all share, such as their size.

Sizes: B sentences, S source tokens, T target tokens, H heads, D width, V vocabulary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, Protocol, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

import regard.kernels.table  # noqa: F401  (fills the table of compiled kernels that `nn` asks)
from regard.errors import ModelError
from regard.kernels import native
from regard.machine import free_memory
from regard.nn.attention import NORMALIZERS, Causal, Heads, Lengths, Mask, MultiHead, Score
from regard.nn.layers import GATES, NORM_KINDS, NORMS, FeedForward, GatedFeedForward, Identity, Map, Norm, PostNorm
from regard.nn.positions import POSITIONS, ROTARY, Added, Bias, Embedding, NoPosition, biases
from regard.nn.recurrent import SSRU
from regard.nn.state import KeysValues, Layout, Observer, Packed, Padded, Rows, whole

from . import FAMILIES
from .choices import Chance, Config, EncoderDecoderConfig, InitRange, Size, StackConfig, TokenWidth, one_of
from .interface import HasParameters, NeedsVocabulary


class Block(nn.Module):
    """Self-attention, attention to the memory where there is one, then the feed-forward network (section 3.1).

    In a decoder an SSRU may be in the place of self-attention.
    """

    __call__: Callable[..., tuple[Tensor, Rows | None]]

    def __init__(
        self,
        attention: MultiHead | SSRU,
        feedforward: nn.Module,
        residuals: list[PostNorm],
        cross: MultiHead | None = None,
    ) -> None:
        super().__init__()
        self.attention, self.attention_residual = attention, residuals[0]
        self.cross = cross
        if cross is not None:
            self.cross_residual = residuals[1]
        self.feedforward, self.feedforward_residual = feedforward, residuals[-1]

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        mask: Mask,
        past: Rows | None = None,
        memory: tuple[KeysValues, Mask] | None = None,
        observe: Observer | None = None,
    ) -> tuple[Tensor, Rows | None]:
        """x (…, D) -> (…, D), and what is kept of x for the next tokens, where a past was given."""
        y, past = self.attention.of_itself(self.attention_residual.enter(x, layout), layout, mask, past, observe)
        x = self.attention_residual.add(x, y, layout)
        if self.cross is not None and memory is not None:
            y = self.cross(self.cross_residual.enter(x, layout), layout, *memory, observe, "cross")
            x = self.cross_residual.add(x, y, layout)
        y = self.feedforward(self.feedforward_residual.enter(x, layout))
        return self.feedforward_residual.add(x, y, layout), past


class Projecting(nn.Module):
    """A model that ends in one linear map, which makes the logits."""

    output: Map

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V)."""
        return self.output(hidden)


@dataclass(frozen=True)
class TransformerState(Rows):
    """Per decoder layer the memory's keys and values and those of the target so far, of which `position` are in."""

    memory: tuple[KeysValues, ...]
    memory_lengths: Tensor
    past: tuple[Rows, ...]
    position: int = 0


class Transformer(Projecting):
    """Encoder, decoder and projection."""

    def __init__(
        self, config: EncoderDecoderConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0
    ) -> None:
        """Randomly initialised; both vocabularies must be equal when embeddings are shared by all."""
        super().__init__()
        c, compared = config, config.new_score().prepared
        source_table, target_table, output = shared_tables(c, source_vocabulary, target_vocabulary, pad)
        first = added_of(c)
        second = added_of(c) if any(True for _ in first.parameters()) else first
        source = Embedding(source_table, first, c.dropout, c.positions_enter, scaled=True)
        encoder = _blocks(c, c.encoder_layers, compared, decodes=False)
        target = Embedding(target_table, second, c.dropout, c.positions_enter, scaled=True)
        decoder = _blocks(c, c.decoder_layers, compared, decodes=True)
        self.source, self.target, self.output = source, target, output
        self.encoder, self.decoder = nn.ModuleList(encoder), nn.ModuleList(decoder)
        self.encoder_norm, self.decoder_norm = final_norm(c), final_norm(c)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and name.startswith(("encoder.", "decoder.")):
                nn.init.xavier_uniform_(parameter)
            elif parameter.dim() == 1 and name.endswith("bias"):
                nn.init.zeros_(parameter)

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        positions = layout.positions(), layout.width
        x = self.source(source, *positions)
        mask = Lengths(layout.lengths)
        for i, block in enumerate(self.encoder):
            x, _ = block(self.source.again(x, *positions) if i else x, layout, mask, observe=observe)
        return self.encoder_norm(x, layout)

    def start(self, memory: Tensor, layout: Layout, capacity: int | None = None) -> TransformerState:
        blocks = [*cast("Iterable[Block]", self.decoder)]
        prepared = tuple(block.cross.prepare(memory, layout) for block in blocks if block.cross is not None)
        return TransformerState(prepared, layout.lengths, tuple(b.attention.begin(capacity) for b in blocks))

    def decode(
        self,
        tokens: Tensor,
        state: TransformerState,
        layout: Layout | None = None,
        observe: Observer | None = None,
        *,
        added: Tensor | None = None,
        mask: Mask | None = None,
    ) -> tuple[Tensor, TransformerState]:
        """Target ids (B, T) or (L,) -> hidden (…, D) and the next state; see `EncoderDecoder.decode`.

        `added` (…, D) goes to what is read; `mask` says where the target may look at itself, if not just backwards.
        """
        layout = layout or whole(tokens)
        positions = layout.positions() + state.position, state.position + layout.width
        x = self.target(tokens, *positions)
        x = x if added is None else x + added
        mask = mask or Causal(state.position)
        memory_mask = Lengths(state.memory_lengths)
        past: list[Rows] = []
        for block, cache, memory in zip(self.decoder, state.past, state.memory, strict=True):
            x = self.target.again(x, *positions) if past else x
            x, cache = block(x, layout, mask, cache, (memory, memory_mask), observe)
            past.append(cache)
        hidden = self.decoder_norm(x, layout)
        return hidden, replace(state, past=tuple(past), position=state.position + layout.width)


# -- made of configs ---------------------------------------------------------------------------------------------------


def _blocks(c: EncoderDecoderConfig, layers: int, compared: int, decodes: bool) -> list[Block]:
    """The blocks of a side; `compared` is the width of a head's queries once its score has prepared them."""
    keys, values = c.widths
    whole = Heads(c.width, c.heads, keys, values, c.groups, c.key_value == "split")

    def attention(number: int, positions: str = "", bias: Bias | None = None) -> MultiHead:
        """With what acts inside it of these positions; none act between a sequence and the memory."""
        heads = whole if number == c.heads else replace(whole, number=number, key_value_heads=number)
        score = c.new_score()
        rotary = ROTARY[positions](score.prepared, c.max_positions) if positions in ROTARY else None
        normalize = NORMALIZERS[c.normalize]()
        return MultiHead(heads, score, normalize=normalize, dropout=c.attention_dropout, bias=bias, rotary=rotary)

    made = []
    numbers = c.heads_in("decoder" if decodes else "encoder")
    acting = biases(c.positions if any(numbers) else "none", layers, c.heads, (compared, values), causal=decodes)
    for layer, (bias, number) in enumerate(zip(acting, numbers, strict=True)):
        own = attention(number, c.positions, bias) if number else SSRU(c.width)
        cross = attention(c.heads_in("cross")[layer]) if decodes else None
        inner = feedforward_of(c.width, c.feedforward, c.activation, c.activation_dropout)
        made.append(Block(own, inner, [residual_of(c) for _ in range(2 + decodes)], cross))
    return made


def shared_tables(
    c: EncoderDecoderConfig, source_vocabulary: int, target_vocabulary: int, pad: int
) -> tuple[nn.Embedding, nn.Embedding, Map]:
    """Tables of source and target and the projection, of one matrix as far as `share` says."""
    check_shared(c.share, source_vocabulary, target_vocabulary)
    target = nn.Embedding(target_vocabulary, c.width, padding_idx=pad)
    source = target if c.share == "all" else nn.Embedding(source_vocabulary, c.width, padding_idx=pad)
    for table in dict.fromkeys((source, target)):  # a set would draw in an order that changes from run to run
        nn.init.normal_(table.weight, std=c.width**-0.5)
        nn.init.zeros_(table.weight[pad])
    output = Map(c.width, target_vocabulary, bias=c.output_bias)
    nn.init.normal_(output.weight, std=c.width**-0.5)
    if c.output_bias:
        nn.init.zeros_(output.bias)
    if c.share != "none":
        output.weight = target.weight
    return source, target, output


def check_shared(share: str, source_vocabulary: int, target_vocabulary: int) -> None:
    """Raises ModelError where one matrix is to serve two vocabularies."""
    if share == "all" and source_vocabulary != target_vocabulary:
        raise ModelError(
            f'model.share = "all" needs one vocabulary, but the source has {source_vocabulary} tokens and the target '
            f'{target_vocabulary}; set text.joint = true, or model.share = "target"'
        )


def final_norm(c: StackConfig | EncoderDecoderConfig) -> Norm:
    """What the last block is followed by."""
    return NORM_KINDS[c.norm_kind](c.width) if c.norm == "pre" else Identity()


def added_of(c: StackConfig | EncoderDecoderConfig) -> Added:
    """What is added of positions; what acts inside attention is not."""
    return POSITIONS.get(c.positions, NoPosition)(c.width, c.max_positions)


def residual_of(c: StackConfig | EncoderDecoderConfig) -> PostNorm:
    """What a sub-layer stands in."""
    return NORMS[c.norm](c.width, c.dropout, c.norm_kind)


def feedforward_of(width: int, inner: int, activation: str, dropout: float) -> nn.Module:
    """The network of an activation, or of a gate."""
    return (GatedFeedForward if activation in GATES else FeedForward)(width, inner, activation, dropout)


# -- what families of other kinds share --------------------------------------------------------------------------------

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


def new_model(config: Any, source: Vocabulary | int, target: Vocabulary | int, copies: float = 1) -> nn.Module:
    """A randomly initialised model of a recipe's [model], for these vocabularies or for so many tokens.

    Raises ModelError if its weights, so many times over as `copies` says, are too large for the memory that there is.
    """
    family = FAMILIES[config.family]
    sizes = [of if isinstance(of, int) else len(of) for of in (source, target)]
    build = partial(family.build, config, *sizes, 0)  # the id of padding, as everywhere
    try:
        real = type(here := torch.empty(0)) is Tensor and here.device.type == "cpu"  # a model that will stand in memory
        if real and sys.platform == "linux":  # which promises memory, and ends this process as it is written to
            with torch.device("meta"):
                need, free = 4 * copies * parameter_count(planned := build()) / 2**30, free_memory() / 2**30
            if need > free:
                name, most = max(planned.named_parameters(), key=lambda named: named[1].numel())
                raise MemoryError(f": {need:.1f} GiB where {free:.1f} are free; {name} alone is {tuple(most.shape)}")
        model: nn.Module = build()
    except (MemoryError, RuntimeError) as error:
        if not (is_out_of_memory(error) or "overflow" in str(error)):  # more bytes than can be counted
            raise
        said = error if type(error) is MemoryError else ""
        raise ModelError(f"[model] asks for more memory than there is{said}; choose smaller sizes.") from error
    if family.needs_vocabulary and not (isinstance(source, int) or isinstance(target, int)):
        cast(NeedsVocabulary, model).spell(source.tokens(range(len(source))), target.tokens(range(len(target))))
    return model


@contextmanager
def around_layers(model: nn.Module, run: Callable[..., object]) -> Iterator[None]:
    """Inside, a forward pass of a stack's layer is `run(forward, *arguments, **named)`."""
    stacks = (part for part in model.modules() if isinstance(part, nn.ModuleList))
    layers = dict.fromkeys(layer for stack in stacks for layer in stack)
    if not layers or not all(parameter.requires_grad for parameter in model.parameters()):
        raise ModelError("train.checkpoint_activations needs a stack of layers, and no running averages; leave it out.")
    for layer in layers:
        layer.forward = partial(run, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # what stood before that of its class


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


def resolve_precision(precision: str, device: torch.device, width: int = 512) -> bool:
    """Whether training computes in bfloat16; "auto" says yes where a model of this width is multiplied faster in it."""
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    took = native.map_seconds(width)
    return bool(took) and took["bfloat16"] < took["float32"]


_SAID = ("can't allocate memory", "not enough memory", "out of memory", "cannot allocate memory", "alloc_failed")
"""What PyTorch's allocators and the libraries below them say in a plain RuntimeError."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of a device or of the machine, did not suffice."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error).lower() for said in _SAID)
