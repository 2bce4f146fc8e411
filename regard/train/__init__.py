"""Training: batches, a model and an objective -> checkpoints."""

from regard.errors import Interrupted
from regard.settings.train import TrainConfig

from .loop import Trainer
from .losses import label_smoothed, projected_loss, token_log_probabilities
from .objectives import OBJECTIVES, Inputs, Objective, Outputs
from .optimizers import OPTIMIZERS, Optimizer
from .progress import Callback, Event, Options, Progress, Report
from .regularizers import REGULARIZERS, Counts, Regularizer
from .schedules import SCHEDULES, Plateau, Schedule
from .step import Step, Weights, inputs, resolve_precision

__all__ = [
    "OBJECTIVES",
    "OPTIMIZERS",
    "REGULARIZERS",
    "SCHEDULES",
    "Callback",
    "Counts",
    "Event",
    "Inputs",
    "Interrupted",
    "Objective",
    "Optimizer",
    "Options",
    "Outputs",
    "Plateau",
    "Progress",
    "Regularizer",
    "Report",
    "Schedule",
    "Step",
    "TrainConfig",
    "Trainer",
    "Weights",
    "inputs",
    "label_smoothed",
    "projected_loss",
    "resolve_precision",
    "token_log_probabilities",
]
