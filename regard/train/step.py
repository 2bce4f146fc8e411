"""One training step: a batch in, its summed loss out; which way the weights go, and how far.

`Step` is the module that is wrapped for many processes and compiled, so everything that needs a gradient is inside it.
Sizes: B sentences, S and T longest source and target, L all tokens of a side, padding included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.data.batches import Batch, Ints
from regard.errors import ModelError
from regard.models.blocks import around_layers
from regard.nn.layers import unavailable
from regard.nn.state import Observer, Packed
from regard.settings import TrainConfig

from .objectives import OBJECTIVES, Constant, Inputs, LossSettings, Objective, Outputs, token_losses
from .regularizers import Regularizer, Term

_ROWS, _COLUMNS, _TOKENS = 8, 4, 128
_ANY = 16
"""What is padded to a multiple: the rows and columns of padded batches, the tokens of packs.

Matrix libraries compile a product for each shape they meet and forget the oldest: of few shapes they forget none. What
is added is padding, and rows of length 0. Our own products compile nothing: with them packs have a multiple of _ANY.
"""

CHUNKS = {"cpu": 1, "cuda": 8}
"""By which `train.chunk` is multiplied: a GPU is slow with many small products."""


def inputs(
    batch: Batch, device: torch.device, constant: Constant | None = None, *, positions: int | None = None
) -> Inputs:
    """The batch on a device, padded to one of few shapes, or to a constant one.

    Padding makes no line longer than `positions`, the most that the model knows; with 0 the batch is as it is.
    """
    packed = batch.layout == "packed"
    few = _ANY if unavailable("linear", device.type, torch.bfloat16) is None else _TOKENS
    full = -(-constant.tokens // _TOKENS) * _TOKENS if constant else few
    steps = (full,) if packed else (_ROWS, _COLUMNS)
    lines = 1 if packed else _ROWS

    def padded(x: Ints, steps: tuple[int, ...], value: int = 0) -> Tensor:
        room = [(0, -size % step if positions != 0 else 0) for size, step in zip(x.shape, steps, strict=False)]
        if x.ndim == 2 and positions is not None:
            room[1] = (0, max(0, min(room[1][1], positions - x.shape[1])))
        made = torch.from_numpy(np.pad(x, room, constant_values=value))
        # From pinned memory a copy to a GPU goes on while the one before is still computed with.
        return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made.to(device)

    def width(lengths: Ints, side: int) -> int:
        longest = int(lengths.max())
        if constant is None or longest <= constant.widths[side]:
            return constant.widths[side] if constant else longest
        doubled = 1 << (longest - 1).bit_length()  # a row that was drawn anew has more tokens than any had
        return doubled if positions is None else max(longest, min(doubled, positions))

    def counted(lengths: Ints, value: int = 0) -> Tensor:
        if constant is None:
            return padded(lengths, (lines,), value)
        from torch._dynamo import maybe_mark_dynamic  # what training without a compiler need not load

        made = padded(lengths, (max(_ROWS, 1 << (len(lengths) - 1).bit_length()),), value)
        maybe_mark_dynamic(made, 0)
        return made

    targets = batch.target_output
    if not packed:
        targets = np.where(np.arange(targets.shape[1]) < batch.target_lengths[:, None], targets, -1)
    source, tokens = padded(batch.source, steps), padded(batch.target_input, steps)
    return Inputs(
        batch.layout,
        source,
        counted(batch.source_lengths),
        tokens,
        padded(targets, steps, -1),
        counted(batch.target_lengths),
        (width(batch.source_lengths, 0), width(batch.target_lengths, 1))
        if packed
        else (source.shape[1], tokens.shape[1]),
        continues=batch.continues,
        lines=counted(batch.lines, -1),
    )


class Step(nn.Module):
    """A model with its objective: `Inputs` -> the summed loss of their targets, regularisers in its gradient.

    With `again` a layer keeps its inputs, and the backward pass computes the rest again (Chen et al. 2016, section 4).
    """

    def __init__(
        self,
        model: nn.Module,
        smoothing: float,
        chunk: int,
        objective: Objective = OBJECTIVES["translate"],
        terms: Sequence[Term] = (),
        carry: bool = False,
    ) -> None:
        super().__init__()
        self.carry = carry
        self.carried: Tensor | None = None  # with `carry` the packed state that the last batch ended with
        self.objective, self.terms = objective, terms
        self.model, self.smoothing, self.chunk, self.again = model, smoothing, chunk, False
        self._run: Callable[..., Tensor] = self.hidden

    def compile_model(self, graphs: bool) -> None:
        """Let PyTorch compile the model, for each shape anew: for packs of constant shape on a GPU.

        With `graphs` kernels are begun together: a CUDA graph for each power of two of lines. The next step writes over
        what is computed then: nothing of it may be kept, nor gradients, and a batch goes through the model once.
        """
        graphs = graphs and not self.carry and not any(term.entry.agree for term in self.terms)
        if not any(term.entry.attention for term in self.terms):
            limit = "triton.cudagraph_dynamic_shape_warn_limit"
            self._run = torch.compile(self.hidden, dynamic=False, options={"triton.cudagraphs": graphs, limit: 32})

    @torch.no_grad()
    def stays_packed(self, x: Inputs, bfloat16: bool) -> bool:
        """Whether the model computes on packs without making rows of them, most of which would be padding.

        It is tried on some inputs, in bfloat16 or not.
        """
        layouts = {side: x.layout(side) for side in ("source", "target")}
        watched = cast(Inputs, SimpleNamespace(**vars(x), layout=layouts.__getitem__))
        with torch.autocast(x.source.device.type, torch.bfloat16, enabled=bfloat16):
            self.objective.hidden(self.model, watched, None)
        return all(isinstance(layout, Packed) and not layout.was_padded for layout in layouts.values())

    def hidden(self, x: Inputs, observe: Observer | None = None) -> Tensor:
        """The model's output for every target, (B, T, D), (B, D) or (L, D); `observe` is given what it wants to see."""
        if not self.carry:
            return self.objective.hidden(self.model, x, observe)
        observe, rows = observe or Observer(), len(x.source_lengths)
        before = self.carried[..., :rows, :] if x.continues and self.carried is not None else None
        hidden = self.objective.hidden(self.model, replace(x, before=before), observe)
        self.carried = None if observe.state is None else observe.state.packed()
        return hidden

    def targets(self, x: Inputs) -> Tensor:
        """The target of every row of `hidden`, (N,)."""
        if self.objective.targets == "one":
            return x.targets[: len(x.source_lengths)] if x.kind == "packed" else x.targets[:, 0]
        return x.targets.flatten()

    def outputs(self, x: Inputs) -> Outputs:
        """What the model computes for the targets, as validation judges it."""
        return Outputs(x, self.hidden(x).flatten(0, -2), self.targets(x), self.objective.attention)

    def forward(self, x: Inputs) -> Tensor:
        active = [(term.entry, term.value) for term in self.terms] if self.training else []
        agreeing = [(entry.agree, value) for entry, value in active if entry.agree]
        before = self.carried
        loss, outputs = self._pass(x, active)
        if not agreeing:
            return loss
        self.carried = before
        other, again = self._pass(x, active)
        added = torch.stack([agree(value, self.model, outputs, again, self.chunk) for agree, value in agreeing]).sum()
        return (loss + other) / 2 + added - added.detach()  # what is reported is the model's own loss

    def _pass(self, x: Inputs, active: Sequence[tuple[Regularizer, Tensor]]) -> tuple[Tensor, Outputs]:
        """The batch's summed loss, what the regularisers add in its gradient, and what the model computed."""
        for entry, value in active:
            x = x if entry.inputs is None else entry.inputs(value, x)
        part = self.objective.attention
        observe = Observer(part) if any(entry.attention for entry, _ in active) else Observer()
        twice = partial(checkpoint, use_reentrant=False)
        with around_layers(self.model, twice) if self.again and self.training else nullcontext():
            hidden, targets = self._run(x, observe).flatten(0, -2), self.targets(x)
        adding = self.training and bool(observe.losses or any(entry.add for entry, _ in active))
        lines = self._lines(x) if adding else None
        if self.objective.targets == "some":
            kept = (targets >= 0).nonzero()[:, 0]
            count = len(kept)
            kept = F.pad(kept, (0, -count % _TOKENS))  # the first position again, as padding: few shapes here too
            hidden, lines = hidden[kept], None if lines is None else lines[kept]
            targets = F.pad(targets[kept[:count]], (0, len(kept) - count), value=-1)
        outputs = Outputs(x, hidden, targets, part, lines, observe.weights.get(part))
        weights = [entry.weigh(value, targets.clamp(min=0)) for entry, value in active if entry.weigh]
        counts = math.prod(weights[1:], start=weights[0]) if weights else None
        loss = self.objective.loss(self.model, outputs, LossSettings(self.smoothing, self.chunk, counts))
        if not adding:
            return loss, outputs
        added = [entry.add(value, self.model, outputs) for entry, value in active if entry.add]
        total = torch.stack([*self._auxiliary(outputs, observe.losses), *added]).sum()
        return loss + total - total.detach(), outputs

    def _lines(self, x: Inputs) -> Tensor:
        """Which line of the batch each target is of, (N,); B: of none."""
        lines = torch.arange(len(x.source_lengths), device=x.targets.device)
        if self.objective.targets == "one":
            return lines
        if isinstance(pack := x.layout("target"), Packed):
            return pack.sequences()
        return lines.repeat_interleave(x.targets.shape[1])

    def _auxiliary(self, outputs: Outputs, parts: Sequence[Callable[[Tensor, Tensor], Tensor]]) -> list[Tensor]:
        """What parts of the model add to the loss."""
        if not parts:
            return []
        output: Any = self.model.output
        losses = token_losses(outputs.hidden, output.weight, output.bias, outputs.targets, self.smoothing, self.chunk)
        each, tokens = outputs.sum_lines(losses), outputs.sum_lines((outputs.targets >= 0).float())
        return [part(each, tokens) for part in parts]


