"""Training: batches, a model and an objective -> checkpoints."""

from regard.errors import Interrupted
from regard.settings import TrainConfig

from .checkpoint import Event, Progress, Report
from .loop import TABLES, Callback, Options, Trainer
from .objectives import OBJECTIVES, Inputs, Objective, Outputs, label_smoothed, projected_loss, token_log_probabilities
from .regularizers import REGULARIZERS, Counts, Regularizer
from .step import CHUNKS, OPTIMIZERS, SCHEDULES, Optimizer, Plateau, Schedule, Step, Weights, inputs, resolve_precision

__all__ = ["CHUNKS", "OBJECTIVES", "OPTIMIZERS", "REGULARIZERS", "SCHEDULES", "TABLES", "Callback", "Counts", "Event", "Inputs"]
__all__ += ["Interrupted", "Objective", "Optimizer", "Options", "Outputs", "Plateau", "Progress", "Regularizer"]
__all__ += ["Report", "Schedule", "Step", "TrainConfig", "Trainer", "Weights", "inputs", "label_smoothed"]
__all__ += ["projected_loss", "resolve_precision", "token_log_probabilities"]
