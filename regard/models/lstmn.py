"""The LSTM network whose memory is a tape (Cheng, Dong and Lapata 2016): a language model, and an encoder-decoder.

Sizes: B rows, T tokens, S tokens on the tape or of the source, E width of embeddings, D width, A width of a score, V
vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from regard.nn import Dropout, KeysValues, Layout, Padded, Part, look_up, wanted, whole
from regard.nn.attention import NORMALIZERS, SCORES, LuongAttention, mix, weigh
from regard.nn.recurrent import Carry, as_columns, as_laid_out, lstm_cell

from ..nn.state import Observer
from .choices import NormalizerName, ScoreName, capacity, listed
from .interface import Family, check_one_vocabulary


class LSTMNConfig(BaseModel):
    """Sizes of the language model; the defaults are the paper's for the Penn Treebank (section 5.1)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Literal["lstmn"] = Field("lstmn", description="the model family")
    width: int = Field(300, gt=0, description="features of a layer")
    embedding: int = Field(150, gt=0, description="features of a token")
    layers: int = Field(1, gt=0, description="layers, each with a tape")
    tape: bool = Field(True, description="false: only the last position is seen, which makes a layer a plain LSTM")
    score_width: int = Field(300, gt=0, description="features that a position of the tape is compared by")
    dropout: float = Field(0.0, ge=0, lt=1, description="on embeddings, between layers and before the output")
    init_range: float = Field(0.1, gt=0, description="weights begin uniform between minus this and this")


class LSTMNTranslatorConfig(LSTMNConfig):
    """An encoder and a decoder of such layers; the decoder looks at the source's top states ("shallow fusion")."""

    family: Literal["lstmn-translator"] = Field("lstmn-translator", description="the model family")  # type: ignore[assignment]  # each family has its own name
    score: ScoreName = Field("additive", description=f"how the decoder's states look: {listed(*SCORES)}")
    normalize: NormalizerName = Field("softmax", description=f"how scores become weights: {listed(*NORMALIZERS)}")


def build(config: LSTMNConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> LSTMN:
    """A new, randomly initialised language model; there is one side, so both vocabularies are one."""
    check_one_vocabulary(source_vocabulary, target_vocabulary)
    model = LSTMN(_tapes(config, target_vocabulary, pad), nn.Linear(config.width, target_vocabulary))
    _begin(model, config, pad)
    return model


def build_translator(
    config: LSTMNTranslatorConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0
) -> LSTMNTranslator:
    """A new, randomly initialised encoder-decoder."""
    c = config
    model = LSTMNTranslator(
        _tapes(c, source_vocabulary, pad, "encoder"),
        _tapes(c, target_vocabulary, pad),
        LuongAttention(
            c.width, SCORES[c.score](c.width, c.width, c.score_width), "global", 0, NORMALIZERS[c.normalize]()
        ),
        nn.Linear(c.width, target_vocabulary),
    )
    _begin(model, c, pad)
    return model


def _tapes(c: LSTMNConfig, vocabulary: int, pad: int, part: Part = "decoder") -> Tapes:
    layers = [Tape(c.width if i else c.embedding, c.width, c.score_width, c.tape, part) for i in range(c.layers)]
    return Tapes(nn.Embedding(vocabulary, c.embedding, padding_idx=pad), layers, c.dropout)


def _begin(model: nn.Module, c: LSTMNConfig, pad: int) -> None:
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -c.init_range, c.init_range)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.zeros_(module.weight[pad])


@dataclass(frozen=True)
class Written:
    """What is on a layer's tape: keys (B, S, A), hidden (B, S, D) and cells (B, S, D); and what was last read off it,
    (B, D)."""

    keys: tuple[Tensor, ...] = ()
    hidden: tuple[Tensor, ...] = ()
    cells: tuple[Tensor, ...] = ()
    read: Tensor | None = None

    def select(self, rows: Tensor) -> Written:
        keys, hidden, cells = (
            tuple(x.index_select(0, rows) for x in tape) for tape in (self.keys, self.hidden, self.cells)
        )
        return Written(keys, hidden, cells, None if self.read is None else self.read.index_select(0, rows))


class Tape(nn.Module):
    """An LSTM layer that keeps every hidden state and cell, and goes on from a mean of them (section 3, figure 3).

    At position t, the positions i < t have the scores v · tanh(W_h h_i + W_x x_t + W_r r_{t-1}) (equation 4). The
    softmax of the scores mixes the hidden states, and the cells likewise (equation 6); an LSTM step continues from
    both mixtures (equations 7 to 9). Without a tape all the weight is on the position before.
    """

    def __init__(self, inputs: int, width: int, score_width: int, tape: bool, part: Part = "decoder") -> None:
        super().__init__()
        self.width, self.tape, self.part = width, tape, part
        self.input = nn.Linear(inputs, 4 * width)
        self.hidden = nn.Linear(width, 4 * width, bias=False)
        if tape:
            self.key = nn.Linear(width, score_width, bias=False)
            self.query = nn.Linear(inputs, score_width)
            self.again = nn.Linear(width, score_width, bias=False)
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
                weights = nn.functional.one_hot(torch.tensor(len(hidden) - 1)).to(cell).expand(len(cell), -1)
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
        if observe is not None and wanted(observe, self.part):
            width = len(hidden)
            observe.weights[self.part].append(
                torch.stack([nn.functional.pad(w, (0, width - w.shape[1])) for w in rows], 1)[:, None]
            )
        outputs = torch.stack(hidden[before:])
        return outputs, Written(tuple(keys), tuple(hidden), tuple(cells), read)


