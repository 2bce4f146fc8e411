"""What the names in a recipe's `[train]` may be: the keys of the visible tables."""

from __future__ import annotations

from collections.abc import Mapping

from regard.errors import ModelError
from regard.extensions import entry
from regard.settings.train import TrainConfig

from .objectives import OBJECTIVES
from .optimizers import OPTIMIZERS
from .regularizers import REGULARIZERS
from .schedules import SCHEDULES

_TABLES: dict[str, Mapping[str, object]] = {
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "regularizers": REGULARIZERS,
}


def known_names() -> dict[str, list[str]]:
    """The names that each key of `[train]` may have now; scripts and packages may have added theirs."""
    return {"objective": ["", *OBJECTIVES], **{key: list(table) for key, table in _TABLES.items()}}


def check_names(train: TrainConfig) -> None:
    """Raises ModelError for a name that no table has; recipes that were read from a file have been checked."""
    for key, name in (("optimizer", train.optimizer), ("schedule", train.schedule)):
        entry(_TABLES[key], name, f"train.{key}", ModelError)
    for name in train.regularizers:
        entry(REGULARIZERS, name, "train.regularizers", ModelError)
