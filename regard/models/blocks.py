"""What the Transformer families are made of: blocks of attention and feed-forward networks, and two stacks of them.

Sizes: B sentences, S source tokens, T target tokens, H heads, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import cast

from torch import Tensor, nn

from regard.nn.attention import NORMALIZERS, SCORES, Causal, Heads, Lengths, Mask, MultiHead
from regard.nn.layers import GATES, NORM_KINDS, NORMS, FeedForward, GatedFeedForward, Identity, Map, Norm, PostNorm
from regard.nn.positions import POSITIONS, ROTARY, Added, Bias, Embedding, NoPosition, biases
from regard.nn.state import Cache, KeysValues, Layout, Observer, Rows, whole

from .choices import EncoderDecoderConfig, StackConfig, check_shared
from .modules import Projecting, zero_padding


class Block(nn.Module):
    """Self-attention, attention to the memory where there is one, then the feed-forward network (section 3.1)."""

    __call__: Callable[..., tuple[Tensor, Cache | None]]

    def __init__(
        self, attention: MultiHead, feedforward: nn.Module, residuals: list[PostNorm], cross: MultiHead | None = None
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
        past: Cache | None = None,
        memory: tuple[KeysValues, Mask] | None = None,
        observe: Observer | None = None,
    ) -> tuple[Tensor, Cache | None]:
        """x (…, D) -> (…, D), and what is kept of x for the next tokens, where a past was given."""
        y, past = self.attention.of_itself(self.attention_residual.enter(x, layout), layout, mask, past, observe)
        x = self.attention_residual.add(x, y, layout)
        if self.cross is not None and memory is not None:
            y = self.cross(self.cross_residual.enter(x, layout), layout, *memory, observe, "cross")
            x = self.cross_residual.add(x, y, layout)
        y = self.feedforward(self.feedforward_residual.enter(x, layout))
        return self.feedforward_residual.add(x, y, layout), past


@dataclass(frozen=True)
class TransformerState(Rows):
    """Per decoder layer the memory's keys and values and those of the target so far, of which `position` are in."""

    memory: tuple[KeysValues, ...]
    memory_lengths: Tensor
    past: tuple[Cache, ...]
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
        first = _added(c)
        second = _added(c) if any(True for _ in first.parameters()) else first
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
        looks = [block.cross for block in cast("Iterable[Block]", self.decoder)]
        prepared = tuple(cross.prepare(memory, layout) for cross in looks if cross is not None)
        return TransformerState(prepared, layout.lengths, tuple(Cache(capacity=capacity) for _ in prepared))

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
        past: list[Cache] = []
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
    acting = biases(c.positions, layers, c.heads, (compared, values), causal=decodes)
    numbers = c.heads_in("decoder" if decodes else "encoder")
    for layer, (bias, number) in enumerate(zip(acting, numbers, strict=True)):
        own = attention(number, c.positions, bias)
        cross = attention(c.heads_in("cross")[layer]) if decodes else None
        inner = _feedforward(c.width, c.feedforward, c.activation, c.activation_dropout)
        made.append(Block(own, inner, [_residual(c) for _ in range(2 + decodes)], cross))
    return made


def stack_of(c: StackConfig, causal: bool) -> nn.ModuleList:
    """The blocks of a stack, each with what acts inside it of the positions."""
    head = c.width // c.heads
    heads = Heads(c.width, c.heads, head, head, c.key_value_heads)
    blocks = []
    for bias in biases(c.positions, c.layers, c.heads, (head, head), causal):
        rotary = ROTARY[c.positions](head, c.max_positions) if c.positions in ROTARY else None
        score = SCORES["scaled_dot"](head)
        attention = MultiHead(heads, score, dropout=c.attention_dropout, bias=bias, rotary=rotary)
        inner = _feedforward(c.width, c.feedforward or 4 * c.width, c.activation, 0.0)
        blocks.append(Block(attention, inner, [_residual(c), _residual(c)]))
    return nn.ModuleList(blocks)


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


def embedding_of(c: StackConfig, table: nn.Embedding) -> Embedding:
    """The tokens' table and what is added of their positions."""
    return Embedding(table, _added(c), c.dropout)


def final_norm(c: StackConfig | EncoderDecoderConfig) -> Norm:
    """What the last block is followed by."""
    return NORM_KINDS[c.norm_kind](c.width) if c.norm == "pre" else Identity()


def initialise(model: nn.Module, layers: int, pad: int) -> None:
    """Matrices from N(0, 0.02²), those that end a residual branch smaller by the root of their number; biases 0."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            ends = name.endswith(("attention.output.weight", "feedforward.outer.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if ends else 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    zero_padding(model, pad)


def _added(c: StackConfig | EncoderDecoderConfig) -> Added:
    """What is added of positions; what acts inside attention is not."""
    return POSITIONS.get(c.positions, NoPosition)(c.width, c.max_positions)


def _residual(c: StackConfig | EncoderDecoderConfig) -> PostNorm:
    """What a sub-layer stands in."""
    return NORMS[c.norm](c.width, c.dropout, c.norm_kind)


def _feedforward(width: int, inner: int, activation: str, dropout: float) -> nn.Module:
    return (GatedFeedForward if activation in GATES else FeedForward)(width, inner, activation, dropout)
