"""Every part that a Transformer's config can name keeps the laws of models; each is what its paper says."""

from __future__ import annotations

from typing import Any

import pytest
import test_laws_models as laws

from regard.models.transformer import TransformerConfig
from regard.nn import ACTIVATIONS, GATES, NORM_KINDS
from regard.nn.attention import NORMALIZERS, SCORES
from regard.nn.positions import BIASES, TURNS

SMALL: dict[str, Any] = {
    "width": 16,
    "heads": 2,
    "feedforward": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "dropout": 0.0,
    "max_positions": 32,
}

SETTINGS: dict[str, dict[str, Any]] = {
    **{f"score={name}": {"score": name} for name in SCORES if name != "scaled_dot"},
    **{f"normalize={name}": {"normalize": name} for name in NORMALIZERS if name != "softmax"},
    **{f"positions={name}": {"positions": name} for name in (*BIASES, *TURNS)},
    **{f"norm_kind={name}": {"norm_kind": name, "norm": "pre"} for name in NORM_KINDS if name != "layer"},
    **{f"activation={name}": {"activation": name} for name in (*ACTIVATIONS, *GATES) if name != "relu"},
    "positions concatenated": {"positions_enter": "concatenated"},
    "positions in every layer": {"positions_enter": "every-layer", "positions": "learned"},
    "multi-query": {"heads": 4, "key_value_heads": 1},
    "grouped-query": {"heads": 4, "key_value_heads": 2, "positions": "rotary"},
    "key-value split": {"key_value": "split"},
    "attention dropout": {"attention_dropout": 0.1},
}

CONFIGS = {name: TransformerConfig(**{**SMALL, **settings}) for name, settings in SETTINGS.items()}
EVERY = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
BLIND = ("score=location", "score=mean")
"""Their weights do not tell one source piece from another."""


@EVERY
def test_pieces_equal_the_whole(config: TransformerConfig) -> None:
    laws.test_decoding_in_any_split_equals_decoding_at_once(config)
    laws.test_a_selected_state_goes_on_as_its_row_would(config)


@EVERY
def test_padding_neighbours_and_the_future_are_invisible(config: TransformerConfig) -> None:
    laws.test_padded_equals_packed_equals_alone(config)
    laws.test_padding_is_invisible_to_gradients(config)
    laws.test_the_future_is_invisible(config)


@EVERY
def test_the_source_is_seen(config: TransformerConfig) -> None:
    laws.test_the_source_is_seen(config)