class Tapes(nn.Module):
    """Embeddings and layers with tapes, one upon the other."""

    def __init__(self, table: nn.Embedding, layers: list[Tape], dropout: float) -> None:
        super().__init__()
        self.table, self.layers, self.dropout = table, nn.ModuleList(layers), Dropout(dropout)

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
class LSTMNState:
    """Each layer's tape; of a translator also the memory."""

    tapes: tuple[Written, ...] = ()
    memory: KeysValues | None = None
    lengths: Tensor | None = None

    def select(self, rows: Tensor) -> LSTMNState:
        return LSTMNState(
            tuple(tape.select(rows) for tape in self.tapes),
            None if self.memory is None else self.memory.select(rows),
            None if self.lengths is None else self.lengths.index_select(0, rows),
        )


class LSTMN(nn.Module):
    """The language model; made by `build`."""

    def __init__(self, decoder: Tapes, output: nn.Linear) -> None:
        super().__init__()
        self.decoder, self.output = decoder, output

    def start(self, capacity: int | None = None) -> LSTMNState:
        """The state before the first token: empty tapes, which grow, whatever the capacity."""
        return LSTMNState()

    def decode(
        self, tokens: Tensor, state: LSTMNState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, LSTMNState]:
        """Ids (B, T) or (L,) -> hidden (…, D) and the next state."""
        layout = layout or whole(tokens)
        x, tapes = self.decoder(tokens, state.tapes, layout, observe)
        return as_laid_out(x, layout), replace(state, tapes=tapes)

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V) of the next token."""
        logits: Tensor = self.output(hidden)
        return logits


@dataclass(frozen=True)
class LSTMNMemory:
    """The encoder's top states (B, S, D), and of each layer hidden and cells at the source's end."""

    states: Tensor
    ends: tuple[Carry, ...]


class LSTMNTranslator(nn.Module):
    """Encoder, decoder with attention above it and projection; made by `build_translator`."""

    def __init__(self, encoder: Tapes, decoder: Tapes, attention: LuongAttention, output: nn.Linear) -> None:
        super().__init__()
        self.encoder, self.decoder, self.attention, self.output = encoder, decoder, attention, output

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> LSTMNMemory:
        """Source ids (B, S) or (L,) -> the memory."""
        x, tapes = self.encoder(source, (), layout, observe)
        last = (layout.lengths - 1).clamp(min=0)
        rows = torch.arange(len(last), device=last.device)

        def end(tape: tuple[Tensor, ...]) -> Tensor:
            return torch.stack(tape)[last, rows]

        return LSTMNMemory(x.transpose(0, 1), tuple((end(t.hidden), end(t.cells)) for t in tapes))

    def start(self, memory: LSTMNMemory, layout: Layout, capacity: int | None = None) -> LSTMNState:
        """The state before the first token: the first thing on a layer's tape is where the encoder's ended."""
        values = memory.states[:, None].contiguous()  # (B, 1, S, D)
        layers: Any = self.decoder.layers
        tapes = tuple(
            Written((layer.key(h),) if layer.tape else (), (h,), (c,))
            for layer, (h, c) in zip(layers, memory.ends, strict=True)
        )
        return LSTMNState(tapes, KeysValues(self.attention.score.keys(values), values), layout.lengths)

    def decode(
        self, tokens: Tensor, state: LSTMNState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, LSTMNState]:
        """Target ids (B, T) or (L,) -> hidden (…, D) and the next state."""
        layout = layout or whole(tokens)
        x, tapes = self.decoder(tokens, state.tapes, layout, None)
        assert state.memory is not None
        inside = Padded(layout.lengths, layout.width).inside()
        x, weights = self.attention(x.transpose(0, 1), state.memory, state.lengths, 0, inside, observe)
        if observe is not None and wanted(observe, "cross"):
            observe.weights["cross"].append(weights)
        return as_laid_out(x.transpose(0, 1), layout), replace(state, tapes=tapes)

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V)."""
        logits: Tensor = self.output(hidden)
        return logits


_SMALL = {"width": 16, "embedding": 12, "score_width": 8}
FAMILIES = {
    "lstmn": Family(LSTMNConfig, build, _SMALL, "language-model", vectors=True),
    "lstmn-translator": Family(
        LSTMNTranslatorConfig,
        build_translator,
        _SMALL,
        cross_attention=lambda config: (1, 1),
        capacity=lambda config: capacity(config.score, config.score_width),
    ),
}
