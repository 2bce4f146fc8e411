"""An adapter is learnt: low-rank changes of a model's matrices, with replay of what it knows (Hu et al. 2021).

To each batch of the new pairs comes one of replay, on which the model is held to the predictions that it made before,
so that what is learnt here is not paid for there. The weights themselves stay as they are; each step computes with W +
up down, in the precision and by the products that training takes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from regard.bundle import Bundle
from regard.data.batches import Batch
from regard.errors import TrainingError
from regard.kernels import native
from regard.machine import stopping
from regard.models.blocks import resolve_precision
from regard.train.checkpoint import Checkpoint, restore_state, state_of
from regard.train.objectives import Inputs
from regard.train.step import Step, inputs

from .examples import Examples, Ids, Passes, batches
from .file import ADDED, DOWN, UP, Adapter, Array, Card, digest_of
from .settings import MB, Learning
from .unfinished import Unfinished

Report = Callable[[Mapping[str, object]], None]
_CHECKS = 8  # how often the held-out pairs are looked at in a whole run, at least once an epoch


class Adapted(nn.Module):
    """A model whose weights stay, with low-rank changes of them that learn."""

    def __init__(self, model: nn.Module, settings: Learning) -> None:
        super().__init__()
        self.settings = settings
        self.halved = resolve_precision("auto", torch.device("cpu"), max(p.shape[-1] for p in model.parameters()))
        self.step = Step(model, settings.label_smoothing, 1024)
        self.kept = {name: parameter.detach() for name, parameter in model.named_parameters()}
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        chosen = chosen_names({name: tuple(p.shape) for name, p in self.kept.items()}, settings.layers)
        self.rank = settings.rank or fitting_rank({n: tuple(self.kept[n].shape) for n in chosen}, settings.max_mb)
        draw = torch.Generator().manual_seed(settings.seed)
        self.parts: dict[str, nn.Parameter] = {}
        for name in chosen:
            shape = self.kept[name].shape
            if len(shape) == 1:
                self.parts[name + ADDED] = nn.Parameter(torch.zeros(shape))
                continue
            self.parts[name + DOWN] = nn.Parameter(
                torch.randn(self.rank, shape[1], generator=draw) / math.sqrt(shape[1])
            )
            self.parts[name + UP] = nn.Parameter(torch.zeros(shape[0], self.rank))
        self.still = {n: p.bfloat16() if self.halved else p for n, p in self.kept.items() if n not in set(chosen)}
        self.chosen = chosen
        self.began = {n: p.bfloat16() if self.halved else p for n, p in self.kept.items()}
        self.hidden = _Hidden(self.step)
        first = {id(parameter): name for name, parameter in model.named_parameters()}
        every = self.step.named_parameters(remove_duplicate=False)
        self.aliases = {alias: first[id(parameter)] for alias, parameter in every}  # a shared matrix has several names

    def weights(self) -> dict[str, Tensor]:
        """The parameters to compute with."""
        found = dict(self.still)
        for name in self.chosen:
            kept = self.kept[name]
            if kept.dim() == 1:
                made = kept + self.parts[name + ADDED]
            else:
                made = torch.addmm(kept, self.parts[name + UP], self.parts[name + DOWN])
            found[name] = made.bfloat16() if self.halved else made
        return found

    def loss(self, batch: Batch, weights: Mapping[str, Tensor]) -> Tensor:
        """The summed loss of a batch."""
        named = {alias: weights[name] for alias, name in self.aliases.items()}
        given = inputs(batch, torch.device("cpu"))
        loss: Tensor = functional_call(self.step, named, (given,), tie_weights=False)
        return loss

    def drift(self, batch: Batch, weights: Mapping[str, Tensor]) -> Tensor:
        """Summed cross-entropy of the model's predictions against those that it made before it was changed.

        Both are made without dropout, and differ by a constant from the divergence of Kullback and Leibler (knowledge
        distillation with one model as both: Li and Hoiem 2018, equation 2, at temperature 1).
        """
        given = inputs(batch, torch.device("cpu"))
        real = given.targets.flatten() >= 0
        self.step.eval()

        def predictions(of: Mapping[str, Tensor]) -> Tensor:
            named = {f"step.{alias}": of[name] for alias, name in self.aliases.items()}
            hidden: Tensor = functional_call(self.hidden, named, (given,), tie_weights=False)
            weight, bias = (of.get(self.aliases.get(f"model.output.{end}", "")) for end in ("weight", "bias"))
            assert weight is not None
            rows = hidden.flatten(0, -2)[real].to(weight.dtype)
            return torch.nn.functional.linear(rows, weight, bias).float()

        with torch.autocast("cpu", torch.bfloat16, enabled=self.halved):
            with torch.no_grad():
                before = predictions(self.began).softmax(-1)
            now = predictions(weights).log_softmax(-1)
        self.step.train()
        return -(before * now).sum()

    @torch.no_grad()
    def judged(self, pairs: Sequence[Ids], tokens: int) -> float:
        """Natural logarithm of the perplexity of pairs."""
        self.step.eval()
        smoothing, self.step.smoothing = self.step.smoothing, 0.0
        weights, draw = self.weights(), np.random.default_rng(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.halved):
            sums = [(float(self.loss(b, weights)), b.target_tokens) for b in batches(pairs, 4 * tokens, draw)]
        self.step.smoothing = smoothing
        self.step.train()
        return sum(loss for loss, _ in sums) / sum(count for _, count in sums)

    def taken(self) -> dict[str, Array]:
        """The changes as they are now, as they are stored: in half precision."""
        return {n: p.detach().half().float().numpy().copy() for n, p in self.parts.items()}


class _Hidden(nn.Module):
    """What a step projects, as a module whose parameters can be others'."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step

    def forward(self, given: Inputs) -> Tensor:
        return self.step.hidden(given)


