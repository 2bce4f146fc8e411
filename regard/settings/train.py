"""The training part of a recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["TrainConfig"]


class TrainConfig(BaseModel):
    """How weights are found; the defaults follow the paper (sections 5.3 and 5.4)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    objective: Literal["", "translate", "fill", "denoise", "continue", "mask", "classify"] = Field(
        "",
        description="what is learnt: translate pairs, fill (translate at masked places), denoise (mend gaps in text), "
        "continue text, mask (fill in text) or classify; empty: what the model's family and the data are for",
    )
    start_from: str = Field(
        "",
        description="a bundle whose vocabularies are used, and its parameters of the same names and shapes begun with",
    )
    max_updates: int = Field(100_000, gt=0, description="optimiser updates in all")
    epochs: int = Field(0, ge=0, description="stop after this many epochs even if updates are left; 0: no limit")
    minutes: float = Field(
        0.0,
        ge=0,
        description="stop by the clock after so many minutes of batches and updates (no validating, no saving), the "
        "schedule ending there; not reproducible bit for bit; 0: no limit",
    )
    accumulate: int = Field(1, gt=0, description="batches whose gradients are summed for one update")
    schedule: Literal["paper", "inverse-sqrt", "cosine", "linear", "constant", "plateau"] = Field(
        "paper", description="learning rate over time: paper, inverse-sqrt, cosine, linear, constant or plateau"
    )
    learning_rate: float = Field(
        1.0, gt=0, description="peak learning rate; with the paper's schedule a factor, 1 in the paper"
    )
    warmup: int = Field(4000, ge=0, description="updates of linear warm-up")
    plateau_factor: float = Field(0.5, gt=0, lt=1, description="plateau: what the rate is multiplied by")
    plateau_patience: int = Field(3, ge=0, description="plateau: validations without gain before that")
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's beta 1")
    beta2: float = Field(0.98, ge=0, lt=1, description="Adam's beta 2")
    epsilon: float = Field(1e-9, gt=0, description="Adam's epsilon")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay (AdamW)")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="mass spread evenly over the vocabulary")
    damping: float = Field(
        0.0,
        ge=0,
        description="frequent target tokens count less in the loss: a token of share p has the weight a / (a + p), "
        "scaled so that the corpus has a mean of 1; this is a (try 0.01, smaller damps more), 0: all count alike",
    )
    input_damping: float = Field(
        0.0,
        ge=0,
        description="vectors of frequent source tokens are scaled by a / (a + p) where they are read, as train.damping "
        "scales losses; this is a, 0: none are; for models whose source has a table of its own",
    )
    attention_penalty: float = Field(
        0.0,
        ge=0,
        description="nats that a target adds to the objective for looking at frequent tokens alone: p / (0.01 + p) of "
        "it for attention to a token of share p, none to a line's end; 0: looking costs nothing, and is faster",
    )
    clip: float = Field(0.0, ge=0, description="largest gradient norm; 0: no clipping")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="bfloat16: products in bfloat16 beside float32 weights; auto: where the machine has it"
    )
    average: Literal["none", "last", "ema"] = Field(
        "last", description="weights of the bundle: as trained, the mean of the last few snapshots, or a moving average"
    )
    average_last: int = Field(5, gt=0, description="last: how many snapshots are averaged")
    average_every: int = Field(1000, gt=0, description="last: updates between snapshots")
    ema_decay: float = Field(0.999, gt=0, lt=1, description="ema: decay an update")
    validate_every: int = Field(1000, gt=0, description="updates between validations")
    validate_with: Literal["loss", "bleu", "accuracy"] = Field(
        "loss", description="what tells better from worse on the dev set"
    )
    patience: int = Field(0, ge=0, description="validations without gain before training stops; 0: never")
    keep: Literal["last", "best"] = Field("last", description="the bundle holds the last weights, or those best on dev")
    save_every: int = Field(500, gt=0, description="updates between checkpoints")
    keep_checkpoints: int = Field(2, gt=0, description="checkpoints left on disk")
    log_every: int = Field(50, gt=0, description="updates between lines of the log")
    chunk: int = Field(1024, gt=0, description="target tokens projected to the vocabulary at a time")
    parallel: Literal["auto", "ddp", "fsdp"] = Field(
        "auto", description="under torchrun: all weights in each process (ddp, auto), or a part of each (fsdp)"
    )
    compile: bool = Field(True, description="on a GPU: PyTorch compiles the step, which takes minutes at the beginning")
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N")
