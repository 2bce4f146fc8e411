"""How weights are changed: optimisers, and what checkpoints keep of them. One more is one more entry of `OPTIMIZERS`.

An entry builds PyTorch optimisers; the loop sets the learning rate of all their groups before each step, as an entry
of `SCHEDULES` (step.py) says. Checkpoints hold whatever tensors and numbers an optimiser keeps for a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.settings import TrainConfig

from .parallel import like

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
}
"""What `train.optimizer` names."""


# -- in checkpoints ----------------------------------------------------------------------------------------------------


_PREFIX = "optimizer."


def state_of(
    optimizers: Sequence[torch.optim.Optimizer], parameters: Named
) -> tuple[dict[str, Tensor], dict[str, State]]:
    """What optimisers keep: tensors as "optimizer.key.parameter", and each parameter's values that are no tensors."""
    tensors: dict[str, Tensor] = {}
    values: dict[str, State] = {}
    for optimizer in optimizers:
        for name, parameter in parameters.items():
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    tensors[f"{_PREFIX}{key}.{name}"] = value
                else:
                    values.setdefault(name, {})[key] = value
    return tensors, values


def restore_state(
    optimizers: Sequence[torch.optim.Optimizer],
    parameters: Named,
    tensors: Mapping[str, Tensor],
    values: Mapping[str, State],
) -> None:
    """Give optimisers back what `state_of` took from them; other tensors of a checkpoint are left alone."""
    names = {parameter: name for name, parameter in parameters.items()}
    titles: dict[str, dict[str, str]] = {name: {} for name in values}
    for title in tensors:
        if title.startswith(_PREFIX):
            key, _, name = title.removeprefix(_PREFIX).partition(".")
            titles.setdefault(name, {})[key] = title
    for optimizer, group in ((o, g) for o in optimizers for g in o.param_groups):
        for parameter in group["params"]:
            if (name := names[parameter]) in titles:
                state = {k: _like(tensors[title], k, parameter, group) for k, title in titles[name].items()}
                optimizer.state[parameter] = {**values.get(name, {}), **state}


def _like(value: Tensor, key: str, parameter: nn.Parameter, group: State) -> Tensor:
    """Where an optimiser keeps this tensor: one of the parameter's shape lies as the parameter does."""
    if value.shape == parameter.shape:
        return like(value, parameter)
    # PyTorch keeps the count of steps on the CPU, except where one kernel does all of an update.
    on_cpu = key == "step" and not (group.get("fused") or group.get("capturable"))
    return value if on_cpu else value.to(parameter.device)
