"""eole's model and loss, driven by the plain loop; dropout of attention weights is off, which is quicker."""

from __future__ import annotations

from typing import Any

from eole.config.models import TransformerModelConfig
from eole.config.training import TrainingConfig
from eole.models.model import EncoderDecoderModel
from eole.utils.loss import LossCompute
from loop import Batch, measure
from torch import Tensor


def build(shape: dict[str, Any]) -> Any:
    names = {"pad_token": "<blank>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    tokens = [*names.values(), *map(str, range(shape["vocabulary"] - 4))]
    table = {token: i for i, token in enumerate(tokens)}
    vocabs = {"src": table, "tgt": table, "specials": names, "decoder_start_token": "<s>"}
    model_config = TransformerModelConfig(
        layers=shape["layers"],
        hidden_size=shape["width"],
        heads=shape["heads"],
        transformer_ff=shape["feedforward"],
        embeddings={"word_vec_size": shape["width"], "position_encoding_type": "SinusoidalInterleaved"},
        share_embeddings=True,
        share_decoder_embeddings=True,
        add_qkvbias=True,
        add_final_linear_bias=True,
        add_ffnbias=True,
    )
    training = TrainingConfig(
        dropout=[shape["dropout"]],
        attention_dropout=[0.0],
        label_smoothing=shape["smoothing"],
        param_init_method="xavier_uniform",
        gpu_ranks=[],
        world_size=1,
    )
    model = EncoderDecoderModel.for_training(model_config, vocabs, training)
    config = type("Config", (), {"model": model_config, "training": training})
    criterion = LossCompute.from_config(config, model, vocabs)

    def loss(batch: Batch) -> Tensor:
        hidden, attentions, _ = model(batch.source, batch.target, batch.source_lengths)
        rows = {"tgt": batch.target, "srclen": batch.source_lengths, "cid": [], "cid_line_number": []}
        return criterion(rows, hidden, attentions)[0]

    return model, loss


if __name__ == "__main__":
    measure(build, "eole")
