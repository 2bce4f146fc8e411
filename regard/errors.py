"""Errors a user can mend: each message names the value, the rule and the way out; the exit code is 2."""

from __future__ import annotations

from pathlib import Path


class RegardError(Exception):
    """A mistake that the user can mend; shown without a traceback."""


class TextError(RegardError):
    """A text file or a line of it cannot be used as it is."""


class DataError(RegardError):
    """A corpus, a store or a batch setting cannot be used as it is."""


class RecipeError(RegardError):
    """A recipe has a wrong key or value."""


class ModelError(RegardError):
    """A model cannot be built from, or used with, what it was given."""


class BundleError(RegardError):
    """A bundle is missing, damaged or of another kind."""


class KernelError(RegardError):
    """A compiled kernel cannot work with what it was given."""


class CheckpointError(RegardError):
    """A checkpoint is missing, damaged or belongs to another run."""


class TrainingError(RegardError):
    """Training cannot go on: it has diverged, or another process trains in the same directory."""


class ParallelError(RegardError):
    """A process of a run is gone, or cannot be reached."""


class FetchError(RegardError):
    """A data set could not be fetched or is not what it should be."""


def install(extra: str) -> str:
    """The command that installs an extra of the package, which no index has: it is run in a checkout."""
    return f"pip install '.[{extra}]' in a checkout of Regard"


NO_TORCH = f"{{}} needs PyTorch, which is not installed: {install('train')}."
"""What is said where PyTorch is missing."""


class RegardWarning(UserWarning):
    """Something asked for is done in another way than was asked; shown once, as a sentence."""


NOT_FINITE = (
    "the model's weights give no finite scores to choose a translation by; they are damaged, or its "
    "training has diverged: use another bundle or checkpoint, or train again with a lower train.learning_rate."
)
"""What is said of a model whose weights are not numbers."""


class ExtensionError(RegardError):
    """A package or a script that adds to this one cannot be loaded."""


class Interrupted(Exception):  # noqa: N818  (it is no error)
    """Training was asked to stop; the checkpoint it goes on from is saved."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(str(checkpoint))
        self.checkpoint = checkpoint
