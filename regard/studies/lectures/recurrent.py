"""Recurrences: the gates of their cells, what waits for what, gradients far back, and feeding a model its own words.

Sizes: B rows, T positions, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn import functional as F

from regard.nn.attention import ScaledDot, attend
from regard.nn.layers import only_references
from regard.nn.recurrent import CELLS, GRU, LSTM, Elman
from regard.pictures import bars, curves
from regard.train.objectives import label_smoothed

from .page import Lecture, heat, listed


@torch.no_grad()
def recurrent_cells() -> Lecture:
    """The three cells on five words, gate by gate: an LSTM's input, forget and output gates, a GRU's reset and update
    gates, an Elman cell's plain tanh. Written out by hand they give what the library's layers give.
    """
    inputs, width, words = 3, 4, torch.randn(5, 1, 3, dtype=torch.float64)
    elman, gru, lstm = Elman(inputs, width).double(), GRU(inputs, width).double(), LSTM(inputs, width).double()
    h = {name: torch.zeros(1, width, dtype=torch.float64) for name in ("Elman", "GRU", "LSTM")}
    cells = h["LSTM"].clone()
    outs: dict[str, list[Tensor]] = {name: [] for name in h}
    gates: dict[str, list[Tensor]] = {name: [] for name in ("forget", "input", "output", "reset", "update")}
    for x in words:
        h["Elman"] = (elman.input(x) + elman.hidden(h["Elman"])).tanh()
        (xr, xu, xn), (hr, hu, hn) = gru.input(x).chunk(3, -1), gru.hidden(h["GRU"]).chunk(3, -1)
        reset, update = (xr + hr).sigmoid(), (xu + hu).sigmoid()
        h["GRU"] = update * h["GRU"] + (1 - update) * (xn + reset * hn).tanh()
        i, f, g, o = (lstm.input(x) + lstm.hidden(h["LSTM"])).chunk(4, -1)
        cells = f.sigmoid() * cells + i.sigmoid() * g.tanh()
        h["LSTM"] = o.sigmoid() * cells.tanh()
        for name, gate in zip(gates, (f.sigmoid(), i.sigmoid(), o.sigmoid(), reset, update), strict=True):
            gates[name].append(gate)
        for name, out in outs.items():
            out.append(h[name])
    layers: dict[str, nn.Module] = {"Elman": elman, "GRU": gru, "LSTM": lstm}
    made = {name: layer(words)[0] for name, layer in layers.items()}
    return Lecture(
        {
            f"{name} by hand against the layer, largest difference": float((torch.stack(outs[name]) - out).abs().max())
            for name, out in made.items()
        }
        | {f"{name} gate of the first feature": listed(torch.cat(gate)[:, 0]) for name, gate in gates.items()}
        | {
            f"parameters of {name}, 512 to 512": sum(p.numel() for p in CELLS[name](512, 512).parameters())
            for name in CELLS
        },
        tuple(
            heat(f"{name}: hidden states", out[:, 0].T, columns=[f"x{n}" for n in range(1, 6)], axes="feature/word")
            for name, out in made.items()
        ),
    )


def _longest_chain(out: Tensor) -> int:
    """Operations that must follow one upon the other to make a tensor, in the graph that autograd keeps."""
    longest: dict[Node, int] = {}
    waiting = [node for node in (out.grad_fn,) if node is not None]
    while waiting:
        before = [node for node, _ in waiting[-1].next_functions if node is not None]
        if missing := [node for node in before if node not in longest]:
            waiting += missing
        else:
            node = waiting.pop()
            longest[node] = max((longest[n] for n in before), default=-1) + 1
    return max(longest.values())


def _states(words: Tensor, cut: bool) -> Tensor:
    """An LSTM's states after each word; with `cut` its carry does not cross the middle."""
    layer, half = LSTM(8, 8), len(words) // 2
    first, carry = layer(words[:half, None])
    carry = layer.nothing(words[:, None]) if cut else carry
    return torch.cat((first, layer(words[half:, None], carry)[0]))[:, 0]


def _looks(words: Tensor) -> Tensor:
    score = ScaledDot(8)
    return attend(score.queries(words[-1:]), words, words, score.compare)[0][0]


_ROWS: dict[str, Callable[[Tensor, bool], Tensor]] = {
    "LSTM": lambda words, cut: _states(words, cut)[-1],
    "LSTM + attention": lambda words, cut: _looks(_states(words, cut)),
    "Transformer": lambda words, cut: _looks(words),
}
"""The last output of each of the lecture's three models."""


def serial_parallel() -> Lecture:
    """What must wait for what: the longest chain of operations that leads to the last output, counted in the graph that
    autograd keeps, and whether that output still feels the first word when the recurrence is cut in the middle. These
    are the columns of the lecture's table, LSTM, LSTM + attention and Transformer.
    """
    lengths = [4, 8, 16, 32]
    chains: dict[str, list[float]] = {name: [] for name in _ROWS}
    felt: dict[str, float] = {}
    with only_references():
        for name, model in _ROWS.items():
            for length in lengths:
                words = torch.randn(length, 8, requires_grad=True)
                chains[name].append(float(_longest_chain(model(words, False))))
            (gradient,) = torch.autograd.grad(model(words, True).sum(), words)
            felt[name] = float(gradient[0].norm())
    return Lecture(
        {"words": [float(n) for n in lengths]}
        | {f"longest chain of operations, {name}": values for name, values in chains.items()}
        | {f"all words at once, {name}": "yes" if v[0] == v[-1] else "no" for name, v in chains.items()}
        | {f"gradient by the first word, recurrence cut, {name}": value for name, value in felt.items()},
        (
            curves("Operations one after another", lengths, chains, x="words", logarithmic="xy"),
            bars("Gradient by the first word, recurrence cut", list(felt), {"norm": list(felt.values())}),
        ),
    )


