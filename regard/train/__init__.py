"""Training: batches, a model and an objective -> checkpoints."""

from .config import TrainConfig
from .loop import Interrupted, Trainer, mixed, resolve_precision
from .objectives import label_smoothed, label_smoothed_reference, projected_loss, token_log_probabilities
from .schedules import SCHEDULES, Plateau, Schedule

__all__ = [
    "SCHEDULES",
    "Interrupted",
    "Plateau",
    "Schedule",
    "TrainConfig",
    "Trainer",
    "label_smoothed",
    "label_smoothed_reference",
    "mixed",
    "projected_loss",
    "resolve_precision",
    "token_log_probabilities",
]
