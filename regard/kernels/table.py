"""Which compiled kernel stands in for which part of `regard.nn`: importing this fills the table that `nn` asks."""

from __future__ import annotations

from regard.nn.layers import STAND_INS, StandIn

from . import native, recurrent, rotary

STAND_INS.update(
    {
        "attention": StandIn(native.attend, native.unavailable, native.refuses),
        "layer_norm": StandIn(native.layer_norm, native.unavailable, native.refuses_norm),
        "rotary": StandIn(rotary.turn, native.unavailable, native.refuses_norm),
        "dropout": StandIn(native.drop_add, native.unavailable, native.refuses),
        "loss": StandIn(native.smoothed, native.unavailable, native.refuses),
        "divergence": StandIn(native.diverging, native.unavailable, native.refuses),
        "linear": StandIn(native.linear, native.linear_unavailable, native.refuses_linear),
        "feedforward": StandIn(native.feedforward, native.linear_unavailable, native.refuses_linear),
        "projected_loss": StandIn(native.projected_loss, native.linear_unavailable, native.refuses_linear),
        "lstm_cell": StandIn(recurrent.lstm_cell, recurrent.unavailable, recurrent.refuses_lstm),
        "gru_cell": StandIn(recurrent.gru_cell, recurrent.unavailable, recurrent.refuses),
        "lstm_layer": StandIn(recurrent.lstm_layer, recurrent.layer_unavailable, recurrent.refuses_layer),
    }
)