class Weights:
    """A model's weights as the optimiser sees them, float32; with `bfloat16` the model computes with copies.

    It is cast once an update, and its gradients are summed in float32 (Micikevicius et al. 2018, section 3.1).
    """

    def __init__(self, model: nn.Module, bfloat16: bool) -> None:
        self.used = dict(model.named_parameters())  # what the model computes with
        self.masters: dict[str, nn.Parameter] = dict(self.used) if bfloat16 else self.used  # what the optimiser changes
        self.gradients: dict[str, Tensor] = {}  # summed since the last update, in float32
        if bfloat16:
            # Parameters that are not trained, such as running averages, stay as they are, in float32.
            for name, used in self.used.items():
                if used.requires_grad:
                    self.masters[name] = nn.Parameter(used.detach().float().clone())
                    used.data = used.data.bfloat16()

    def accumulate(self) -> None:
        """Add the gradients of the latest backward pass to `gradients`, and clear them in the model."""
        fresh = {name: used.grad for name, used in self.used.items() if used.grad is not None}
        for name in fresh.keys() & self.gradients.keys():
            self.gradients[name] += fresh.pop(name)
        narrow = {n: g for n, g in fresh.items() if g.dtype != self.masters[n].dtype}
        made = [torch.empty_like(gradient, dtype=self.masters[name].dtype) for name, gradient in narrow.items()]
        if made:  # all at once: on a GPU each by itself would take longer to begin than to be done
            torch._foreach_copy_(made, [*narrow.values()])
        self.gradients |= fresh | dict(zip(narrow, made, strict=True))
        for used in self.used.values():
            used.grad = None

    @torch.no_grad()
    def copy_to_model(self, values: Mapping[str, Tensor]) -> None:
        """Let the model compute with these values; `copy_to_model(masters)` brings the optimiser's own."""
        if values is not self.used:
            torch._foreach_copy_(list(self.used.values()), [values[name] for name in self.used])


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """The first and the second half of a batch's rows, which go on where the whole does not fit in memory.

    Dropout aside, their losses and gradients add up to the batch's, to rounding. Raises ModelError for a single row.
    """
    rows = len(batch)
    if rows < 2:
        raise ModelError(
            f"one pair of {batch.source_tokens} source and {batch.target_tokens} target tokens does not fit in memory; "
            "lower data.filters.max_length or train.chunk, choose a smaller model, or free some memory."
        )
    return batch.part(0, (rows + 1) // 2), batch.part((rows + 1) // 2, rows)


# -- optimisers: one more is one more entry ----------------------------------------------------------------------------

Named = Mapping[str, nn.Parameter]
State = dict[str, Any]  # what PyTorch keeps for a parameter, or for a group of them


@dataclass(frozen=True)
class Optimizer:
    """What the rest of the program needs to know of an optimiser."""

    build: Callable[[nn.Module, Named, TrainConfig], Sequence[torch.optim.Optimizer]]
    """The model, its float32 parameters by name, `[train]` -> optimisers that share the parameters out."""
    state: float = 2.0  # how many numbers it keeps for each weight, about: for the memory that `regard plan` foresees
    sharded: bool = True  # whether it can work on weights of which each process holds a part (train.parallel = "fsdp")


def decayed(parameters: Named, weight_decay: float) -> list[State]:
    """Parameters in groups for an optimiser: matrices decay; norms and biases, which have one dimension, do not."""
    if not weight_decay:
        return [{"params": list(parameters.values()), "weight_decay": 0.0}]
    matrices = [p for p in parameters.values() if p.dim() > 1]
    vectors = [p for p in parameters.values() if p.dim() <= 1]
    return [{"params": p, "weight_decay": d} for p, d in ((matrices, weight_decay), (vectors, 0.0)) if p]


def _adamw(model: nn.Module, parameters: Named, s: TrainConfig) -> list[torch.optim.Optimizer]:
    groups, betas = decayed(parameters, s.weight_decay), (s.beta1, s.beta2)
    return [torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=s.epsilon, weight_decay=s.weight_decay, fused=True)]