def chosen_names(shapes: Mapping[str, tuple[int, ...]], layers: Sequence[str]) -> list[str]:
    """The parameters that learn: all but learned positions, or those with one of these words in their names."""
    found = [n for n, s in shapes.items() if len(s) in (1, 2) and "positions" not in n]
    found = [n for n in found if not layers or any(word in n for word in layers)]
    if not found:
        raise TrainingError(
            f"--layers {' '.join(layers)}: no parameter has this in its name; try encoder, decoder, attention or "
            "feedforward."
        )
    return found


def fitting_rank(shapes: Mapping[str, tuple[int, ...]], most_mb: float) -> int:
    """The largest rank, 32 at most, whose adapter has no more megabytes in half precision."""
    room = most_mb * MB / 2 - 4096 * len(shapes) / 10 - sum(s[0] for s in shapes.values() if len(s) == 1)
    each = sum(sum(s) for s in shapes.values() if len(s) == 2)
    rank = min(32, int(room // each)) if each else 0
    if rank < 1 and each:
        raise TrainingError(
            f"--max-mb {most_mb}: the adapter of so many parameters takes more; choose fewer with --layers, or allow "
            "more."
        )
    return rank


@dataclass
class _Best:
    """What was best on the held-out pairs so far."""

    value: float = math.inf
    parts: dict[str, Array] = field(default_factory=dict)
    losses: tuple[float, float] = (math.nan, math.nan)
    update: int = 0


def learn(
    model: nn.Module,
    new: Examples,
    home: Examples | None,
    settings: Learning,
    report: Report,
    unfinished: Unfinished | None = None,
) -> tuple[dict[str, Array], dict[str, int | float | str | None]]:
    """The parts of an adapter of a model, and what is worth telling of how it was learnt.

    Ctrl-C and SIGTERM end it after the update at hand: what was best by then is taken, and `unfinished` keeps what is
    needed to go on; a second one ends it at once. Raises TrainingError where nothing finite is learnt.
    """
    torch.manual_seed(settings.seed)
    native.keep_memory()
    learner = Adapted(model, settings)
    learner.step.train()
    run = _Run(learner, new, home, settings, report)
    if unfinished is not None and (held := unfinished.load()) is not None:
        run.restore(held)
        report({"event": "resumed", "update": run.update, "seconds": run.seconds})
    with stopping(run.ask_to_stop):
        run.whole()
        if run.stop and unfinished is not None and run.update:
            unfinished.save(run.update, *run.state())
        if run.stop and run.update and not run.best.parts:
            run.check()
    best = run.best
    if not best.parts:
        raise TrainingError("nothing was learnt yet when it was stopped; give it more time.")
    first = run.first
    about: dict[str, int | float | str | None] = {
        "pairs": len(new.train), "held_out": len(new.held_out), "replayed": len(home.train) if home else 0,
        "rank": learner.rank, "updates": run.update, "best_update": best.update, "seconds": round(run.seconds, 1),
        "loss_before": first[0], "loss_after": best.losses[0],
        "home_loss_before": first[1], "home_loss_after": best.losses[1],
    }  # fmt: skip
    about = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in about.items()}
    return best.parts, {**about, "precision": "bfloat16" if learner.halved else "float32", "stopped": run.stop}


class _Run:
    """One run of learning."""

    def __init__(
        self, learner: Adapted, new: Examples, home: Examples | None, settings: Learning, report: Report
    ) -> None:
        self.learner, self.new, self.home, self.settings, self._hears = learner, new, home, settings, report
        self.best, self.update, self.seconds, self.stop = _Best(), 0, 0.0, False
        self.first = math.nan, math.nan
        self.draw = np.random.default_rng(settings.seed)
        self.passes = Passes(new.train, settings.batch_tokens, self.draw)
        replayed = home is not None and settings.replay_share > 0
        self.replay = Passes(home.train, settings.batch_tokens, self.draw) if home and replayed else None
        parts = learner.parts.values()
        self.optimizer = torch.optim.AdamW(parts, lr=0.0, betas=(0.9, 0.98), weight_decay=0.01, fused=True)

    def ask_to_stop(self) -> None:
        """Ends the run after the update at hand; asked twice, at once."""
        if self.stop:
            raise KeyboardInterrupt
        self.stop = True

    def report(self, event: Mapping[str, object]) -> None:
        """Tells of an event; who hears of it may stop the run by KeyboardInterrupt."""
        try:
            self._hears(event)
        except KeyboardInterrupt:
            self.ask_to_stop()

    def state(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        """Tensors and plain values, from which `restore` goes on with the same bits."""
        parts, best = self.learner.parts, self.best
        tensors, values = state_of([self.optimizer], parts)
        tensors |= {f"part.{name}": part for name, part in parts.items()}
        tensors |= {f"best.{name}": torch.from_numpy(part) for name, part in best.parts.items()}
        tensors["draw"] = torch.get_rng_state()
        state = {
            "update": self.update, "seconds": self.seconds, "first": self.first, "optimizer": values,
            "best": [best.value, best.losses, best.update], "draw": self.draw.bit_generator.state,
            "passes": self.passes.state(), "replay": self.replay and self.replay.state(),
        }  # fmt: skip
        return tensors, state

    def restore(self, held: Checkpoint) -> None:
        """Takes up what `state` made."""
        state, tensors, parts = held.state, held.tensors, self.learner.parts
        self.update, self.seconds, self.first = state["update"], state["seconds"], tuple(state["first"])
        with torch.no_grad():
            for name, part in parts.items():
                part.copy_(tensors[f"part.{name}"])
        restore_state([self.optimizer], parts, tensors, state["optimizer"])
        value, losses, update = state["best"]
        best = {n.removeprefix("best."): tensors[n].numpy() for n in tensors if n.startswith("best.")}
        self.best = _Best(value, best, tuple(losses), update)
        self.passes.restore(state["passes"])
        if self.replay is not None:
            self.replay.restore(state["replay"])
        self.draw.bit_generator.state = state["draw"]
        torch.set_rng_state(tensors["draw"])

    def whole(self) -> None:
        """All updates, until the epochs or the minutes are over, or it is asked to stop."""
        s = self.settings
        if not self.update:
            self.best.losses = self.first = self._losses()
        began = time.perf_counter() - self.seconds
        each = sum(1 for _ in batches(self.new.train, s.batch_tokens, np.random.default_rng(0)))
        total = each * s.epochs
        every = max(1, min(each, total // _CHECKS))
        while self.passes.left or self.passes.begun < s.epochs:
            if self.stop:
                return
            self.seconds = time.perf_counter() - began
            late = self.seconds / (60 * s.minutes)
            done = late if late > (self.update + 1) / total else self.update / total  # the clock counts if it must
            if done >= 1:
                break
            self._step(self.passes.take(), done, min(1.0, (self.update + 1) / min(50, total)))
            if self.update % every == 0:
                self.check()
            self.seconds = time.perf_counter() - began
        self.check()

    def _step(self, batch: Batch, done: float, warm: float) -> None:
        """One update; the learning rate rises over the first ones, then falls on a line to 0 at the end."""
        learner, s = self.learner, self.settings
        weights = learner.weights()
        loss = learner.loss(batch, weights) / batch.target_tokens
        shown = float(loss.detach())
        if self.replay is not None:
            again = self.replay.take()
            same = learner.drift if s.distil else learner.loss
            loss = loss + s.replay_share * same(again, weights) / again.target_tokens
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learner.parts.values(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = s.learning_rate * warm * (1 - done)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.update += 1
        if not math.isfinite(shown):
            raise TrainingError(f"learning has diverged at update {self.update}; lower --learning-rate.")
        self.report({"event": "learn", "update": self.update, "loss": shown, "done": done})

    def _losses(self) -> tuple[float, float]:
        judge, s = self.learner.judged, self.settings
        here = judge(self.new.held_out or self.new.train, s.batch_tokens)
        return here, judge(self.home.held_out or self.home.train, s.batch_tokens) if self.home else math.nan

    def check(self) -> None:
        """Keeps the changes if they are the best by the losses of what was held out, here and at home together."""
        losses = self._losses()
        value = losses[0] + (losses[1] if self.home else 0.0)
        if value < self.best.value:
            self.best = _Best(value, self.learner.taken(), losses, self.update)
        self.report({"event": "check", "update": self.update, "losses": losses, "improved": value == self.best.value})


def adapter_of(bundle: Bundle, parts: Mapping[str, Array], about: Mapping[str, int | float | str | None]) -> Adapter:
    """What was learnt, as an adapter of the bundle."""
    card = Card(
        weights=digest_of(bundle),
        bundle=bundle.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        about=dict(about),
    )
    return Adapter(card, parts)
