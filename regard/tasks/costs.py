"""What a model costs, counted on the model itself without its memory: parameters, products, activations.

Sizes: S source and T target tokens of a pair, ends counted; what reads one side only has a cost in one of them. A model
FLOP is an addition or a multiplication of a matrix product in the forward pass of tokens that are no padding, and twice
that for the backward pass: 6 times the multiply-adds of every matrix that a token passes through, and of attention's
two products, of which a causal mask takes nothing away. Embeddings that are looked up, norms, softmax, dropout and the
optimiser are not counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from regard import machine
from regard.errors import ModelError
from regard.models import FAMILIES
from regard.models.blocks import around_layers, new_model
from regard.nn.layers import only_references
from regard.train import CHUNKS, OBJECTIVES, Inputs, Objective, TrainConfig

from .prepare import copies

MOST_TOKENS = 25_000
"""Of a batch that is as large as fits: the paper's (section 5.1), beyond which nothing speaks for more."""

# Python, PyTorch and its libraries, or the CUDA context: assumed, not measured.
_PROGRAM = {"cpu": 450 << 20, "cuda": 600 << 20}
# Tensors that pass, and what the allocator leaves unused, as a share of the activations: a rule of thumb.
_PASSING = {"cpu": 0.7, "cuda": 0.25}
_USABLE = 0.9  # of the free memory; the rest is for what is not foreseen here
# (rows, S, T), these in units: as many as there are unknowns, and small enough that nothing of theirs takes a second.
_PROBES = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 3, 1), (1, 1, 2), (1, 1, 3), (1, 2, 2))
_UNIT = 8  # tokens; fewer where a model takes fewer than 24 at once

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Cost:
    """A cost of a batch: `fixed`, and for each pair a + b S + c T + d S² + e T² + f S T, with these six in `pair`."""

    fixed: float
    pair: tuple[float, ...]

    def of(self, source: ArrayLike, target: ArrayLike) -> Numbers:
        """The cost of each pair; S and T are numbers or arrays (n,)."""
        powers = _powers(np.asarray(source, np.float64), np.asarray(target, np.float64))
        return np.asarray(powers @ np.array(self.pair))


@dataclass(frozen=True)
class Costs:
    """What a model needs, whatever it is trained on."""

    parts: dict[str, int]  # parameters by the model's parts; a shared matrix counts for the first that has it
    target_tokens: int
    flops: Cost  # model FLOPs of training
    activations: Cost  # bytes that the forward pass keeps for the backward pass
    bfloat16: bool

    @property
    def parameters(self) -> int:
        return sum(self.parts.values())


