"""Self-attention: queries, keys and values, the scale, heads, masks, order, cost.

Sizes: S words, D width, H heads, Dk key width of a head.
"""

from __future__ import annotations

import math

import torch

from regard.nn import Observer, Padded
from regard.nn.attention import AndMask, Causal, Dot, Heads, Lengths, Mask, MultiHead, ScaledDot, attend, softmax, weigh
from regard.nn.attention.core import matrix
from regard.pictures import bars, curves

from .page import Lecture, heat, listed

W_QUERY = torch.tensor(
    [
        [0.1, 0.0, 0.0, 0.2, 0.0],
        [0.0, 0.2, 0.1, 0.0, 0.0],
        [0.1, 0.0, 0.0, 0.0, 0.2],
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.1, 0.0, 0.0],
    ],
    dtype=torch.float64,
)
"""The lecture's matrix of queries; those of keys and values are not printed."""
_CPU = torch.device("cpu")


def queries_keys_values() -> Lecture:
    """q = x W^Q with the lecture's matrix: the word whose features are all 5 has a query of ones."""
    words = torch.full((4, 5), 5.0, dtype=torch.float64)  # the lecture gives the fourth word only
    queries = words @ W_QUERY
    rows = [f"x{n}" for n in range(1, 6)]
    return Lecture(
        {"x4": listed(words[3]), "q4": listed(queries[3]), "shape of Q": f"{len(queries)} x {queries.shape[1]}"},
        (
            heat("x4 (5 everywhere)", words[3:], ["x4"]),
            heat("W^Q", W_QUERY, rows, [f"q{n}" for n in range(1, 6)]),
            heat("q4 = x4 W^Q", queries[3:], ["q4"]),
        ),
    )


def by_hand() -> Lecture:
    """Products of 112 and 96, divided by √64: 14 and 12; their softmax: 0.88 and 0.12; values so weighted."""
    width = 64
    query = torch.ones(1, width, dtype=torch.float64)
    keys = torch.stack((torch.full((width,), 112 / width), torch.full((width,), 96 / width))).double()
    values = torch.eye(2, dtype=torch.float64)  # so that what comes out shows how much of each value is in it
    plain, scaled = Dot(width), ScaledDot(width)
    products = plain.compare(query, keys)
    scores = scaled.compare(scaled.queries(query), keys)
    z, weights = attend(scaled.queries(query), keys, values, scaled.compare)
    unscaled = weigh(products)
    return Lecture(
        {
            "q1 · k": listed(products),
            "divided by √d_k": listed(scores),
            "softmax": listed(weights),
            "z1 = parts of v1 and v2": listed(z),
            "softmax without the division": listed(unscaled),
        },
        (
            bars(
                "Thinking, Machines: weights of the first word",
                ["v1", "v2"],
                {"divided by 8": listed(weights), "not divided": listed(unscaled)},
            ),
        ),
    )


def scaling() -> Lecture:
    """Why products are divided by √d_k: their variance is d_k, and a softmax of such numbers has hardly a gradient."""
    widths = [4, 8, 16, 32, 64, 128, 256]
    found: dict[str, list[float]] = {"variance": [], "variance, scaled": []}
    largest: dict[str, list[float]] = {"plain": [], "scaled": []}
    slope: dict[str, list[float]] = {"plain": [], "scaled": []}
    for width in widths:
        q, k = (torch.randn(300, n, width, dtype=torch.float64) for n in (1, 10))
        score = ScaledDot(width)
        products = Dot(width).compare(q, k)  # (400, 1, 10)
        scaled = score.compare(score.queries(q), score.keys(k))
        found["variance"].append(float(products.var()))
        found["variance, scaled"].append(float(scaled.var()))
        for name, scores in (("plain", products), ("scaled", scaled)):
            weights = softmax(scores)
            largest[name].append(float(weights.amax(-1).mean()))
            # The derivative of the largest weight by its own score is a (1 - a).
            slope[name].append(float((weights.amax(-1) * (1 - weights.amax(-1))).mean()))
    shown = torch.tensor([1.0, 2.0, 7.0, 12.0, 8.0, 5.0, 2.0, 1.0], dtype=torch.float64)
    sharp, softer = softmax(shown), softmax(shown / 8)
    return Lecture(
        {
            "d_k": [float(width) for width in widths],
            **{name: list(values) for name, values in found.items()},
            **{f"largest of ten weights, {name}": values for name, values in largest.items()},
            **{f"a (1 - a) of it, {name}": values for name, values in slope.items()},
            "softmax of 1, 2, 7, 12, 8, 5, 2, 1": listed(sharp),
            "softmax of the same over √64": listed(softer),
        },
        (
            curves("Variance of q · k", widths, found, x="d_k", logarithmic="xy"),
            curves("a (1 - a) of the largest weight", widths, slope, x="d_k", logarithmic="x"),
            bars(
                "Softmax of 1, 2, 7, 12, 8, 5, 2, 1",
                [f"{x:g}" for x in shown.tolist()],
                {"plain": listed(sharp), "over 8": listed(softer)},
            ),
        ),
    )


