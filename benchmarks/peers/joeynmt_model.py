"""JoeyNMT's model and loss, driven by the plain loop.

Its own batches by tokens are not sorted by length, so Regard's buckets spare it padding; its own 16-bit setting is
float16 for CUDA, so bfloat16 is tried in its place; fused AdamW stands in for its AdamW. Dropout of attention weights
and inside the feed-forward network is off. Each makes it quicker than it is by itself.
"""

from __future__ import annotations

from typing import Any

from joeynmt.model import build_model
from joeynmt.transformer_layers import MultiHeadedAttention, PositionwiseFeedForward
from joeynmt.vocabulary import Vocabulary
from loop import BEGIN, END, PAD, UNKNOWN, Batch, measure
from torch import Tensor, nn


def vocabulary_of(shape: dict[str, Any]) -> Vocabulary:
    vocabulary = Vocabulary.__new__(Vocabulary)  # its constructor puts <unk> before <pad>
    tokens = ["<pad>", "<unk>", "<s>", "</s>", *map(str, range(shape["vocabulary"] - 4))]
    vocabulary.specials, vocabulary.lang_tags = tokens[:4], []
    vocabulary._itos, vocabulary._stoi = tokens, {token: i for i, token in enumerate(tokens)}
    vocabulary.pad_index, vocabulary.unk_index, vocabulary.bos_index, vocabulary.eos_index = PAD, UNKNOWN, BEGIN, END
    vocabulary.sep_index = None
    return vocabulary


def build(shape: dict[str, Any]) -> Any:
    vocabulary = vocabulary_of(shape)
    side = {
        "type": "transformer",
        "num_layers": shape["layers"],
        "num_heads": shape["heads"],
        "hidden_size": shape["width"],
        "ff_size": shape["feedforward"],
        "dropout": shape["dropout"],
        "layer_norm": "post",
        "embeddings": {"embedding_dim": shape["width"], "scale": True, "dropout": shape["dropout"]},
    }
    config = {"tied_embeddings": True, "tied_softmax": True, "encoder": dict(side), "decoder": dict(side)}
    model = build_model(config, vocabulary, vocabulary)
    model.loss_function = ("crossentropy", shape["smoothing"])
    for module in model.modules():
        if isinstance(module, MultiHeadedAttention):
            module.dropout.p = 0.0
        if isinstance(module, PositionwiseFeedForward):
            inner = next(part for part in module.pwff_layer if isinstance(part, nn.Dropout))
            inner.p = 0.0

    def loss(batch: Batch) -> Tensor:
        return model(
            return_type="loss",
            src=batch.source,
            src_mask=(batch.source != PAD)[:, None],
            src_length=batch.source_lengths,
            trg_input=batch.target_input.masked_fill(batch.target_input == END, PAD),  # as its batches do
            trg=batch.target_output,
            trg_mask=(batch.target_output != PAD)[:, None],
        )[0]

    return model, loss


if __name__ == "__main__":
    measure(build, "joeynmt")
