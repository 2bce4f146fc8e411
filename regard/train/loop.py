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
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.data.batches import Batch, Batches, Prefetcher
from regard.errors import CheckpointError, Interrupted, ModelError, TrainingError
from regard.extensions import entry
from regard.kernels import native
from regard.models.blocks import capacity_of, device_of, is_out_of_memory, resolve_precision
from regard.settings import TrainConfig

from . import checkpoint
from .checkpoint import Averaging, Event, Plateau, Progress, Report, restore_state, state_of
from .objectives import OBJECTIVES, Constant, Objective
from .parallel import Parallel, like, whole
from .regularizers import REGULARIZERS, Counts, terms_of
from .step import CHUNKS, OPTIMIZERS, SCHEDULES, Schedule, Step, Weights, halves, inputs

TABLES: dict[str, Mapping[str, object]] = {
    "objective": OBJECTIVES,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "regularizers": REGULARIZERS,
}
"""What the names in `[train]` may be: the keys of these; scripts and packages may add theirs."""


class Callback:
    """What is called while training runs, in every process; a callback overrides what it needs.

    It may read the trainer (`model`, `progress`, `parameters`) and set `trainer.stop`. What it keeps is not saved.
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
    report: Report = lambda event: None  # hears of "train", "validate", "cut" and "damaged" as dicts
    callbacks: Sequence[Callback] = ()
    parallel: Parallel = field(default_factory=Parallel)
    counts: Counts | None = None  # how often tokens occur, for the regularisers that need it
    loops: bool = False  # whether the model goes token by token in training: see `regard.models.Family`
    shares_parts: bool = False  # whether all layers of the model share a part
    carry: bool = False  # whether each batch begins with the state in which the one before it ended


class Trainer:
    """Runs `config.max_updates` updates on endless `batches`, from the start or from the newest checkpoint."""

    def __init__(
        self,
        model: nn.Module,
        batches: Batches,
        config: TrainConfig,
        directory: Path,
        *,
        seed: int,
        width: int,
        objective: Objective = OBJECTIVES["translate"],
        options: Options | None = None,
    ) -> None:
        options = options or Options()
        self.model, self.batches, self.config, self.seed = model, Prefetcher(batches), config, seed
        self.directory, self.checkpoints = directory, directory / "checkpoints"
        self.validate, self.report, self.callbacks = options.validate, options.report, options.callbacks
        self.parallel, self.device = options.parallel, device_of(model)
        if self.device.type == "cpu":
            native.keep_memory()
        self.bfloat16 = resolve_precision(config.precision, self.device, width)
        optimizer = entry(OPTIMIZERS, config.optimizer, "train.optimizer", ModelError)
        self.rate = entry(SCHEDULES, config.schedule, "train.schedule", ModelError)
        if self.parallel.sharded and not optimizer.sharded:
            raise ModelError(f'train.optimizer = "{config.optimizer}" needs whole weights; set train.parallel = "ddp".')
        terms = terms_of(config.regularizers, options.counts, self.device) if config.regularizers else []
        for term in terms:
            if term.entry.model is not None:
                term.entry.model(term.value, model)
        # Sharding changes a model for good: the one that was given stays whole, to be validated with.
        trained = copy.deepcopy(model) if self.parallel.sharded else model
        if options.carry and not self.parallel.alone:
            raise ModelError("model.carry takes states from batch to batch in one process; leave torchrun or it out.")
        chunk = CHUNKS.get(self.device.type, 1) * config.chunk
        self.bare = step = Step(trained, config.label_smoothing, chunk, objective, terms, options.carry)
        step.again = config.checkpoint_activations
        # With a carried state a row ends with its last token, so that nothing is padded.
        self.positions = 0 if options.carry else capacity_of(model)
        self.step = self.parallel.wrap(step, self.bfloat16, by_layers=not (options.loops or options.shares_parts))
        self.weights = Weights(trained, self.bfloat16 and self.parallel.alone)
        self.parameters = self.weights.masters
        # A model that goes token by token would be written out for every token.
        possible = config.compile and self.device.type == "cuda" and not (self.parallel.sharded or options.loops)
        self.constant: Constant | None = None
        if possible and step.stays_packed(inputs(next(batches.one_epoch()), self.device), self.bfloat16):
            step.compile_model(graphs=self.bfloat16 and self.parallel.alone)  # else gradients wait where they are
            self.constant = Constant(-(-batches.batch_tokens // self.parallel.world), batches.longest)
        if self.parallel.sharded:
            model.to("cpu")
        self.optimizers = optimizer.build(trained, self.parameters, config)
        self.averaging = Averaging(config, directory, self.parameters)
        self.progress = Progress(plateau=Plateau(config.plateau_factor, config.plateau_patience))
        self.schedule = Schedule(config.learning_rate, config.warmup, config.max_updates, width)
        self.unread = torch.zeros((), dtype=torch.float64, device=self.device)  # losses, summed where the model lies
        self.stop = False  # set from outside (a signal, a callback) to stop after the batch at hand
        self.saved: Path | None = None  # the checkpoint last saved or taken up
        self.threads = torch.get_num_threads()  # what the checkpoint taken up was computed with, else this process's

    def _backward(self, batch: Batch, part: int = 1) -> Tensor:
        """The batch's summed loss; its gradients are added to those that wait.

        What does not fit in memory is cut in two: part 1 is the whole, 2 and 3 are its halves, and so on.
        """
        try:
            return self._attempt(batch, part)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if self.bare.carry:  # a part of its rows would end with a state of its own
                raise ModelError("a batch does not fit in memory; lower data.batch_tokens.") from error
            if not self.parallel.alone:  # the others' passes cannot be undone
                raise self.parallel.too_large(batch) from error
        # Outside of the handler, which would keep alive what the failed attempt holds.
        self.model.zero_grad()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        first, second = halves(batch)
        self.progress.cuts += 1
        cut = {"update": self.progress.update + 1, "target_tokens": batch.target_tokens, "cuts": self.progress.cuts}
        self.report({"event": "cut", **cut})
        return self._backward(first, 2 * part) + self._backward(second, 2 * part + 1)

    def _attempt(self, batch: Batch, part: int) -> Tensor:
        """The forward and the backward pass of a batch, or of a part of one."""
        parallel, now = self.parallel, self.progress
        seed = (self.seed * 0x9E3779B97F4A7C15 + now.microstep + (part - 1) * 0xBF58476D1CE4E5B9) % 2**63
        last = (now.microstep + 1) % self.config.accumulate == 0
        if not parallel.alone:
            batch, seed = parallel.share(batch), parallel.seed(seed)
        torch.manual_seed(seed)
        constant = self.constant and self.constant.part(part)
        if constant:
            torch.compiler.cudagraph_mark_step_begin()
        with nullcontext() if parallel.alone else parallel.reducing(self.step, last):
            loss: Tensor = self.step(inputs(batch, self.device, constant, positions=self.positions))
            loss.backward()
        if last or parallel.alone:
            self.weights.accumulate()
        return loss.detach()

    def _update(self) -> tuple[Tensor | float, float]:
        """One optimiser update from the gradients that wait; returns the gradient's norm and the learning rate."""
        for name, gradient in self.weights.gradients.items():
            self.parameters[name].grad = gradient
        self.weights.gradients = {}
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        torch._foreach_mul_(gradients, self.parallel.world / self.progress.pending)  # they are the processes' mean
        norm: Tensor | float = math.nan
        if self.config.clip:
            total = torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.config.clip)
            norm = total if self.parallel.alone else whole(total)
        self.progress.update += 1
        rate = self.rate(self._schedule(), self.progress.update)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.weights.copy_to_model(self.parameters)
        if self.averaging.ema:
            self.averaging.follow(self.parameters, self.progress.update)
        return norm, rate

    def _schedule(self) -> Schedule:
        """The schedule as it is now; by the clock with as many updates in all as the minutes will hold."""
        scaled = replace(self.schedule, scale=self.progress.plateau.scale)
        if not self.config.minutes or not self.progress.trained:
            return scaled
        total = round(self.progress.update * 60 * self.config.minutes / self.progress.trained)
        return replace(scaled, total=min(self.schedule.total, max(total, self.progress.update)))

    def run(self) -> None:
        """Train to the end; raises Interrupted, with a checkpoint saved, where `stop` was set.

        With several processes all of them stop after the update at hand if it was set in any. Raises TrainingError
        where the loss is no longer finite; nothing is saved after that.
        """
        try:
            self._run()
        finally:
            self.batches.close()

    def _run(self) -> None:
        now, config, parallel = self.progress, self.config, self.parallel
        self.step.train()
        began = mark = time.perf_counter()
        spent = now.seconds
        while not self._finished():
            batch, asked = next(self.batches), 0.0
            self.unread = self.unread + self._backward(batch)
            now.pending += batch.target_tokens
            now.microstep += 1
            if now.microstep % config.accumulate == 0:
                norm, rate = self._update()
                self._read_losses(rarely=self.device.type != "cpu" and parallel.alone)
                lap = time.perf_counter() - mark
                sums = now.pending_loss, float(self.stop), lap
                now.pending_loss, asked, used = sums if parallel.alone else parallel.sum(*sums)
                self._check_finite(now.pending_loss)
                now.seconds = spent + mark + lap - began
                now.trained += used / parallel.world
                now.tokens += now.pending
                for key, gain in (("loss", now.pending_loss), ("tokens", now.pending), ("seconds", lap)):
                    now.window[key] += gain
                now.pending, now.pending_loss, mark = 0, 0.0, mark + lap
                if now.update % config.log_every == 0 or now.update == 1:
                    self._log(norm, rate)
                for callback in self.callbacks:
                    callback.on_update(self)
                if config.average == "last" and now.update % config.average_every == 0:
                    weights = self._whole_weights()
                    if parallel.main:
                        self.averaging.snapshot(weights, now.update)
                last = now.update == config.max_updates or self._late()
                if self.validate and (now.update % config.validate_every == 0 or last):
                    self._validate()
                    mark = time.perf_counter()
                    now.seconds = spent + mark - began
                if now.update % config.save_every == 0 or self._finished():
                    self.save()
                    mark = time.perf_counter()
            if self.stop if parallel.alone else asked:
                raise Interrupted(self.save())
        path = self.save()
        if any(parallel.sum(self.stop)):
            raise Interrupted(path)

    def _read_losses(self, rarely: bool = False) -> None:
        """Add the losses that are not read yet to those that wait; a GPU that is always asked waits in between."""
        c, update = self.config, self.progress.update
        if not rarely or update == 1 or not all(update % n for n in (c.log_every, c.validate_every, c.save_every)):
            self.progress.pending_loss += float(self.unread)
            self.unread = torch.zeros_like(self.unread)

    def _finished(self) -> bool:
        c, now = self.config, self.progress
        return (
            now.update >= c.max_updates
            or self._late()
            or (c.epochs > 0 and self.batches.epoch >= c.epochs)
            or (c.patience > 0 and now.waited >= c.patience)
        )

    def _late(self) -> bool:
        return 0 < 60 * self.config.minutes <= self.progress.trained

    def _check_finite(self, loss: float) -> None:
        """Raises TrainingError, in every process, for a loss that is not finite."""
        if not math.isfinite(loss):
            rate = self.rate(self._schedule(), max(1, self.progress.update))
            raise TrainingError(
                f"training has diverged: at update {self.progress.update} the loss is {loss} and the learning rate is "
                f"{rate:.3g}. Begin again in another --out with a lower train.learning_rate, a longer train.warmup or "
                f"train.clip = 1.0; the checkpoints in {self.checkpoints} are from before and stay."
            )

    def _log(self, norm: Tensor | float, rate: float) -> None:
        now = self.progress
        event: Event = {"event": "train", "update": now.update, "epoch": self.batches.epoch}
        event |= {"loss": now.window["loss"] / now.window["tokens"], "learning_rate": rate, "norm": float(norm)}
        event |= {"tokens": now.tokens, "tokens_per_second": now.window["tokens"] / now.window["seconds"]}
        self.report({**event, "seconds": now.seconds, "trained": now.trained})
        now.window = dict.fromkeys(now.window, 0.0)

    def _validate(self) -> None:
        """Judge the averaged weights, or those trained; the first process does, the others hear how good they are."""
        now, parallel = self.progress, self.parallel
        judged = parallel.whole(self.averaging.ema or self.parameters)
        scores: dict[str, float] = {}
        value = 0.0
        if parallel.main:
            scores = self._scores(judged)
            value = -scores["loss"] if self.config.validate_with == "loss" else scores[self.config.validate_with]
        parallel.barrier()
        (value,) = parallel.sum(value)
        improved = now.best["value"] is None or value > now.best["value"]
        if improved:
            now.best = {"value": value, "update": now.update, "scores": scores}
            if self.config.keep == "best" and parallel.main:
                checkpoint.write_durably(self.averaging.best, judged)
        now.waited = 0 if improved else now.waited + 1
        now.plateau.validated(improved)
        self.report({"event": "validate", "update": now.update, "improved": improved, **scores})
        for callback in self.callbacks:
            callback.on_validation(self, scores)

    def _scores(self, judged: dict[str, Tensor]) -> dict[str, float]:
        """What `validate` finds of the model with these weights."""
        assert self.validate is not None
        if self.parallel.sharded:
            self.model.to(self.device)
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    parameter.copy_(judged[name])
            scores = self.validate(self.model.eval())
            self.model.train().to("cpu")
            return scores
        trained = {n: p.detach().clone() for n, p in self.parameters.items()}
        self.weights.copy_to_model(judged)
        scores = self.validate(self.model.eval())
        self.model.train()
        self.weights.copy_to_model(trained)
        return scores

    def _whole_weights(self) -> dict[str, Tensor]:
        return self.parallel.whole({n: p.detach() for n, p in self.parameters.items()})

    def final_weights(self) -> dict[str, Tensor]:
        """The weights that the bundle gets, as `keep` and `average` say; all processes must ask."""
        ema = self.averaging.ema
        return self.averaging.final(self.parallel.whole(ema) if ema else self._whole_weights())

    def save(self) -> Path:
        """Save everything needed to go on exactly; returns where. Nothing is written twice."""
        now = self.progress
        self._read_losses()
        self._check_finite(now.pending_loss)
        title = f"update-{now.update:09d}-{now.microstep:010d}"
        if self.saved is not None and self.saved.name == title:
            return self.saved
        kept, values = state_of(self.optimizers, self.parameters)
        groups: dict[str, Mapping[str, Tensor]]
        groups = {"model": self.parameters, "gradient": self.weights.gradients, "ema": self.averaging.ema}
        if self.bare.carried is not None:
            groups["carried"] = {"state": self.bare.carried}
        tensors = kept | {f"{group}.{name}": t.detach() for group, held in groups.items() for name, t in held.items()}
        state: Event = {"progress": asdict(now), "optimizer": values, "position": self.batches.position()}
        state |= {"threads": torch.get_num_threads(), "seed": self.seed}
        made = checkpoint.Checkpoint(tensors, state)
        self.saved = checkpoint.save(self.checkpoints, title, made, self.config.keep_checkpoints, self.parallel)
        for callback in self.callbacks:
            callback.on_checkpoint(self, self.saved)
        return self.saved

    def resume(self) -> Path | None:
        """Take up the newest checkpoint that is whole, if there is one; returns its path. See `newest_whole`."""
        held = checkpoint.newest_whole(self.checkpoints, self.parallel, self.report)
        if held is None:
            return None
        state, path = held.state, held.path
        if state["seed"] != self.seed:
            raise CheckpointError(f"{path}: saved with seed {state['seed']}, the recipe says {self.seed}")
        for name, parameter in self.parameters.items():
            saved = held.tensors.get(f"model.{name}")
            if saved is None or saved.shape != parameter.shape:
                raise CheckpointError(f"{path}: belongs to another model ({name} differs); choose another --out")
            with torch.no_grad():
                parameter.copy_(like(saved, parameter))
            if (gradient := held.tensors.get(f"gradient.{name}")) is not None:
                self.weights.gradients[name] = like(gradient, parameter) / self.parallel.world  # as a mean
            if self.averaging.ema:
                self.averaging.ema[name].copy_(like(held.tensors[f"ema.{name}"], parameter))
        if self.bare.carry:
            carried = like(held.tensors["carried.state"], next(iter(self.parameters.values())))
            self.bare.carried = carried.clone()  # memory of our own, aligned as it was when the run was not interrupted
        restore_state(self.optimizers, self.parameters, held.tensors, state["optimizer"])
        self.weights.copy_to_model(self.parameters)
        self.progress = Progress.restored(state["progress"])
        self.threads = state["threads"]
        self.batches.seek(state["position"])
        self.saved = path
        return path
