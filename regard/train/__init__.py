"""Training: batches, a model and an objective -> checkpoints."""

from regard.errors import Interrupted
from regard.models.blocks import resolve_precision
from regard.settings import TrainConfig

from .checkpoint import Event, Plateau, Progress, Report
from .loop import TABLES, Callback, Options, Trainer
from .objectives import OBJECTIVES, Inputs, Objective, Outputs, label_smoothed, projected_loss, token_log_probabilities
from .regularizers import REGULARIZERS, Counts, Regularizer
from .step import CHUNKS, OPTIMIZERS, SCHEDULES, Optimizer, Schedule, Step, Weights, inputs

__all__ = ["CHUNKS", "OBJECTIVES", "OPTIMIZERS", "REGULARIZERS", "SCHEDULES", "TABLES", "Callback", "Counts", "Event"]
__all__ += ["Inputs", "Interrupted", "Objective", "Optimizer", "Options", "Outputs", "Plateau", "Progress"]
__all__ += ["Regularizer", "Report", "Schedule", "Step", "TrainConfig", "Trainer", "Weights", "inputs"]
__all__ += ["label_smoothed", "projected_loss", "resolve_precision", "token_log_probabilities"]
