"""The LSTM network whose memory is a tape (Cheng, Dong and Lapata 2016): a language model, and an encoder-decoder.

Sizes: B rows, T tokens, S tokens on the tape or of the source, E width of embeddings, D width, A of a score, V words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.attention import NORMALIZERS, SCORES, LuongAttention, mix, weigh
from regard.nn.layers import Dropout, Map
from regard.nn.positions import look_up
from regard.nn.recurrent import Carry, as_columns, as_laid_out, lstm_cell
from regard.nn.state import KeysValues, Layout, Observer, Part, Rows, in_rows, show, wanted, whole

from .blocks import Projecting, RecurrentDropout, begin_uniform
from .choices import Config, InitRange, NormalizerName, ScoreName, Size, TokenWidth, family_of
from .interface import check_one_vocabulary


class TapesConfig(Config):
    """Sizes of layers with tapes; the defaults are the paper's for the Penn Treebank (section 5.1)."""

    width: Size = Field(300, description="features of a layer")
    embedding: TokenWidth = 150
    layers: Size = Field(1, description="layers, each with a tape")
    tape: bool = Field(True, description="false: only the last position is seen, which makes a layer a plain LSTM")
    score_width: Size = Field(300, description="features that a position of the tape is compared by")
    dropout: RecurrentDropout = 0.0
    init_range: InitRange = 0.1


class LSTMNConfig(TapesConfig):
    """A language model."""

    family: Literal["lstmn"] = Field("lstmn", description="the model family")


class LSTMNTranslatorConfig(TapesConfig):
    """An encoder and a decoder of such layers; the decoder looks at the source's top states ("shallow fusion")."""

    looks: ClassVar[tuple[int, int]] = (1, 1)
    family: Literal["lstmn-translator"] = Field("lstmn-translator", description="the model family")
    score: ScoreName = "additive"
    normalize: NormalizerName = "softmax"


@dataclass(frozen=True)
class Written(Rows):
    """What is on a layer's tape: keys (B, S, A), hidden (B, S, D) and cells (B, S, D); and what was last read off it,
    (B, D)."""

    keys: tuple[Tensor, ...] = ()
    hidden: tuple[Tensor, ...] = ()
    cells: tuple[Tensor, ...] = ()
    read: Tensor | None = None


class Tape(nn.Module):
    """An LSTM layer that keeps every hidden state and cell, and goes on from a mean of them (section 3, figure 3).

    At position t, the positions i < t have the scores v · tanh(W_h h_i + W_x x_t + W_r r_{t-1}) (equation 4). The
    softmax of the scores mixes the hidden states, and the cells likewise (equation 6); an LSTM step continues from
    both mixtures (equations 7 to 9). Without a tape all the weight is on the position before.
    """

    __call__: Callable[..., tuple[Tensor, Written]]

    def __init__(self, inputs: int, width: int, score_width: int, tape: bool, part: Part = "decoder") -> None:
        super().__init__()
        self.width, self.tape, self.part = width, tape, part
        self.input = Map(inputs, 4 * width)
        self.hidden = Map(width, 4 * width, bias=False)
        if tape:
            self.key = Map(width, score_width, bias=False)
            self.query = Map(inputs, score_width)
            self.again = Map(width, score_width, bias=False)
            self.score = nn.Parameter(torch.empty(score_width))

    def forward(self, x: Tensor, written: Written, observe: Observer | None) -> tuple[Tensor, Written]:
        """x (T, B, I) -> hidden (T, B, D) and the tape; `observe` may have the weights (B, 1, T, S)."""
        given = self.input(x)
        asked = self.query(x) if self.tape else None
        keys, hidden, cells = list(written.keys), list(written.hidden), list(written.cells)
        read, before = written.read, len(hidden)
        rows: list[Tensor] = []
        for t, sums in enumerate(given.unbind(0)):
            if not hidden:  # nothing to look at gives zeros
                read = sums.new_zeros(len(sums), self.width)
                cell = read.to(torch.promote_types(read.dtype, torch.float32))
                weights = cell[:, :0]
            elif asked is None:
                read, cell = hidden[-1], cells[-1]
                weights = F.one_hot(torch.tensor(len(hidden) - 1)).to(cell).expand(len(cell), -1)
            else:
                again = self.again(read) if read is not None else 0.0
                query = (asked[t] + again)[:, None]
                scores = (torch.stack(keys, 1) + query).tanh() @ self.score  # (B, S)
                weights = weigh(scores.to(cells[0].dtype))
                read = mix(weights.to(sums.dtype)[:, None], torch.stack(hidden, 1))[:, 0]
                cell = mix(weights[:, None], torch.stack(cells, 1))[:, 0]
            h, c = lstm_cell(sums + self.hidden(read), cell)
            if self.tape:
                keys.append(self.key(h))
            hidden.append(h)
            cells.append(c)
            rows.append(weights)
        if wanted(observe, self.part):
            show(observe, self.part, torch.stack([F.pad(w, (0, len(hidden) - w.shape[1])) for w in rows], 1)[:, None])
        return torch.stack(hidden[before:]), Written(tuple(keys), tuple(hidden), tuple(cells), read)