def _adafactor(model: nn.Module, parameters: Named, s: TrainConfig) -> list[torch.optim.Optimizer]:
    """Shazeer and Stern 2018: second moments as the product of a row and a column; no first moments.

    A parameter moves by at most the learning rate times its own size, so rates around 1e-2 are usual.
    """
    return [torch.optim.Adafactor(decayed(parameters, s.weight_decay), lr=0.0, weight_decay=s.weight_decay)]


def _muon(model: nn.Module, parameters: Named, s: TrainConfig) -> list[torch.optim.Optimizer]:
    """Jordan et al. 2024: orthogonal steps for the matrices inside of the model, AdamW for all else.

    Steps are scaled to the size of AdamW's (Liu et al. 2025), so one learning rate serves both.
    """
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    output = getattr(model, "output", None)
    tables |= {id(p) for p in output.parameters()} if isinstance(output, nn.Module) else set()
    hidden = {name for name, p in model.named_parameters() if p.dim() == 2 and id(p) not in tables}
    inside = [p for name, p in parameters.items() if name in hidden]
    rest = {name: p for name, p in parameters.items() if name not in hidden}
    made: list[torch.optim.Optimizer] = []
    if inside:
        made += [torch.optim.Muon(inside, lr=0.0, weight_decay=s.weight_decay, adjust_lr_fn="match_rms_adamw")]
    return made + (_adamw(model, rest, s) if rest else [])


