"""The Transformer is the paper's: sizes of Table 3; same weights, same outputs as other implementations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from torch import Tensor, nn

from regard.models.blocks import parameter_count
from regard.models.transformer import TransformerConfig, build

TABLE_3 = {
    "base": ({}, 65),
    "A h=1": ({"heads": 1}, 65),
    "A h=4": ({"heads": 4}, 65),
    "A h=16": ({"heads": 16}, 65),
    "A h=32": ({"heads": 32}, 65),
    "B dk=16": ({"key_width": 16, "value_width": 64}, 58),
    "B dk=32": ({"key_width": 32, "value_width": 64}, 60),
    "C N=2": ({"encoder_layers": 2, "decoder_layers": 2}, 36),
    "C N=4": ({"encoder_layers": 4, "decoder_layers": 4}, 50),
    "C N=8": ({"encoder_layers": 8, "decoder_layers": 8}, 80),
    "C d=256": ({"width": 256, "key_width": 32, "value_width": 32}, 28),
    "C d=1024": ({"width": 1024, "key_width": 128, "value_width": 128}, 168),
    "C ff=1024": ({"feedforward": 1024}, 53),
    "C ff=4096": ({"feedforward": 4096}, 90),
    "D dropout=0": ({"dropout": 0.0}, 65),
    "D dropout=0.2": ({"dropout": 0.2}, 65),
}
BIG = {"width": 1024, "feedforward": 4096, "heads": 16, "dropout": 0.3}


def _millions(settings: dict[str, Any], vocabulary: int) -> float:
    with torch.device("meta"):
        return parameter_count(build(TransformerConfig(**settings), vocabulary, vocabulary)) / 1e6


@pytest.mark.parametrize(("settings", "printed"), TABLE_3.values(), ids=TABLE_3)
def test_parameters_round_to_table_3_with_41000_tokens(settings: dict[str, Any], printed: int) -> None:
    assert round(_millions(settings, 41_000)) == printed


def test_big_rounds_to_the_table_with_36000_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert round(_millions(BIG, 36_000)) == 213
    with capsys.disabled():
        print("\nTable 3 with the paper's nominal 37,000 tokens (millions of parameters: ours, printed, difference):")
        for name, (settings, printed) in {**TABLE_3, "big": (BIG, 213)}.items():
            ours = _millions(settings, 37_000)
            print(f"  {name:14s} {ours:7.2f} {printed:5d} {ours - printed:+6.2f}")


def test_learned_positions_are_row_e() -> None:
    # The paper prints no count for row E; a table of 1,024 places a side is what it adds.
    assert _millions({"positions": "learned"}, 41_000) - _millions({}, 41_000) == pytest.approx(2 * 1024 * 512 / 1e6)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_logits_equal_pytorchs_transformer(norm: str, activation: str) -> None:
    config = TransformerConfig(
        width=32,
        heads=4,
        feedforward=64,
        encoder_layers=2,
        decoder_layers=3,
        dropout=0.0,
        norm=norm,
        activation=activation,
    )
    model: Any = toy.make(config)
    common: dict[str, Any] = {
        "d_model": 32,
        "nhead": 4,
        "dim_feedforward": 64,
        "dropout": 0.0,
        "activation": activation,
        "batch_first": True,
        "norm_first": norm == "pre",
    }
    last = nn.LayerNorm(32) if norm == "pre" else None
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**common), 2, norm=last, enable_nested_tensor=False
    ).eval()
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(**common), 3, norm=nn.LayerNorm(32) if norm == "pre" else None
    ).eval()
    with torch.no_grad():
        for ours, theirs in zip(model.encoder, encoder.layers, strict=True):
            _copy_attention(ours.attention, theirs.self_attn)
            _copy(ours.attention_residual.norm, theirs.norm1)
            _copy_feedforward(ours.feedforward, theirs)
            _copy(ours.feedforward_residual.norm, theirs.norm2)
        for ours, theirs in zip(model.decoder, decoder.layers, strict=True):
            _copy_attention(ours.attention, theirs.self_attn)
            _copy(ours.attention_residual.norm, theirs.norm1)
            _copy_attention(ours.cross, theirs.multihead_attn)
            _copy(ours.cross_residual.norm, theirs.norm2)
            _copy_feedforward(ours.feedforward, theirs)
            _copy(ours.feedforward_residual.norm, theirs.norm3)
        if norm == "pre":
            _copy(model.encoder_norm, encoder.norm)
            _copy(model.decoder_norm, decoder.norm)
        source, reading = toy.padded(toy.SOURCES)
        target, writing = toy.padded(toy.TARGETS)
        hidden, _ = model.decode(target, model.start(model.encode(source, reading), reading), writing)
        hide = source == toy.PAD
        memory = encoder(model.source(source, reading.positions(), reading.width), src_key_padding_mask=hide)
        theirs_hidden = decoder(
            model.target(target, writing.positions(), writing.width),
            memory,
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.shape[1]).isinf(),
            memory_key_padding_mask=hide,
        )
        real = target != toy.PAD
        torch.testing.assert_close(
            model.project(hidden)[real], model.project(theirs_hidden)[real], rtol=1e-5, atol=1e-5
        )


def _copy(ours: nn.Module, theirs: nn.Module) -> None:
    theirs.load_state_dict(ours.state_dict())


def _copy_attention(ours: Any, theirs: Any) -> None:
    parts = (ours.query, ours.key_value)
    theirs.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
    theirs.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
    _copy(ours.output, theirs.out_proj)


def _copy_feedforward(ours: Any, theirs: Any) -> None:
    _copy(ours.inner, theirs.linear1)
    _copy(ours.outer, theirs.linear2)


def test_logits_equal_hugging_face_marians() -> None:
    transformers = pytest.importorskip("transformers", reason="needs the dev extra's transformers")
    config = transformers.MarianConfig(
        vocab_size=20,
        d_model=32,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        dropout=0.0,
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=64,
        pad_token_id=toy.PAD,
        eos_token_id=toy.END,
        bos_token_id=toy.BEGIN,
        decoder_start_token_id=toy.BEGIN,
        forced_eos_token_id=None,
    )
    torch.manual_seed(1)
    theirs = transformers.MarianMTModel(config).eval()
    ours: Any = build(
        TransformerConfig(
            width=32,
            heads=4,
            feedforward=64,
            encoder_layers=2,
            decoder_layers=3,
            activation="silu",
            positions="sinusoidal-halves",
            output_bias=True,
        ),
        20,
        20,
    ).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.requires_grad and parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
        theirs.final_logits_bias.normal_()
        held = theirs.state_dict()
        for name, parameter in ours.named_parameters():
            parts = [name.replace("key_value", part) for part in (("key", "value") if "key_value" in name else ("",))]
            parameter.copy_(torch.cat([held[_marian_name(part)] for part in parts]).view_as(parameter))
        source, reading = toy.padded(toy.SOURCES)
        target, writing = toy.padded(toy.TARGETS)
        hidden, _ = ours.decode(target, ours.start(ours.encode(source, reading), reading), writing)
        want: Tensor = theirs(
            input_ids=source, attention_mask=(source != toy.PAD).long(), decoder_input_ids=target
        ).logits
        real = target != toy.PAD
        torch.testing.assert_close(ours.project(hidden)[real], want[real], rtol=1e-5, atol=1e-5)


def _marian_name(name: str) -> str:
    """What Hugging Face's Marian calls our parameter."""
    if name == "source.table.weight":
        return "model.shared.weight"
    if name == "output.bias":
        return "final_logits_bias"
    side, number, *rest = name.split(".")
    inside = {
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.output": "self_attn.out_proj",
        "cross.query": "encoder_attn.q_proj",
        "cross.key": "encoder_attn.k_proj",
        "cross.value": "encoder_attn.v_proj",
        "cross.output": "encoder_attn.out_proj",
        "attention_residual.norm": "self_attn_layer_norm",
        "cross_residual.norm": "encoder_attn_layer_norm",
        "feedforward.inner": "fc1",
        "feedforward.outer": "fc2",
        "feedforward_residual.norm": "final_layer_norm",
    }
    return f"model.{side}.layers.{number}.{inside['.'.join(rest[:-1])]}.{rest[-1]}"
