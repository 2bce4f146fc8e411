"""Training: batches, a model and an objective -> checkpoints."""

from regard.settings.train import TrainConfig

from .loop import Interrupted, Trainer
from .objectives import (
    GAPS,
    MASK,
    OBJECTIVES,
    Objective,
    importance,
    label_smoothed,
    projected_loss,
    rarity,
    token_log_probabilities,
)
from .schedules import SCHEDULES, Plateau, Schedule
from .step import Inputs, Step, inputs
from .weights import Weights, mixed, resolve_precision

__all__ = [
    "GAPS",
    "MASK",
    "OBJECTIVES",
    "SCHEDULES",
    "Inputs",
    "Interrupted",
    "Objective",
    "Plateau",
    "Schedule",
    "Step",
    "TrainConfig",
    "Trainer",
    "Weights",
    "importance",
    "inputs",
    "label_smoothed",
    "mixed",
    "projected_loss",
    "rarity",
    "resolve_precision",
    "token_log_probabilities",
]