def vanishing_gradients() -> Lecture:
    """How much the last output feels the first of T words: the norm of the gradient, mean of 20 random sequences. It
    falls with a power of T in recurrences as they begin, more slowly with forget gates that begin open; in attention
    it falls as 1/T where all words are alike, and not at all where the query finds the first word.
    """
    width, lengths, rows = 32, [1, 2, 5, 10, 20, 50, 100], 20
    layers: dict[str, nn.Module] = {
        "Elman": Elman(width, width),
        "GRU": GRU(width, width),
        "LSTM": LSTM(width, width),
        "LSTM, forget gates open": LSTM(width, width),
    }
    with torch.no_grad():
        layers["LSTM, forget gates open"].get_parameter("input.bias")[width : 2 * width] = 3.0
    score = ScaledDot(width)

    def attention(words: Tensor, strength: float) -> Tensor:
        queries = score.queries(strength * words[0] + words[-1])[:, None]
        keys = words.transpose(0, 1)
        return attend(queries, keys, keys, score.compare)[0][:, 0]

    def last_of(layer: nn.Module) -> Callable[[Tensor], Tensor]:
        layer.double()
        return lambda x: cast(Tensor, layer(x)[0][-1])

    outputs = {name: last_of(layer) for name, layer in layers.items()}
    outputs["attention, words alike"] = lambda x: attention(x * 0.05, 0.0)
    outputs["attention, the query finds the first"] = lambda x: attention(x, 20.0)
    found: dict[str, list[float]] = {name: [] for name in outputs}
    for length in lengths:
        words = torch.randn(length, rows, width, dtype=torch.float64)
        other = F.normalize(torch.randn(rows, width, dtype=torch.float64), dim=-1)
        for name, output in outputs.items():
            x = words.clone().requires_grad_()
            scale = 0.05 if name == "attention, words alike" else 1.0
            (gradient,) = torch.autograd.grad((output(x) * other).sum(), x)
            found[name].append(float(gradient[0].norm(dim=-1).mean()) / scale)
    return Lecture(
        {"T": [float(n) for n in lengths]} | {f"gradient, {name}": values for name, values in found.items()},
        (curves("Gradient of the last output by the first word", lengths, found, x="T", logarithmic="xy"),),
    )


_SYMBOLS = 11
_LONG = 16
_UPDATES = 50


class _Reader(nn.Module):
    """A GRU that reads symbols and gives scores for the next."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(_SYMBOLS, 32)
        self.cell = GRU(32, 32)
        self.output = nn.Linear(32, _SYMBOLS)

    def forward(self, symbols: Tensor) -> Tensor:
        """(T, B) -> (T, B, V)."""
        scores: Tensor = self.output(self.cell(self.table(symbols))[0])
        return scores


def _sequences(rows: int) -> Tensor:
    """(T, B): two symbols at random, then each the sum of the two before, of 11."""
    found = list(torch.randint(_SYMBOLS, (2, rows)))
    while len(found) < _LONG:
        found.append((found[-1] + found[-2]) % _SYMBOLS)
    return torch.stack(found)


def exposure_bias() -> Lecture:
    """Teacher forcing and exposure bias: a small GRU learns by maximum likelihood that each symbol is the sum of the
    two before, of 11, with the right symbols before it. Fed its own symbols instead, a mistake is what it reads next.
    """
    model, losses = _Reader(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(_UPDATES):
        right = _sequences(32)
        scores = model(right[:-1])[1:].flatten(0, 1)
        loss = label_smoothed(scores, right[2:].flatten(), 0.0) / right[2:].numel()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    with torch.no_grad():
        right = _sequences(256)
        forced = (model(right[:-1])[1:].argmax(-1) == right[2:]).double().mean(1)  # (T - 2,)
        own = right[:2]
        for _ in range(_LONG - 2):
            own = torch.cat((own, model(own)[-1:].argmax(-1)))
        free = (own[2:] == right[2:]).double().mean(1)
    return Lecture(
        {
            "loss of the first update": losses[0],
            "loss of the last update": losses[-1],
            "right, fed the right symbols, first to last": listed(forced),
            "right, fed its own symbols, first to last": listed(free),
            "mean, fed the right symbols": float(forced.mean()),
            "mean, fed its own symbols": float(free.mean()),
            "last symbol, fed the right ones": float(forced[-1]),
            "last symbol, fed its own": float(free[-1]),
        },
        (
            curves("Loss", list(range(1, len(losses) + 1)), {"loss": losses}, x="update"),
            curves(
                "Share of right symbols",
                list(range(3, _LONG + 1)),
                {"fed the right ones": listed(forced), "fed its own": listed(free)},
                x="position",
            ),
        ),
    )