class Lion(torch.optim.Optimizer):
    """Sign of an interpolated momentum, with decoupled weight decay (Chen et al. 2023, algorithm 2)."""

    def __init__(self, params: Iterable[Any], betas: tuple[float, float] = (0.9, 0.99), lr: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # the loop needs no closure
        """Change the parameters by their gradients."""
        for group in self.param_groups:
            rate, (beta1, beta2) = group["lr"], group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum: Tensor = state["momentum"]
                direction = momentum.lerp(parameter.grad, 1.0 - beta1).sign_()
                parameter.mul_(1.0 - rate * group["weight_decay"]).add_(direction, alpha=-rate)
                momentum.lerp_(parameter.grad, 1.0 - beta2)


OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": Optimizer(_adamw, state=2.0),
    "adafactor": Optimizer(_adafactor, state=0.1, sharded=False),
    "lion": Optimizer(lambda model, ps, s: [Lion(decayed(ps, s.weight_decay), (s.beta1, s.beta2))], state=1.0),
    "muon": Optimizer(_muon, state=1.5, sharded=False),
    "sgd": Optimizer(lambda model, ps, s: [torch.optim.SGD(decayed(ps, s.weight_decay), lr=0.0)], state=0.0),
}
"""What `train.optimizer` names."""


# -- learning rates ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Schedule:
    """What a schedule may depend on."""

    peak: float  # the highest learning rate; with the paper's schedule a factor
    warmup: int  # updates of warm-up
    total: int  # updates in all
    width: int  # of the model
    scale: float = 1.0  # what validations without gain have made of the peak so far: see `Plateau`

    def ramp(self, update: int) -> float:
        """The rise from 0 to 1 in the warm-up."""
        return min(1.0, update / self.warmup) if self.warmup else 1.0

    def done(self, update: int) -> float:
        """How much of what comes after the warm-up is over, from 0 to 1."""
        return min(1.0, max(0, update - self.warmup) / max(1, self.total - self.warmup))


def paper(s: Schedule, update: int) -> float:
    """peak · d_model^-0.5 · min(n^-0.5, n · warmup^-1.5) (Vaswani et al. 2017, equation 3, with peak 1)."""
    return s.peak / math.sqrt(s.width) * min(1 / math.sqrt(update), update / math.pow(max(s.warmup, 1), 1.5))


SCHEDULES: dict[str, Callable[[Schedule, int], float]] = {
    "paper": paper,
    # a linear rise to the peak, then the paper's curve with its height given
    "inverse-sqrt": lambda s, update: s.peak * min(s.ramp(update), math.sqrt(max(s.warmup, 1) / update)),
    # after the rise half a cosine, or a line, down to 0 at the last update
    "cosine": lambda s, update: s.peak * s.ramp(update) * 0.5 * (1.0 + math.cos(math.pi * s.done(update))),
    "linear": lambda s, update: s.peak * s.ramp(update) * (1.0 - s.done(update)),
    "constant": lambda s, update: s.peak * s.ramp(update),
    "plateau": lambda s, update: s.peak * s.ramp(update) * s.scale,
}
"""What `train.schedule` names: settings and the update's number, counted from 1 -> the learning rate."""
