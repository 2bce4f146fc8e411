"""Which weights a run ends with: the last ones, their moving average, the mean of snapshots, or the best on dev."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.settings.train import TrainConfig

from .checkpoint import write_durably


class Averaging:
    """The averages of a run's weights, as `train.average` and `train.keep` say; snapshots lie in its directory."""

    def __init__(self, config: TrainConfig, directory: Path, parameters: Mapping[str, nn.Parameter]) -> None:
        self.config, self.snapshots, self.best = config, directory / "snapshots", directory / "best.safetensors"
        moving = config.average == "ema"
        self.ema: dict[str, Tensor] = {n: p.detach().clone() for n, p in parameters.items()} if moving else {}

    def follow(self, parameters: Mapping[str, nn.Parameter], update: int) -> None:
        """Move the average towards the parameters after an update."""
        # Early on the average must not remember the random start.
        decay = min(self.config.ema_decay, (1 + update) / (10 + update))
        torch._foreach_lerp_(list(self.ema.values()), [p.detach() for p in parameters.values()], 1.0 - decay)

    def snapshot(self, weights: dict[str, Tensor], update: int) -> None:
        """Keep these weights, and of all that were kept the last `average_last`."""
        self.snapshots.mkdir(parents=True, exist_ok=True)
        write_durably(self.snapshots / f"update-{update:09d}.safetensors", weights)
        for old in sorted(self.snapshots.glob("*.safetensors"))[: -self.config.average_last]:
            old.unlink()

    def keep_best(self, weights: dict[str, Tensor]) -> None:
        """Keep these weights as the best on the dev set so far."""
        write_durably(self.best, weights)

    def final(self, trained: dict[str, Tensor]) -> dict[str, Tensor]:
        """The weights that the bundle gets; `trained` are the moving average, or without one those trained last."""
        if self.config.keep == "best" and self.best.exists():
            return load_file(self.best)
        snapshots = sorted(self.snapshots.glob("*.safetensors"))
        if self.config.average == "last" and snapshots:
            held = [load_file(path) for path in snapshots]
            return {n: torch.stack([h[n] for h in held]).double().mean(0).to(held[0][n]) for n in held[0]}
        return trained
