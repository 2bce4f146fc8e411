"""What an interrupted learning leaves beside its adapter: a checkpoint as training writes it, to go on from exactly."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from torch import Tensor

from regard.errors import CheckpointError
from regard.train import checkpoint
from regard.train.checkpoint import Checkpoint
from regard.train.parallel import Parallel

from .file import UNFINISHED


@dataclass(frozen=True)
class Unfinished:
    """A directory for one checkpoint, and what tells this learning from others."""

    folder: Path
    key: str
    """The SHA-256 of all that the result depends on: settings, weights and pairs."""

    @classmethod
    def beside(cls, out: str | Path, key: str) -> Self:
        """That of an adapter which goes to `out`."""
        out = Path(out)
        return cls(out.with_name(out.name + UNFINISHED), key)

    def save(self, update: int, tensors: Mapping[str, Tensor], state: Mapping[str, object]) -> None:
        """Writes a checkpoint in the place of the one before; a crash leaves one of the two whole."""
        held = Checkpoint(tensors, {**state, "key": self.key})
        checkpoint.save(self.folder, f"update-{update:08d}", held, keep=1)

    def load(self) -> Checkpoint | None:
        """What is to be gone on from. Raises CheckpointError for a damaged one, and for one of another learning."""
        held = checkpoint.newest_whole(self.folder, Parallel(), lambda event: None)
        if held is not None and held.state.get("key") != self.key:
            raise CheckpointError(
                f"{self.folder}: was begun with other pairs, settings or weights; go on with those, choose another "
                "--out, or remove it to begin anew."
            )
        return held

    def remove(self) -> None:
        """Removes what the adapter has made needless."""
        shutil.rmtree(self.folder, ignore_errors=True)
