"""The LSTM network whose memory is a tape, as a language model (Cheng, Dong and Lapata 2016, section 5.1).

Sizes: B rows, T tokens, D width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field
from torch import Tensor

from regard.models.blocks import Projecting, begin_uniform
from regard.models.choices import family_of
from regard.models.interface import check_one_vocabulary
from regard.models.lstmn import SMALL, LSTMNState, Tapes, TapesConfig
from regard.nn.layers import Map
from regard.nn.recurrent import as_laid_out
from regard.nn.state import Layout, Observer, whole


class LSTMNConfig(TapesConfig):
    """Sizes of layers with tapes, one upon the other."""

    family: Literal["lstmn"] = Field("lstmn", description="the model family")


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


FAMILIES = {"lstmn": family_of(LSTMNConfig, LSTMN, SMALL, "language-model", vectors=True)}
