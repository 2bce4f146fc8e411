"""The training part of a recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from regard.extensions import load_installed


class TrainConfig(BaseModel):
    """How weights are found; the defaults follow the paper (sections 5.3 and 5.4).

    Objectives, optimisers, schedules and regularisers are named as the visible tables of `regard.train` have them, to
    which a script may have added its own. A recipe that is to be trained is validated with a function that knows these
    names as its context.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    objective: str = Field(
        "",
        description="what is learnt: translate, cmlm (translate at masked positions), denoise (fill gaps in text), "
        "language-model, masked-lm or classify; empty: what the model's family and the data are for",
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
    optimizer: str = Field("adamw", description="how weights are changed: adamw, adafactor, lion or muon")
    schedule: str = Field(
        "paper", description="learning rate over time: paper, inverse-sqrt, cosine, linear, constant or plateau"
    )
    learning_rate: float = Field(
        1.0, gt=0, description="peak learning rate; with the paper's schedule a factor, 1 in the paper"
    )
    warmup: int = Field(4000, ge=0, description="updates of linear warm-up")
    plateau_factor: float = Field(0.5, gt=0, lt=1, description="plateau: what the rate is multiplied by")
    plateau_patience: int = Field(3, ge=0, description="plateau: validations without gain before that")
    beta1: float = Field(0.9, ge=0, lt=1, description="of momentum: Adam's beta 1, and Lion's")
    beta2: float = Field(0.98, ge=0, lt=1, description="of the second moment: Adam's beta 2; of Lion's momentum")
    epsilon: float = Field(1e-9, gt=0, description="Adam's epsilon")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay of matrices, not of norms and biases")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="mass spread evenly over the vocabulary")
    regularizers: dict[str, float] = Field(
        default_factory=dict,
        description="what is added to training, each with its strength: token-weights, input-weights, attention-cost "
        "or word-dropout",
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
    validate_with: str = Field(
        "loss",
        description="what tells better from worse on the dev set: loss, bleu (translations) or accuracy (classes)",
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

    @field_validator("objective", "optimizer", "schedule", "regularizers")
    @classmethod
    def _known(cls, value: str | dict[str, float], info: ValidationInfo) -> str | dict[str, float]:
        if known_names := (info.context or {}).get("known_names"):
            for name in [value] if isinstance(value, str) else value:
                if name not in known_names()[info.field_name]:
                    load_installed()
                if name not in (names := known_names()[info.field_name]):
                    raise PydanticCustomError("unknown_name", "must be a known name", {"names": names, "name": name})
        return value

    @field_validator("regularizers")
    @classmethod
    def _at_least_0(cls, value: dict[str, float]) -> dict[str, float]:
        for name, strength in value.items():
            if not 0 <= strength < float("inf"):
                raise ValueError(f"{name} = {strength} is a strength, and must be a number of at least 0.")
        return value
