"""The training loop: batches, a model and an objective in; checkpoints and trained weights out.

A run is a pure function of its settings: dropout is seeded by (seed, number of the batch), data order by (seed, epoch),
so what was interrupted anywhere goes on bit for bit on the same machine and number of threads. With several processes
dropout is seeded by the process too, and a sum's order depends on their number; all else stays. A run that stops by the
clock (`minutes`) depends on how fast the machine was, and goes on with the time that it has left.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.data.batches import Batch, Batches
from regard.data.prefetch import Prefetcher
from regard.errors import CheckpointError, ModelError, ParallelError
from regard.kernels import native
from regard.models.interface import capacity_of, device_of
from regard.settings.train import TrainConfig

from . import checkpoint
from .memory import halves, is_out_of_memory
from .objectives import OBJECTIVES, Objective
from .parallel import Parallel, like, whole
from .schedules import SCHEDULES, Plateau, Schedule
from .step import Step, inputs
from .weights import Weights, resolve_precision

__all__ = ["Interrupted", "Trainer"]

Report = Callable[[dict[str, Any]], None]
Validate = Callable[[nn.Module], dict[str, float]]


class Interrupted(Exception):  # noqa: N818  (it is no error)
    """Training was asked to stop; the checkpoint it goes on from is saved."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(str(checkpoint))
        self.checkpoint = checkpoint


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
        parallel: Parallel | None = None,
        objective: Objective = OBJECTIVES["translate"],
        importance: Tensor | None = None,
        price: Tensor | None = None,
    ) -> None:
        self.parallel = parallel or Parallel()
        self.model, self.batches, self.config, self.seed = model, Prefetcher(batches), config, seed
        self.directory = directory
        self.checkpoints = directory / "checkpoints"
        self.device = device_of(model)
        if self.device.type == "cpu":
            native.keep_memory()
        self.bfloat16 = resolve_precision(config.precision, self.device)
        self.validate, self.report = validate, report or (lambda event: None)
        # Sharding changes a model for good: the one that was given stays whole, to be validated with.
        trained = copy.deepcopy(model) if self.parallel.sharded else model
        compiled = config.compile and self.device.type == "cuda" and not self.parallel.sharded
        if getattr(model, "loops", False):  # place by place: a compiler would write every place out
            compiled = False
        step = Step(trained, config.label_smoothing, config.chunk, compiled, objective, importance, price)
        self.places = capacity_of(model)
        self.step = self.parallel.wrap(step, self.bfloat16)
        self.constant = -(-batches.batch_tokens // self.parallel.world // 128) * 128 if compiled else 0
        """Tokens of which a pack has a multiple, so that a compiled step meets one shape; 0: few shapes."""
        self.weights = Weights(trained, self.bfloat16 and self.parallel.alone)
        self.parameters = self.weights.masters
        if self.parallel.sharded:
            model.to("cpu")
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(),
            lr=0.0,
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.schedule = Schedule(config.learning_rate, config.warmup, config.max_updates, width)
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
        self.trained = 0.0
        """Seconds of these that went into batches and updates; with several processes, the mean of theirs."""
        self.cuts = 0
        """Batches cut in two because they did not fit in memory."""
        self.stop = False
        """Set from outside (a signal) to stop after the batch at hand."""
        self.saved: Path | None = None
        """The checkpoint last saved or taken up."""
        self.threads = torch.get_num_threads()
        """What the checkpoint that was taken up was computed with; without one, what this process computes with."""

    # -- one update ----------------------------------------------------------------------------------------------------

    def _backward(self, batch: Batch, part: int = 1) -> float:
        """The batch's summed loss; its gradients are added to those that wait.

        What does not fit in memory is cut in two: part 1 is the whole, 2 and 3 are its halves, and so on.
        """
        seed = self.seed * 0x9E3779B97F4A7C15 + self.microstep + (part - 1) * 0xBF58476D1CE4E5B9
        torch.manual_seed(self.parallel.seed(seed % 2**63))
        last = (self.microstep + 1) % self.config.accumulate == 0
        try:
            with self.parallel.reducing(self.step, last):
                x = inputs(self.parallel.share(batch), self.device, self.constant, places=self.places)
                loss = self.step(x)
                loss.backward()
            if last or self.parallel.alone:
                self.weights.gather()
            return float(loss.detach())
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if not self.parallel.alone:  # the others' passes cannot be undone
                raise ModelError(
                    f"process {self.parallel.rank + 1} of {self.parallel.world}: its share of a batch of "
                    f"{batch.target_tokens} target tokens does not fit in memory; lower data.batch_tokens and raise "
                    "train.accumulate, or start more processes."
                ) from error
        # Outside of the handler, which would keep alive what the failed attempt holds.
        self.weights.discard()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        first, second = halves(batch)
        self.cuts += 1
        tokens = batch.target_tokens
        self.report({"event": "cut", "update": self.update + 1, "target_tokens": tokens, "cuts": self.cuts})
        return self._backward(first, 2 * part) + self._backward(second, 2 * part + 1)

    def _apply(self) -> tuple[float, float]:
        """One optimiser update from the gradients that wait; returns the gradient's norm and the rate."""
        for name, gradient in self.weights.gradients.items():
            self.parameters[name].grad = gradient
        self.weights.gradients = {}
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        torch._foreach_mul_(gradients, self.parallel.world / self.pending)  # they are the processes' mean
        norm = math.nan
        if self.config.clip:
            norm = float(whole(torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.config.clip)))
        rate = SCHEDULES[self.config.schedule](self._by_the_clock(), self.update + 1) * self.plateau.scale
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.weights.put(self.parameters)
        self.update += 1
        if self.ema:
            # Early on the average must not remember the random start.
            decay = min(self.config.ema_decay, (1 + self.update) / (10 + self.update))
            torch._foreach_lerp_(list(self.ema.values()), [p.detach() for p in self.parameters.values()], 1.0 - decay)
        return norm, rate

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train to the end; raises Interrupted, with a checkpoint saved, where `stop` was set.

        With several processes all of them stop after the update at hand if it was set in any.
        """
        try:
            self._run()
        finally:
            self.batches.close()

    def _run(self) -> None:
        config, batches, alone = self.config, iter(self.batches), self.parallel.alone
        self.step.train()
        began = mark = time.perf_counter()
        spent = self.seconds
        while not self._finished():
            batch, asked = next(batches), 0.0
            self.pending_loss += self._backward(batch)
            self.pending += batch.target_tokens
            self.microstep += 1
            if self.microstep % config.accumulate == 0:
                norm, rate = self._apply()
                now = time.perf_counter()
                self.pending_loss, asked, used = self.parallel.sum(self.pending_loss, self.stop, now - mark)
                self.seconds = spent + now - began
                self.trained += used / self.parallel.world
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
                            "trained": self.trained,
                        }
                    )
                    self.window = dict.fromkeys(self.window, 0.0)
                if config.average == "last" and self.update % config.average_every == 0:
                    self._snapshot()
                last = self.update == config.max_updates or self._late()
                if self.validate and (self.update % config.validate_every == 0 or last):
                    self._validate()
                    mark = time.perf_counter()
                    self.seconds = spent + mark - began
                if self.update % config.save_every == 0 or self._finished():
                    self.save()
                    mark = time.perf_counter()
            if self.stop if alone else asked:
                raise Interrupted(self.save())
        place = self.save()
        if any(self.parallel.sum(self.stop)):
            raise Interrupted(place)

    def _finished(self) -> bool:
        c = self.config
        return (
            self.update >= c.max_updates
            or self._late()
            or (c.epochs > 0 and self.batches.epoch >= c.epochs)
            or (c.patience > 0 and self.waited >= c.patience)
        )

    def _late(self) -> bool:
        return 0 < 60 * self.config.minutes <= self.trained

    def _by_the_clock(self) -> Schedule:
        """The schedule with as many updates in all as the minutes will hold, going by those done so far."""
        if not self.config.minutes or not self.trained:
            return self.schedule
        total = round((self.update + 1) * 60 * self.config.minutes / self.trained)
        return replace(self.schedule, total=min(self.schedule.total, max(total, self.update + 1)))

    def _validate(self) -> None:
        """The first process judges; the others wait, and hear how good it is."""
        judged = self.parallel.whole(self.ema or self.parameters)
        scores: dict[str, float] = {}
        value = 0.0
        if self.parallel.main:
            scores = self._scores(judged)
            value = -scores["loss"] if self.config.validate_with == "loss" else scores[self.config.validate_with]
        self.parallel.barrier()
        (value,) = self.parallel.sum(value)
        improved = value > self.best["value"]
        if improved:
            self.best = {"value": value, "update": self.update, "scores": scores}
            if self.config.keep == "best" and self.parallel.main:
                checkpoint.write_durably(self.directory / "best.safetensors", judged)
        self.waited = 0 if improved else self.waited + 1
        if self.config.schedule == "plateau":
            self.plateau.saw(improved)
        self.report({"event": "validate", "update": self.update, "improved": improved, **scores})

    def _scores(self, judged: dict[str, Tensor]) -> dict[str, float]:
        """What `validate` finds of the model with these weights."""
        assert self.validate is not None
        trained = {} if self.parallel.sharded else {n: p.detach().clone() for n, p in self.parameters.items()}
        if self.parallel.sharded:
            self.model.to(self.device)
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    parameter.copy_(judged[name])
        else:
            self.weights.put(judged)
        self.model.eval()
        scores = self.validate(self.model)
        self.model.train()
        if self.parallel.sharded:
            self.model.to("cpu")
        else:
            self.weights.put(trained)
        return scores

    # -- weights -------------------------------------------------------------------------------------------------------

    def _snapshot(self) -> None:
        weights = self.parallel.whole({n: p.detach() for n, p in self.parameters.items()})
        if not self.parallel.main:
            return
        folder = self.directory / "snapshots"
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.write_durably(folder / f"update-{self.update:09d}.safetensors", weights)
        for old in sorted(folder.glob("*.safetensors"))[: -self.config.average_last]:
            old.unlink()

    def final_weights(self) -> dict[str, Tensor]:
        """The weights that the bundle gets, as `keep` and `average` say; all processes must ask."""
        trained = self.parallel.whole(self.ema or {n: p.detach() for n, p in self.parameters.items()})
        best = self.directory / "best.safetensors"
        if self.config.keep == "best" and best.exists():
            return load_file(best)
        snapshots = sorted((self.directory / "snapshots").glob("*.safetensors"))
        if self.config.average == "last" and snapshots:
            held = [load_file(path) for path in snapshots]
            return {n: torch.stack([h[n] for h in held]).double().mean(0).to(held[0][n]) for n in held[0]}
        return trained

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
            if name in self.weights.gradients:
                tensors[f"gradient.{name}"] = self.weights.gradients[name]
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
            "cuts": self.cuts,
            "seconds": self.seconds,
            "trained": self.trained,
            "plateau": [self.plateau.scale, self.plateau.waited],
            "position": self.batches.position(),
            "threads": torch.get_num_threads(),
            "seed": self.seed,
        }
        self.saved = checkpoint.save(
            self.checkpoints,
            title,
            checkpoint.Checkpoint(tensors, state),
            self.config.keep_checkpoints,
            self.parallel,
        )
        return self.saved

    def resume(self) -> Path | None:
        """Take up the newest checkpoint, if there is one; returns its path."""
        path = checkpoint.latest(self.checkpoints)
        seen = 0 if path is None else 1 + int(path.name.rpartition("-")[2])
        if self.parallel.sum(seen) != [seen * self.parallel.world]:
            raise ParallelError(
                f"{self.checkpoints}: not every process sees the same newest checkpoint; "
                "keep the run's directory on a file system that all machines share."
            )
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
                parameter.copy_(like(saved, parameter))
            kept = {k: held.tensors.get(f"{k}.{name}") for k in ("step", "exp_avg", "exp_avg_sq")}
            if kept["step"] is not None:
                self.optimizer.state[parameter] = {
                    k: v.to(self.device) if k == "step" else like(v, parameter)
                    for k, v in kept.items()
                    if v is not None
                }
            if (gradient := held.tensors.get(f"gradient.{name}")) is not None:
                self.weights.gradients[name] = like(gradient, parameter) / self.parallel.world  # as a mean
            if self.ema:
                self.ema[name].copy_(like(held.tensors[f"ema.{name}"], parameter))
        self.weights.put(self.parameters)
        for key in ("update", "microstep", "pending", "pending_loss", "tokens", "waited", "seconds"):
            setattr(self, key, state[key])
        self.cuts = state.get("cuts", 0)
        self.trained = state.get("trained", 0.0)
        self.threads = state["threads"]
        self.window = {**self.window, **state.get("window", {})}
        self.best = dict(state["best"])
        if self.best["value"] is None:
            self.best["value"] = -math.inf
        self.plateau.scale, self.plateau.waited = state["plateau"]
        self.batches.seek(state["position"])
        self.saved = path
        return path
