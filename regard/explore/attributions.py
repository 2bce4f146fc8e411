"""How much each token counted for each token that a model wrote: by gradients, by covering tokens up, by zeroed values.

Equal to inseq's (Sarti et al. 2023) on the same model, which a test holds. What is explained is the probability of a
written token, given the source and the tokens before it. A token's vector is that of the table, scaled as the model
scales it, before positions are added.

method                 of a token with vector x, where p is the probability
input_x_gradient       x times the gradient of p, summed over features (Simonyan et al. 2014; Shrikumar et al. 2016)
gradient               the length of the gradient of p
integrated_gradients   x - b times the mean gradient on the straight way from b to x, summed (Sundararajan et al. 2017)
occlusion              p less what it is with b in the place of x (Zeiler and Fergus 2014)
value_zeroing          how far a layer's output turns when the token's values are zeros (Mohebbi et al. 2023)

b is the vector of the unknown token; begin and end stay what they are. Values are zeroed in one layer at a time.

Sizes: S source tokens, T written tokens, both with their ends; L layers, D width, N variants of a line in a batch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.errors import ModelError
from regard.models.blocks import Block, Transformer
from regard.nn.attention import Causal, Lengths
from regard.nn.state import Cache, Layout, Observer
from regard.text import BEGIN, END, UNK

METHODS = ("input_x_gradient", "gradient", "integrated_gradients", "occlusion", "value_zeroing")
Scores = dict[str, NDArray[np.float64]]
_ROWS = 64
"""Variants of a line that are computed together."""
_TURNED = 1e-5
"""What turns less is said not to have turned, as inseq has it."""


@dataclass(frozen=True)
class Written:
    """A line and what is written of it, as ids: the source with its end, and the target with its end if it ended."""

    source: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def prefix(self) -> tuple[int, ...]:
        """What the decoder reads."""
        return (BEGIN, *self.target[:-1])


def attributed(model: Transformer, line: Written, method: str, steps: int = 50) -> Scores:
    """Scores by part, with their signs: "cross" (L, T, S) of source tokens, "decoder" (L, T, T) of those read before.

    Value zeroing has "encoder" (L, S, S) too, and all its layers; the rest has one. `steps` are of the way from b to x.
    The model computes in its own precision, float64 for exact numbers. Raises ModelError for no such method.
    """
    if method not in METHODS:
        raise ModelError(f"attribution {method!r}: there is none of this name; take one of {', '.join(METHODS)}.")
    if method == "value_zeroing":
        with torch.inference_mode():
            return _value_zeroing(model, line)
    reading = _Reading(model, line)
    if method == "occlusion":
        return reading.parts(reading.occluded())
    x, base = reading.vectors, reading.baseline
    if method == "integrated_gradients":
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        ways = ((0.5 * (1 + node), 0.5 * weight) for node, weight in zip(nodes, weights, strict=True))
        mean = sum(weight * reading.gradients(base + at * (x - base)) for at, weight in ways)
        assert isinstance(mean, Tensor)
        return reading.parts(((x - base) * mean).sum(-1))
    gradients = reading.gradients(x)  # (T, S + T, D)
    return reading.parts((x * gradients).sum(-1) if method == "input_x_gradient" else gradients.norm(dim=-1))


def _with_rows(model: Transformer) -> tuple[Transformer, nn.Embedding]:
    """A copy of a model, which shares its parameters, and the one table that both its sides read: it has no rows yet.

    So a token's vector is an input, and the model itself is not touched, whoever else computes with it.
    """
    shared: dict[int, object] = {id(each): each for each in (*model.parameters(), *model.buffers())}
    copied = copy.deepcopy(model, shared)
    table = nn.Embedding(0, model.source.table.embedding_dim)
    del table.weight  # what stands there is no parameter, but computed
    copied.source.table = copied.target.table = table
    return copied, table


class _Reading:
    """A line and its translation as vectors, one after the other: the source's S, then the T that the decoder reads."""

    def __init__(self, model: Transformer, line: Written) -> None:
        self.model, self.line = model, line
        self.copied, self.table = _with_rows(model)
        self.sizes = len(line.source), len(line.target)
        kept = (BEGIN, END)
        device = model.source.table.weight.device
        self.scales = model.source.scale, model.target.scale
        covered = [[i if i in kept else UNK for i in side] for side in (line.source, line.prefix)]
        self.vectors, self.baseline = self._vectors(line.source, line.prefix), self._vectors(*covered)  # (S + T, D)
        self.wanted = torch.tensor(line.target, device=device)

    def _vectors(self, source: Sequence[int], prefix: Sequence[int]) -> Tensor:
        sides = zip((source, prefix), (self.model.source, self.model.target), strict=True)
        with torch.inference_mode(False):
            return torch.cat(
                [
                    side.table.weight.detach()[torch.tensor(ids, device=side.table.weight.device)] * side.scale
                    for ids, side in sides
                ]
            )

    def probabilities(self, vectors: Tensor) -> Tensor:
        """Of each written token, for variants (N, S + T, D) of the vectors: (N, T)."""
        count, (s, t) = len(vectors), self.sizes
        # One table for both sides, which may have one module together: the source's rows, and behind them the target's.
        unscaled = [
            part.flatten(0, 1) / scale for part, scale in zip(vectors.split([s, t], 1), self.scales, strict=True)
        ]
        rows = torch.arange(count * (s + t), device=vectors.device).split([count * s, count * t])
        ids = [each.view(count, n) for each, n in zip(rows, (s, t), strict=True)]
        layouts = tuple(Layout(torch.full((count,), n, device=vectors.device), n) for n in (s, t))
        self.table.weight = torch.cat(unscaled)
        model, (reading, writing) = self.copied, layouts
        hidden, _ = model.decode(ids[1], model.start(model.encode(ids[0], reading), reading), writing)
        logits = model.project(hidden)  # (N, T, V)
        chances = logits.softmax(-1).gather(-1, self.wanted.expand(count, t)[..., None])
        found: Tensor = chances[..., 0]
        return found

    def gradients(self, vectors: Tensor) -> Tensor:
        """Of each written token's probability by each vector: (T, S + T, D)."""
        found = list[Tensor]()
        for begin in range(0, self.sizes[1], _ROWS):
            rows = range(begin, min(begin + _ROWS, self.sizes[1]))
            variants = vectors.expand(len(rows), *vectors.shape).clone().requires_grad_()
            with torch.enable_grad():
                chosen = self.probabilities(variants)[range(len(rows)), rows].sum()
            found += torch.autograd.grad(chosen, variants)
        return torch.cat(found)

    @torch.inference_mode()
    def occluded(self) -> Tensor:
        """How much less probable each written token is without each token: (T, S + T)."""
        whole, found = self.probabilities(self.vectors[None])[0], []
        for begin in range(0, sum(self.sizes), _ROWS):
            places = range(begin, min(begin + _ROWS, sum(self.sizes)))
            variants = self.vectors.repeat(len(places), 1, 1)
            variants[range(len(places)), places] = self.baseline[begin : begin + len(places)]
            found.append(whole - self.probabilities(variants))
        return torch.cat(found).T

    def parts(self, scores: Tensor) -> Scores:
        """Scores (T, S + T) as those of the source and those of tokens read before; what comes later counts zero."""
        source, prefix = scores.detach().double().split(self.sizes, -1)
        return {"cross": source[None].cpu().numpy(), "decoder": prefix.tril()[None].cpu().numpy()}


