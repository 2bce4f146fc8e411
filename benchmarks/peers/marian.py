"""Hugging Face's MarianMTModel in a plain loop; dropout only where the paper has it, which is quicker."""

from __future__ import annotations

from typing import Any

from loop import BEGIN, END, PAD, Batch, measure
from torch import Tensor
from torch.nn import functional as F
from transformers import MarianConfig, MarianMTModel


def build(shape: dict[str, Any]) -> Any:
    model = MarianMTModel(
        MarianConfig(
            vocab_size=shape["vocabulary"],
            d_model=shape["width"],
            encoder_layers=shape["layers"],
            decoder_layers=shape["layers"],
            encoder_attention_heads=shape["heads"],
            decoder_attention_heads=shape["heads"],
            encoder_ffn_dim=shape["feedforward"],
            decoder_ffn_dim=shape["feedforward"],
            dropout=shape["dropout"],
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            share_encoder_decoder_embeddings=True,
            tie_word_embeddings=True,
            use_cache=False,
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=BEGIN,
        )
    )

    def loss(batch: Batch) -> Tensor:
        logits = model(
            input_ids=batch.source, attention_mask=batch.source != PAD, decoder_input_ids=batch.target_input
        ).logits
        targets = batch.target_output.flatten()
        return F.cross_entropy(
            logits.flatten(0, 1), targets, ignore_index=PAD, label_smoothing=shape["smoothing"], reduction="sum"
        )

    return model, loss


if __name__ == "__main__":
    measure(build, "transformers")
