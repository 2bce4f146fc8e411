"""The training loop: batches, a model and an objective in; checkpoints and trained weights out.

A run is a pure function of its settings: dropout is seeded by (seed, number of the batch), data order by (seed, epoch),
so what was interrupted anywhere goes on bit for bit on the same machine and number of threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.data.batches import Batch, Batches
from regard.errors import CheckpointError
from regard.models.interface import device_of, layout_of

from . import checkpoint
from .config import TrainConfig
from .objectives import projected_loss
from .schedules import SCHEDULES, Plateau, Schedule

__all__ = ["Interrupted", "Trainer", "mixed", "resolve_precision"]

Report = Callable[[dict[str, Any]], None]
Validate = Callable[[nn.Module], dict[str, float]]


class Interrupted(Exception):  # noqa: N818  (it is no error)
    """Training was asked to stop; the checkpoint it goes on from is saved."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(str(checkpoint))
        self.checkpoint = checkpoint


def resolve_precision(precision: str, device: torch.device) -> bool:
    """Whether matrix products run in bfloat16; "auto" says yes where the hardware multiplies it faster."""
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def mixed(device: torch.device, bfloat16: bool) -> torch.autocast:
    """The context in which a model's matrix products run in bfloat16 beside float32 weights."""
    return torch.autocast(device.type, torch.bfloat16, enabled=bfloat16)


def _rounded(x: NDArray[Any]) -> NDArray[Any]:
    """Zeros added to a rectangle (B, T), or to its lengths (B,), up to a multiple of 8 rows and of 4 columns.

    Matrix libraries compile a product for each shape they meet, and forget the oldest: with fewer shapes they meet
    each again before it is forgotten. What is added is padding, and rows of length 0.
    """
    return np.pad(x, [(0, -size % step) for size, step in zip(x.shape, (8, 4), strict=False)])