# -- zeroed values -----------------------------------------------------------------------------------------------------


def _value_zeroing(model: Transformer, line: Written) -> Scores:
    device = model.source.table.weight.device
    (source, target), (s, t) = (
        (torch.tensor([ids], device=device) for ids in (line.source, line.prefix)),
        (len(line.source), len(line.target)),
    )
    reading, writing = (Layout(torch.tensor([n], device=device), n) for n in (s, t))
    memory = model.encode(source, reading)
    state = model.start(memory, reading)

    def encoder(block: Block, x: Tensor, count: int, observe: Observer | None) -> Tensor:
        return block(x, _many(reading, count), Lengths(_many(reading, count).lengths), observe=observe)[0]

    def decoder(layer: int) -> Callable[[Block, Tensor, int, Observer | None], Tensor]:
        kept = state.memory[layer]
        looks = Lengths(reading.lengths)

        def run(block: Block, x: Tensor, count: int, observe: Observer | None) -> Tensor:
            rows = torch.zeros(count, dtype=torch.long, device=device)
            mask = Lengths(looks.lengths.expand(count))
            return block(x, _many(writing, count), Causal(), Cache(), (kept.select(rows), mask), observe)[0]

        return run

    positions = (reading.positions(), s), (writing.positions(), t)
    stacks = [[*cast("Iterable[Block]", stack)] for stack in (model.encoder, model.decoder)]
    found: dict[str, list[Tensor]] = {"encoder": [], "cross": [], "decoder": []}
    x = model.source(source, *positions[0])
    for number, block in enumerate(stacks[0]):
        x = model.source.again(x, *positions[0]) if number else x
        ends = model.encoder_norm if number == len(stacks[0]) - 1 else None
        x, each = _turned(block, x, encoder, ("encoder",), (s,), (ends, reading))
        found["encoder"] += each
    x = model.target(target, *positions[1])
    for number, block in enumerate(stacks[1]):
        x = model.target.again(x, *positions[1]) if number else x
        ends = model.decoder_norm if number == len(stacks[1]) - 1 else None
        x, each = _turned(block, x, decoder(number), ("cross", "decoder"), (s, t), (ends, writing))
        found["cross"].append(each[0])
        found["decoder"].append(each[1].tril())
    return {part: np.stack([_shares(each).double().cpu().numpy() for each in layers]) for part, layers in found.items()}


def _turned(
    block: Block,
    x: Tensor,
    run: Callable[[Block, Tensor, int, Observer | None], Tensor],
    parts: Sequence[str],
    counts: Sequence[int],
    ends: tuple[nn.Module | None, Layout],
) -> tuple[Tensor, list[Tensor]]:
    """What a block makes of x (1, T, D), and of each part 1 - cosine to that with each token's values zeroed (T, S)."""
    whole, found = run(block, x, 1, None), list[Tensor]()
    norm, layout = ends
    for zeroed, count in zip(parts, counts, strict=True):

        def change(part: str, layer: int, weights: Tensor, zeroed: str = zeroed) -> Tensor:
            if part != zeroed:
                return weights
            one = torch.eye(len(weights), weights.shape[-1], dtype=torch.bool, device=weights.device)
            return weights.masked_fill(one[:, None, None], 0.0)  # a value of zeros is a weight of zero

        made = run(block, x.expand(count, *x.shape[1:]), count, Observer(change=change))  # (S, T, D)
        clean = whole
        if norm is not None:
            made, clean = norm(made, _many(layout, count)), norm(whole, layout)
        found.append((1 - torch.cosine_similarity(made, clean, dim=-1)).T)
    return whole, found


def _many(layout: Layout, count: int) -> Layout:
    return Layout(layout.lengths.expand(count), layout.width)


def _shares(turned: Tensor) -> Tensor:
    """Each row (T, S) divided by its sum."""
    kept = turned.where(turned >= _TURNED, 0.0)
    total = kept.sum(-1, keepdim=True)
    return kept / total.where(total > 0, 1.0)