@torch.no_grad()
def heads() -> Lecture:
    """Multi-head attention is attention on each head's own projections, concatenated and multiplied by W^O."""
    width, count, words = 16, 8, 4
    layer = MultiHead(Heads(width, count, width // count, width // count), ScaledDot(width // count)).double()
    x = torch.randn(1, words, width, dtype=torch.float64)
    layout = Padded(torch.tensor([words]), words)
    observe = Observer("encoder")
    out = layer(x, layout, layer.prepare(x, layout), None, observe)
    keys, values = layer.key_value(x[0]).split(width, dim=-1)
    score, made = layer.score, []
    each = (m.chunk(count, dim=-1) for m in (layer.query(x[0]), keys, values))
    for q, k, v in zip(*each, strict=True):
        made.append(attend(score.queries(q), score.keys(k), v, score.compare)[0])
    by_hand = layer.output(torch.cat(made, dim=-1))
    sizes = {
        n: sum(p.numel() for p in MultiHead(Heads(512, n, 512 // n, 512 // n), Dot(1)).parameters()) for n in (1, 8)
    }
    return Lecture(
        {
            "largest difference from eight attentions written out": float((out[0] - by_hand).abs().max()),
            "shape of the concatenation": f"{words} x {count * (width // count)}",
            "parameters at width 512, one head": sizes[1],
            "parameters at width 512, eight heads": sizes[8],
        },
        tuple(heat(f"Head {n + 1}", observe.weights["encoder"][0][0, n]) for n in range(2)),
    )


def masks() -> Lecture:
    """Who may look where: sentences of unequal length, the future, and both; hidden positions have no weight at all."""
    size = 5
    length = Lengths(torch.tensor([3]))
    three: dict[str, Mask] = {"padding": length, "causal": Causal(), "both": AndMask(length, Causal())}
    scores = torch.randn(1, 1, size, size, dtype=torch.float64)
    found = {name: matrix(mask, 1, size, size, _CPU) for name, mask in three.items()}
    weights = {name: weigh(scores, seen) for name, seen in found.items()}
    short = torch.stack([weigh(scores[0, 0, i], torch.arange(size) <= i) for i in range(size)])
    return Lecture(
        {f"positions seen, {name}": int(seen.expand(1, 1, size, size).sum()) for name, seen in found.items()}
        | {
            "largest weight of a hidden position": max(
                float(w.masked_fill(found[name], 0).max()) for name, w in weights.items()
            ),
            "sums of the weights under the causal mask": listed(weights["causal"].sum(-1)),
            "causal against sequences cut off after i, largest difference": float(
                (weights["causal"][0, 0] - short).abs().max()
            ),
        },
        tuple(heat(f"{name}: weights", w[0, 0], axes="query/key") for name, w in weights.items()),
    )


def order() -> Lecture:
    """Self-attention without positions does not know the order: words in another order give the same, reordered."""
    x = torch.randn(6, 8, dtype=torch.float64)
    score = ScaledDot(8)
    other = torch.randperm(6)

    def itself(words: torch.Tensor) -> torch.Tensor:
        return attend(score.queries(words), score.keys(words), words, score.compare)[0]

    return Lecture(
        {"largest difference after reordering": float((itself(x)[other] - itself(x[other])).abs().max())},
        (
            heat("Before", itself(x), axes="word/feature"),
            heat("Words reordered", itself(x[other]), axes="word/feature"),
        ),
    )


def multiplications(kind: str, n: int, d: int, k: int = 3) -> int:
    """Multiplications of one layer over n positions of width d.

    "convolution" of kernel k, "recurrence" and "attention" (the two products with n² weights) as the tables count them;
    with all that a layer does: "attention, projected", a recurrent "Elman cell" and an "LSTM cell".
    """
    return {
        "convolution": k * n * d * d,
        "recurrence": n * d * d,
        "attention": 2 * n * n * d,
        "attention, projected": 2 * n * n * d + 4 * n * d * d,
        "Elman cell": 2 * n * d * d,
        "LSTM cell": 8 * n * d * d,
    }[kind]


def complexity() -> Lecture:
    """Cost of a layer and length of its paths. The tables count n² d for attention and n d² for recurrence; with all
    that a layer does these are 2 n² d + 4 n d², and 2 n d² for an Elman cell or 8 n d² for an LSTM.
    """
    d, k = 512, 3
    lengths = [2**p for p in range(3, 14)]
    kinds = ("convolution", "recurrence", "attention", "attention, projected", "Elman cell", "LSTM cell")
    every = {kind: [float(multiplications(kind, n, d, k)) for n in lengths] for kind in kinds}
    paths: dict[str, list[float]] = {
        "attention": [1.0 for _ in lengths],
        "convolution, dilated": [math.ceil(math.log(n, k)) for n in lengths],
        "convolution": [math.ceil((n - 1) / (k - 1)) for n in lengths],
        "recurrence": [float(n) for n in lengths],
    }
    return Lecture(
        {
            "products with the weights cost as much as the projections at n": 2 * d,
            "attention, n = 70, d = 512": multiplications("attention", 70, d),
            "attention, projected, n = 70, d = 512": multiplications("attention, projected", 70, d),
            "recurrence, n = 70, d = 512": multiplications("recurrence", 70, d),
            "convolution, n = 70, d = 512, k = 3": multiplications("convolution", 70, d, k),
            "Elman cell, n = 70, d = 512": multiplications("Elman cell", 70, d),
            "LSTM cell, n = 70, d = 512": multiplications("LSTM cell", 70, d),
            "steps between the ends of 729 words, convolution": math.ceil((729 - 1) / (k - 1)),
        },
        (
            curves("Multiplications of a layer, d = 512", lengths, every, x="n", logarithmic="xy"),
            curves("Steps between two positions", lengths, paths, x="n", logarithmic="xy"),
        ),
    )
