"""How a sweep searches; the fields are the flags of `regard sweep`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Sweeping(BaseModel, extra="forbid", frozen=True):
    """How many trials are trained, how their settings are chosen, and by what they are judged."""

    trials: int = Field(20, ge=1, description="trainings in all, those that were stopped early included")
    metric: Literal["", "loss", "bleu", "accuracy"] = Field(
        "", description="the validation score that decides: loss, bleu or accuracy; left out: train.validate_with"
    )
    sampler: Literal["tpe", "random", "grid"] = Field(
        "tpe", description="how settings are chosen: tpe (by what came of earlier ones), random, or grid (each once)"
    )
    prune: bool = Field(True, description="stop a trial early whose validation scores fall behind")
    seed: int = Field(0, ge=0, description="of the settings that are drawn; trainings have the recipe's own seed")
    minutes: float = Field(0.0, ge=0, description="begin no trial after so many minutes of trials; 0: no limit")
    keep: bool = Field(False, description="keep checkpoints and bundles of all trials, not of the best one alone")