def count_costs(
    config: Any, sources: int, targets: int, *, bfloat16: bool, objective: str = "translate", again: bool = False
) -> Costs:
    """Build a recipe's model without its memory, run it on a few sizes, and solve for the costs of every size.

    The vocabularies have `sources` and `targets` tokens. It runs as PyTorch's own operations; compiled kernels keep
    fewer activations. With `again` a layer keeps its inputs alone (train.checkpoint_activations).
    """
    aim = OBJECTIVES[objective]
    with FakeTensorMode(), only_references(), torch.random.fork_rng(devices=()):
        family = FAMILIES[config.family]
        model = new_model(config, sources, targets).train()
        if bfloat16:
            _cast(model)
        unit = max(1, min(_UNIT, (family.capacity(config) or 3 * _UNIT) // 3))
        sizes = np.array(_PROBES) * (1, unit, unit)
        found = np.array([_probe(model, aim, again, *size) for size in sizes.tolist()])  # (probes, 2)
        parts = Counter({name: 0 for name, _ in model.named_children()})
        for name, parameter in model.named_parameters():
            parts[name.partition(".")[0]] += parameter.numel()
    rows, source, target = sizes.astype(np.float64).T
    terms = np.column_stack([np.ones(len(sizes)), rows[:, None] * _powers(source, target)])
    solved: list[list[float]] = np.linalg.solve(terms, found).T.tolist()
    flops, activations = (Cost(max(0.0, fixed), tuple(pair)) for fixed, *pair in solved)
    return Costs({n: c for n, c in parts.items() if c}, targets, flops, activations, bfloat16)


def _powers(source: Numbers, target: Numbers) -> Numbers:
    """(…, 6): 1, S, T, S², T², S T."""
    return np.stack([np.ones_like(source), source, target, source**2, target**2, source * target], axis=-1)


def _cast(model: nn.Module) -> None:
    """`model.bfloat16()`, which tensors without memory refuse."""
    cast: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            cast.setdefault(parameter, nn.Parameter(parameter.detach().bfloat16()))
            setattr(module, name, cast[parameter])
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point():
                setattr(module, name, buffer.bfloat16())


def _probe(model: Any, aim: Objective, again: bool, rows: int, source: int, target: int) -> tuple[float, float]:
    """Model FLOPs, and bytes kept for the backward pass, of `rows` pairs of these sizes."""
    with _kept(model) as kept, _inputs_kept(model, kept) if again else nullcontext():
        with FlopCounterMode(display=False) as before:
            hidden = aim.hidden(model, Inputs.of_size(rows, source, target), None)
        with FlopCounterMode(display=False) as projecting:
            model.output(hidden)
    flops = before.get_total_flops() + aim.share * projecting.get_total_flops()
    return 3.0 * flops, float(sum(storage.nbytes() for storage in kept.values()))


@contextmanager
def _kept(model: nn.Module) -> Iterator[dict[int, torch.UntypedStorage]]:
    """The storages that autograd keeps while inside, each once, the parameters' own aside."""
    own = {p.untyped_storage()._cdata for p in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield kept


@contextmanager
def _inputs_kept(model: nn.Module, kept: dict[int, torch.UntypedStorage]) -> Iterator[None]:
    """Inside of `_kept`, of each layer its inputs are, and at the end all that the layer that keeps most does."""
    layers: list[dict[int, torch.UntypedStorage]] = []

    def run(forward: Callable[..., object], *arguments: object, **named: object) -> object:
        given = (tensor.untyped_storage() for tensor in _tensors((*arguments, *named.values())))
        kept.update({storage._cdata: storage for storage in given})
        with _kept(model) as inside:
            out = forward(*arguments, **named)
        layers.append(inside)
        return out

    with around_layers(model, run):
        yield
    sizes = [sum(storage.nbytes() for storage in inside.values()) for inside in layers]
    kept.update(layers[sizes.index(max(sizes))])


def _tensors(given: object) -> Iterator[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, tuple) or is_dataclass(given):
        for part in given if isinstance(given, tuple) else vars(given).values():
            yield from _tensors(part)


# -- memory ------------------------------------------------------------------------------------------------------------


def training_memory(costs: Costs, config: TrainConfig, kind: str, *, tokens: int, longest: int) -> dict[str, int]:
    """Bytes of each thing that stands in memory in the worst moment of training on "cpu" or "cuda".

    tokens: of a batch's larger side; longest: tokens of the longest line, its end counted.
    """
    weights = 4 * costs.parameters
    activations = costs.activations.fixed + max(tokens, longest) * _bytes_a_token(costs, longest)
    return {
        "weights": weights,
        **{name: round(times * weights) for name, times in copies(config).items()},
        "weights and gradients in bfloat16": weights if costs.bfloat16 else 0,
        "activations of the largest batch": round(activations),
        "passing tensors and fragments": round(activations * _PASSING[kind]),
        "logits of a chunk": 12 * min(CHUNKS[kind] * config.chunk, max(tokens, longest)) * costs.target_tokens,
        "program": _PROGRAM[kind],
    }


def _bytes_a_token(costs: Costs, longest: int) -> float:
    """Of activations, in the worst batch: as many pairs of one length as fill it, for the worst length."""
    lengths = np.arange(1, longest + 1)
    return float((costs.activations.of(lengths, lengths) / lengths).max())


def fitting_tokens(costs: Costs, config: TrainConfig, kind: str, *, free: int, longest: int) -> int:
    """Tokens of the largest batch that fits into `free` bytes of a "cpu" or "cuda": 50, 100 … up to `MOST_TOKENS`.

    Raises ModelError where not even the longest pair fits.
    """

    def needed(tokens: int) -> int:
        return round(sum(training_memory(costs, config, kind, tokens=tokens, longest=longest).values()) / _USABLE)

    if needed(longest) > free:
        raise ModelError(
            f"no batch fits: {free / 2**30:.1f} GiB of memory are free ({kind}), and the "
            f"longest pair alone ({longest} tokens) needs {needed(longest) / 2**30:.1f}; choose a smaller model, lower "
            "data.filters.max_length, or free some memory."
        )
    sizes = range(0, MOST_TOKENS + 1, 50)
    return max(longest, sizes[bisect_right(sizes, free, key=needed) - 1])


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a device, or in this machine as far as this process may use it."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else machine.free_memory()
