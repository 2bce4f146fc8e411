"""What a run of training is given beside its model and its data, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from .parallel import Parallel
from .regularizers import Counts
from .schedules import Plateau

if TYPE_CHECKING:
    from .loop import Trainer

Event = dict[str, Any]
"""What happened, by the name under "event", in plain values."""
Report = Callable[[Event], None]
"""Hears of events."""


class Callback:
    """What is called while training runs, in every process; a callback overrides what it needs.

    It may read the trainer (`model`, `progress`, `parameters`) and set `trainer.stop = True`. What it keeps itself is
    not part of checkpoints.
    """

    def on_update(self, trainer: Trainer) -> None:
        """An update was made."""

    def on_validation(self, trainer: Trainer, scores: dict[str, float]) -> None:
        """The model was judged; only the first process is given scores."""

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        """A checkpoint was saved."""


@dataclass(frozen=True)
class Options:
    """What a run may be given beside its model, batches and settings."""

    validate: Callable[[nn.Module], dict[str, float]] | None = None
    """A model -> its scores on the dev set, "loss" among them."""
    report: Report = field(default=lambda event: None)
    """Hears of "train", "validate", "cut" and "damaged" as dicts."""
    callbacks: Sequence[Callback] = ()
    parallel: Parallel = field(default_factory=Parallel)
    counts: Counts | None = None
    """How often tokens occur, for the regularisers that need it."""
    loops: bool = False
    """Whether the model goes token by token in training: see `regard.models.Family`."""
    shares_parts: bool = False
    """Whether all layers of the model share a part."""


@dataclass
class Progress:
    """How far a run is: plain values that every checkpoint holds."""

    update: int = 0
    """Updates done."""
    microstep: int = 0
    """Batches done."""
    pending: int = 0
    """Target tokens whose gradients wait for the next update."""
    pending_loss: float = 0.0
    tokens: int = 0
    """Target tokens seen, padding not counted."""
    window: dict[str, float] = field(default_factory=lambda: {"loss": 0.0, "tokens": 0.0, "seconds": 0.0})
    """What was summed since the last "train" event."""
    best: Event = field(default_factory=lambda: {"value": None, "update": 0, "scores": {}})
    """The best validation so far; of the value that is judged by, higher is better."""
    waited: int = 0
    """Validations since the best one."""
    plateau: Plateau = field(default_factory=Plateau)
    seconds: float = 0.0
    """Time spent training, validation included, over all resumptions."""
    trained: float = 0.0
    """Seconds of these that went into batches and updates; with several processes, the mean of theirs."""
    cuts: int = 0
    """Batches cut in two because they did not fit in memory."""

    @classmethod
    def restored(cls, values: Event) -> Progress:
        """As it was when `asdict` made these values of it."""
        return cls(**{**values, "plateau": Plateau(**values["plateau"])})
