"""JoeyNMT's recurrent encoder and decoder and its loss, driven by the plain loop.

`shape` holds `peer`: cell, width, embedding, layers, attention (luong or bahdanau), input_feeding and init_hidden, in
its own words. The encoder reads both ways, each with half of the width, for one way alone is an error in it. Rows are
sorted by length before each batch, as its own iterator does, since its encoder asks for it.
"""

from __future__ import annotations

from typing import Any

from joeynmt.model import build_model
from joeynmt_model import vocabulary_of
from loop import PAD, Batch, measure
from torch import Tensor


def build(shape: dict[str, Any]) -> Any:
    peer, vocabulary = shape["peer"], vocabulary_of(shape)
    side = {
        "type": "recurrent",
        "rnn_type": peer["cell"],
        "num_layers": peer["layers"],
        "dropout": shape["dropout"],
        "embeddings": {"embedding_dim": peer["embedding"], "dropout": shape["dropout"]},
    }
    reader = {**side, "hidden_size": peer["width"] // 2, "bidirectional": True}
    writer = {
        **side,
        "hidden_size": peer["width"],
        "hidden_dropout": shape["dropout"],
        "attention": peer["attention"],
        "input_feeding": peer["input_feeding"],
        "init_hidden": peer["init_hidden"],
    }
    model = build_model({"encoder": reader, "decoder": writer}, vocabulary, vocabulary)
    model.loss_function = ("crossentropy", shape["smoothing"])

    def loss(batch: Batch) -> Tensor:
        order = batch.source_lengths.argsort(descending=True, stable=True)
        source, target = batch.source[order], batch.target[order]
        return model(
            return_type="loss",
            src=source,
            src_mask=(source != PAD)[:, None],
            src_length=batch.source_lengths[order],
            trg_input=target[:, :-1],
            trg=target[:, 1:],
            trg_mask=(target[:, 1:] != PAD)[:, None],
        )[0]

    return model, loss


if __name__ == "__main__":
    measure(build, "joeynmt")