class Tapes(nn.Module):
    """Embeddings and layers with tapes, one upon the other."""

    __call__: Callable[..., tuple[Tensor, tuple[Written, ...]]]

    def __init__(self, c: TapesConfig, vocabulary: int, pad: int, part: Part = "decoder") -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, c.embedding, padding_idx=pad)
        self.layers = nn.ModuleList(
            Tape(c.width if i else c.embedding, c.width, c.score_width, c.tape, part) for i in range(c.layers)
        )
        self.dropout = Dropout(c.dropout)

    def forward(
        self, ids: Tensor, tapes: tuple[Written, ...], layout: Layout, observe: Observer | None
    ) -> tuple[Tensor, tuple[Written, ...]]:
        """Ids (B, T) or (L,) -> hidden of the last layer (T, B, D), and the tapes."""
        x, after = self.dropout(look_up(as_columns(ids, layout), self.table)), []
        for layer, written in zip(self.layers, tapes or (Written(),) * len(self.layers), strict=True):
            x, written = layer(x, written, observe)
            x = self.dropout(x)
            after.append(written)
        return x, tuple(after)


@dataclass(frozen=True)
class LSTMNState(Rows):
    """Each layer's tape; of a translator also the memory."""

    tapes: tuple[Written, ...] = ()
    memory: KeysValues | None = None
    lengths: Tensor | None = None


class LSTMN(Projecting):
    """The language model."""

    def __init__(self, config: LSTMNConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        """Randomly initialised; there is one side, so both vocabularies are one."""
        super().__init__()
        check_one_vocabulary(source_vocabulary, target_vocabulary)
        self.decoder = Tapes(config, target_vocabulary, pad)
        self.output = Map(config.width, target_vocabulary)
        begin_uniform(self, config.init_range, pad)

    def start(self, capacity: int | None = None) -> LSTMNState:
        return LSTMNState()

    def decode(
        self, tokens: Tensor, state: LSTMNState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, LSTMNState]:
        layout = layout or whole(tokens)
        x, tapes = self.decoder(tokens, state.tapes, layout, observe)
        return as_laid_out(x, layout), replace(state, tapes=tapes)


class LSTMNMemory(NamedTuple):
    """The encoder's top states (B, S, D), and of each layer hidden and cells at the source's end."""

    states: Tensor
    ends: tuple[Carry, ...]


class LSTMNTranslator(Projecting):
    """Encoder, decoder with attention above it and projection."""

    def __init__(
        self, config: LSTMNTranslatorConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0
    ) -> None:
        super().__init__()
        c = config
        self.encoder = Tapes(c, source_vocabulary, pad, "encoder")
        self.decoder = Tapes(c, target_vocabulary, pad)
        score = SCORES[c.score](c.width, c.width, c.score_width)
        self.attention = LuongAttention(c.width, score, "global", 0, NORMALIZERS[c.normalize]())
        self.output = Map(c.width, target_vocabulary)
        begin_uniform(self, c.init_range, pad)

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> LSTMNMemory:
        """Source ids (B, S) or (L,) -> the memory."""
        x, tapes = self.encoder(source, (), layout, observe)
        last = (layout.lengths - 1).clamp(min=0)
        rows = torch.arange(len(last), device=last.device)

        def end(tape: tuple[Tensor, ...]) -> Tensor:
            return torch.stack(tape)[last, rows]

        return LSTMNMemory(x.transpose(0, 1), tuple((end(t.hidden), end(t.cells)) for t in tapes))

    def start(self, memory: LSTMNMemory, layout: Layout, capacity: int | None = None) -> LSTMNState:
        # The first thing on a layer's tape is where the encoder's ended.
        tapes = tuple(
            Written((layer.key(h),) if layer.tape else (), (h,), (c,))
            for layer, (h, c) in zip(cast("Iterable[Tape]", self.decoder.layers), memory.ends, strict=True)
        )
        return LSTMNState(tapes, self.attention.prepare(memory.states), layout.lengths)

    def decode(
        self, tokens: Tensor, state: LSTMNState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, LSTMNState]:
        layout = layout or whole(tokens)
        x, tapes = self.decoder(tokens, state.tapes, layout, None)
        assert state.memory is not None
        inside = in_rows(layout).inside()
        x, weights = self.attention(x.transpose(0, 1), state.memory, state.lengths, 0, inside, observe)
        show(observe, "cross", weights)
        return as_laid_out(x.transpose(0, 1), layout), replace(state, tapes=tapes)


_SMALL = {"width": 16, "embedding": 12, "score_width": 8}
FAMILIES = {
    "lstmn": family_of(LSTMNConfig, LSTMN, _SMALL, "language-model", vectors=True),
    "lstmn-translator": family_of(LSTMNTranslatorConfig, LSTMNTranslator, _SMALL),
}