class Trainer:
    """Runs `config.updates` updates on endless `batches`, from the start or from the newest checkpoint."""

    def __init__(
        self,
        model: nn.Module,
        batches: Batches,
        config: TrainConfig,
        directory: Path,
        *,
        seed: int,
        width: int,
        validate: Validate | None = None,
        report: Report | None = None,
    ) -> None:
        self.model, self.batches, self.config, self.seed = model, batches, config, seed
        self.directory = directory
        self.checkpoints = directory / "checkpoints"
        self.device = device_of(model)
        self.bfloat16 = resolve_precision(config.precision, self.device)
        self.validate, self.report = validate, report or (lambda event: None)
        self.parameters = dict(model.named_parameters())
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(),
            lr=0.0,
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.schedule = Schedule(config.rate, config.warmup, config.updates, width)
        self.plateau = Plateau(config.plateau_factor, config.plateau_patience)
        self.ema = {n: p.detach().clone() for n, p in self.parameters.items()} if config.average == "ema" else {}
        self.update = 0
        """Updates done."""
        self.microstep = 0
        """Batches done."""
        self.pending = 0
        """Target tokens whose gradients wait for the next update."""
        self.pending_loss = 0.0
        self.tokens = 0
        """Target tokens seen, padding not counted."""
        self.window = {"loss": 0.0, "tokens": 0.0, "seconds": 0.0}
        """What was summed since the last "train" event."""
        self.best: dict[str, Any] = {"value": -math.inf, "update": 0, "scores": {}}
        self.waited = 0
        self.seconds = 0.0
        """Time spent training, validation included, over all resumptions."""
        self.stop = False
        """Set from outside (a signal) to stop after the batch at hand."""
        self.saved: Path | None = None
        """The checkpoint last saved or taken up."""

    # -- one update ----------------------------------------------------------------------------------------------------

    def _backward(self, batch: Batch) -> float:
        torch.manual_seed((self.seed * 0x9E3779B97F4A7C15 + self.microstep) % 2**63)
        kind = batch.layout

        def ids(x: Any) -> Tensor:
            if kind == "padded":
                x = _rounded(x)
            return torch.from_numpy(x).to(self.device)

        source, tokens, targets = ids(batch.source), ids(batch.target_input), ids(batch.target_output)
        source_layout = layout_of(kind, ids(batch.source_lengths), source.shape[-1])
        target_layout = layout_of(kind, ids(batch.target_lengths), tokens.shape[-1])
        model: Any = self.model
        with mixed(self.device, self.bfloat16):
            memory = model.encode(source, source_layout)
            hidden, _ = model.decode(tokens, model.start(memory, source_layout), target_layout)
            if kind == "padded":
                real = (torch.arange(tokens.shape[1], device=self.device) < target_layout.lengths[:, None]).flatten()
                where = real.nonzero()[:, 0]
                hidden, targets = hidden.flatten(0, 1)[where], targets.flatten()[where]
            return projected_loss(model.project, hidden, targets, self.config.label_smoothing, self.config.chunk)

    def _apply(self) -> tuple[float, float]:
        """One optimiser update from the gradients that wait; returns the gradient's norm and the rate."""
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        torch._foreach_mul_(gradients, 1.0 / self.pending)
        limit = self.config.clip or math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), limit)) if self.config.clip else math.nan
        rate = SCHEDULES[self.config.schedule](self.schedule, self.update + 1) * self.plateau.scale
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.update += 1
        if self.ema:
            # Early on the average must not remember the random start.
            decay = min(self.config.ema_decay, (1 + self.update) / (10 + self.update))
            torch._foreach_lerp_(list(self.ema.values()), [p.detach() for p in self.parameters.values()], 1.0 - decay)
        return norm, rate

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train to the end; raises Interrupted, with a checkpoint saved, where `stop` was set."""
        config, batches = self.config, iter(self.batches)
        self.model.train()
        began = mark = time.perf_counter()
        spent = self.seconds
        while not self._finished():
            batch = next(batches)
            self.pending_loss += self._backward(batch)
            self.pending += batch.target_tokens
            self.microstep += 1
            if self.microstep % config.accumulate == 0:
                norm, rate = self._apply()
                now = time.perf_counter()
                self.seconds = spent + now - began
                self.tokens += self.pending
                for key, gain in (("loss", self.pending_loss), ("tokens", self.pending), ("seconds", now - mark)):
                    self.window[key] += gain
                self.pending, self.pending_loss, mark = 0, 0.0, now
                if self.update % config.log_every == 0 or self.update == 1:
                    self.report(
                        {
                            "event": "train",
                            "update": self.update,
                            "epoch": self.batches.epoch,
                            "loss": self.window["loss"] / self.window["tokens"],
                            "rate": rate,
                            "norm": norm,
                            "tokens": self.tokens,
                            "tokens_per_second": self.window["tokens"] / self.window["seconds"],
                            "seconds": self.seconds,
                        }
                    )
                    self.window = dict.fromkeys(self.window, 0.0)
                if config.average == "last" and self.update % config.average_every == 0:
                    self._snapshot()
                if self.validate and (self.update % config.validate_every == 0 or self.update == config.updates):
                    self._validate()
                    mark = time.perf_counter()
                    self.seconds = spent + mark - began
                if self.update % config.save_every == 0 or self._finished():
                    self.save()
            if self.stop:
                raise Interrupted(self.save())
        place = self.save()
        if self.stop:
            raise Interrupted(place)

    def _finished(self) -> bool:
        c = self.config
        return (
            self.update >= c.updates
            or (c.epochs > 0 and self.batches.epoch >= c.epochs)
            or (c.patience > 0 and self.waited >= c.patience)
        )

    def _validate(self) -> None:
        assert self.validate is not None
        self.model.eval()
        held = self._swap(self.ema) if self.ema else None
        scores = self.validate(self.model)
        value = scores["bleu"] if self.config.validate_with == "bleu" else -scores["loss"]
        improved = value > self.best["value"]
        if improved:
            self.best = {"value": value, "update": self.update, "scores": scores}
            if self.config.keep == "best":
                checkpoint.write_durably(
                    self.directory / "best.safetensors", {n: p.detach() for n, p in self.parameters.items()}
                )
        if held is not None:
            self._swap(held)
        self.waited = 0 if improved else self.waited + 1
        if self.config.schedule == "plateau":
            self.plateau.saw(improved)
        self.model.train()
        self.report({"event": "validate", "update": self.update, "improved": improved, **scores})

    def _swap(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Put these weights into the model; returns what it had."""
        held = {n: p.detach().clone() for n, p in self.parameters.items()}
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(weights[name])
        return held

    # -- weights -------------------------------------------------------------------------------------------------------

    def _snapshot(self) -> None:
        folder = self.directory / "snapshots"
        folder.mkdir(parents=True, exist_ok=True)
        weights = {n: p.detach() for n, p in self.parameters.items()}
        checkpoint.write_durably(folder / f"update-{self.update:09d}.safetensors", weights)
        for old in sorted(folder.glob("*.safetensors"))[: -self.config.average_last]:
            old.unlink()

    def final_weights(self) -> dict[str, Tensor]:
        """The weights that the bundle gets, as `keep` and `average` say."""
        best = self.directory / "best.safetensors"
        if self.config.keep == "best" and best.exists():
            return load_file(best)
        if self.ema:
            return self.ema
        snapshots = sorted((self.directory / "snapshots").glob("*.safetensors"))
        if self.config.average == "last" and snapshots:
            held = [load_file(path) for path in snapshots]
            return {n: torch.stack([h[n] for h in held]).double().mean(0).to(held[0][n]) for n in held[0]}
        return {n: p.detach() for n, p in self.parameters.items()}

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def save(self) -> Path:
        """Save everything needed to go on exactly; returns where. Nothing is written twice."""
        title = f"update-{self.update:09d}-{self.microstep:010d}"
        if self.saved is not None and self.saved.name == title:
            return self.saved
        tensors = {f"model.{n}": p.detach() for n, p in self.parameters.items()}
        for name, parameter in self.parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"{key}.{name}"] = value
            if parameter.grad is not None:
                tensors[f"gradient.{name}"] = parameter.grad
            if self.ema:
                tensors[f"ema.{name}"] = self.ema[name]
        state = {
            "update": self.update,
            "microstep": self.microstep,
            "pending": self.pending,
            "pending_loss": self.pending_loss,
            "tokens": self.tokens,
            "window": self.window,
            "best": {**self.best, "value": None if self.best["value"] == -math.inf else self.best["value"]},
            "waited": self.waited,
            "seconds": self.seconds,
            "plateau": [self.plateau.scale, self.plateau.waited],
            "position": self.batches.position(),
            "threads": torch.get_num_threads(),
            "seed": self.seed,
        }
        self.saved = checkpoint.save(
            self.checkpoints, title, checkpoint.Checkpoint(tensors, state), self.config.keep_checkpoints
        )
        return self.saved

    def resume(self) -> Path | None:
        """Take up the newest checkpoint, if there is one; returns its path."""
        path = checkpoint.latest(self.checkpoints)
        if path is None:
            return None
        held = checkpoint.load(path)
        state = held.state
        if state["seed"] != self.seed:
            raise CheckpointError(f"{path}: saved with seed {state['seed']}, the recipe says {self.seed}")
        for name, parameter in self.parameters.items():
            saved = held.tensors.get(f"model.{name}")
            if saved is None or saved.shape != parameter.shape:
                raise CheckpointError(f"{path}: belongs to another model ({name} differs); choose another --out")
            with torch.no_grad():
                parameter.copy_(saved)
            kept = {k: held.tensors.get(f"{k}.{name}") for k in ("step", "exp_avg", "exp_avg_sq")}
            if kept["step"] is not None:
                self.optimizer.state[parameter] = {
                    k: v if k == "step" else v.to(self.device) for k, v in kept.items() if v is not None
                }
            gradient = held.tensors.get(f"gradient.{name}")
            parameter.grad = None if gradient is None else gradient.to(self.device)
            if self.ema:
                self.ema[name].copy_(held.tensors[f"ema.{name}"])
        for key in ("update", "microstep", "pending", "pending_loss", "tokens", "waited", "seconds"):
            setattr(self, key, state[key])
        self.window = {**self.window, **state.get("window", {})}
        self.best = dict(state["best"])
        if self.best["value"] is None:
            self.best["value"] = -math.inf
        self.plateau.scale, self.plateau.waited = state["plateau"]
        self.batches.seek(state["position"])
        self.saved = path
        return path
