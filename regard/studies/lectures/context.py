"""Attention between an encoder and a decoder: the context vector, its weights, the scores.

Sizes: T target words, S source words, D features.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.nn.attention import SCORES, Dot, Score, attend, softmax, weigh
from regard.nn.attention.core import StraightThrough
from regard.nn.attention.luong import LuongAttention
from regard.nn.attention.scores import Additive, Bilinear, Concat, Mean, ReducedRank, ScaledDot
from regard.pictures import bars, curves

from .page import Lecture, heat, listed

_SOURCE = ["Today", "empire", "is", "divided", "in", "three"]


def bottleneck() -> Lecture:
    """One context vector holds the less of each word the more words there are; one for each target word does not."""
    counts = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    one: list[float] = []
    own: list[float] = []
    for count in counts:
        words = torch.nn.functional.normalize(torch.randn(count, 64, dtype=torch.float64), dim=-1)
        mean, sharp = Mean(64), Dot(64)
        single, _ = attend(mean.queries(words), mean.keys(words), words, mean.compare)  # the same for all queries
        each, _ = attend(sharp.queries(20 * words), sharp.keys(words), words, sharp.compare)
        for found, kept in ((single, one), (each, own)):
            kept.append(float(torch.cosine_similarity(found, words, dim=-1).mean()))
    return Lecture(
        {
            "words": [float(count) for count in counts],
            "cosine of a word with the one context": one,
            "cosine of a word with its own context": own,
        },
        (
            curves(
                "What a context keeps of a word",
                counts,
                {"one for all": one, "one each": own},
                x="words in the source",
                y="cosine",
                logarithmic="x",
            ),
        ),
    )


@torch.no_grad()
def context_vector() -> Lecture:
    """c_i = Σ_j a_ij h_j: six source states, three target words, the weights of each summing to 1."""
    states = torch.randn(6, 8, dtype=torch.float64)
    before = torch.randn(3, 8, dtype=torch.float64)  # the decoder's states h'_{i-1}
    score = Additive(8).double()
    contexts, weights = attend(score.queries(before), score.keys(states), states, score.compare)
    by_hand = torch.stack([sum((a * h for a, h in zip(row, states, strict=True)), torch.zeros(8)) for row in weights])
    return Lecture(
        {
            "weights of the third word": listed(weights[2]),
            "sums of the weights": listed(weights.sum(-1)),
            "largest difference from the sums written out": float((contexts - by_hand).abs().max()),
        },
        (heat("Weights a_ij", weights, ["c1", "c2", "c3"], _SOURCE),),
    )


def exponential() -> Lecture:
    """Why softmax takes e^x: weights are positive, differences are amplified, the derivative is made of the weights."""
    scores = torch.tensor([-1.0, 0.0, 1.0, 2.0], dtype=torch.float64)
    weights = softmax(scores)
    plain = scores / scores.sum()
    squares = scores.square() / scores.square().sum()
    jacobian = torch.autograd.functional.jacobian(softmax, scores)
    formula = torch.diag(weights) - torch.outer(weights, weights)
    names = [f"{x:g}" for x in scores.tolist()]
    return Lecture(
        {
            "softmax": listed(weights),
            "shares of x itself": listed(plain),
            "shares of x squared": listed(squares),
            "ratio of weights one apart": float(weights[3] / weights[2]),
            "e": math.e,
            "change when 100 is added to all": float((softmax(scores + 100) - weights).abs().max()),
            "derivative against a_i (δ_ij - a_j), largest difference": float((jacobian - formula).abs().max()),
        },
        (
            bars(
                "Three ways to make shares of scores",
                names,
                {"e^x": listed(weights), "x": listed(plain), "x²": listed(squares)},
                y="share",
            ),
        ),
    )


def joining() -> Lecture:
    """What was attended, 4.4, joins the word's own vector, 5: concatenated it is twice as wide, added it is 9.4."""
    word, attended = torch.full((5,), 5.0, dtype=torch.float64), torch.full((5,), 4.4, dtype=torch.float64)
    beside, sum_ = torch.cat((word, attended)), word + attended
    both = torch.cat((torch.eye(5), torch.eye(5)), dim=1).double()  # a map that adds what stands side by side
    return Lecture(
        {
            "concatenated": listed(beside),
            "added": listed(sum_),
            "weights of the next layer of width 5, concatenated": 10 * 5,
            "weights of the next layer of width 5, added": 5 * 5,
            "addition as a map of the concatenation, largest difference": float((both @ beside - sum_).abs().max()),
        },
        (
            bars("Concatenated", [str(n) for n in range(1, 11)], {"feature": listed(beside)}),
            bars("Added", [str(n) for n in range(1, 6)], {"feature": listed(sum_)}),
        ),
    )


def _compared(score: Score, query: Tensor, keys: Tensor) -> Tensor:
    return score.compare(score.queries(query[None]), score.keys(keys))[0]


@torch.no_grad()
def scores() -> Lecture:
    """Five ways to compare a decoder state s with encoder states h, and what is the same among them."""
    width, rank = 16, 4
    query, keys = torch.randn(width, dtype=torch.float64), torch.randn(6, width, dtype=torch.float64)
    made = {
        name: SCORES[name](width, size=rank if name == "reduced_rank" else 0).double()
        for name in ("dot", "scaled_dot", "bilinear", "reduced_rank", "additive")
    }
    dot, scaled, low = Dot(width), ScaledDot(width), ReducedRank(width, size=rank).double()
    full, additive, concat = Bilinear(width).double(), Additive(width).double(), Concat(width).double()
    full.query.weight.copy_(low.key.weight.T @ low.query.weight)
    concat.both.weight.copy_(torch.cat((additive.query.weight, additive.key.weight), dim=1))
    concat.v.copy_(additive.v)
    same = {
        "scaled dot times √D against dot": _scaled_against_dot(scaled, dot, query, keys),
        "reduced rank against bilinear with W = Uᵀ V": (_compared(low, query, keys) - _compared(full, query, keys)),
        "additive against one layer over [q; k]": _compared(additive, query, keys) - _compared(concat, query, keys),
    }
    weights = {name: weigh(_compared(score, query, keys)) for name, score in made.items()}
    return Lecture(
        {f"parameters of {name}": sum(p.numel() for p in score.parameters()) for name, score in made.items()}
        | {f"{name}, largest difference": float(error.abs().max()) for name, error in same.items()},
        (
            bars(
                "Weights by five scores (random parameters)",
                [f"h{j}" for j in range(1, 7)],
                {name: listed(row) for name, row in weights.items()},
            ),
        ),
    )


def _scaled_against_dot(scaled: ScaledDot, dot: Dot, query: Tensor, keys: Tensor) -> Tensor:
    """What is left when the scaled dot product, times the root of the width, is taken from the dot product."""
    return _compared(scaled, query, keys) * math.sqrt(scaled.width) - _compared(dot, query, keys)


def hard_and_soft() -> Lecture:
    """Soft attention is the expectation of hard attention, which looks at one position drawn from the same weights: the
    mean of many draws is near it. The single hard answer shown is of the likeliest position, which is not drawn.
    """
    words, query = torch.randn(5, 4, dtype=torch.float64), torch.randn(1, 4, dtype=torch.float64)
    score = Dot(4)
    soft, weights = attend(query, words, words, score.compare)
    hard, chosen = attend(query, words, words, score.compare, normalize=StraightThrough().eval())
    draws = torch.multinomial(weights[0], 20_000, replacement=True)
    mean = words[draws].mean(0)
    return Lecture(
        {
            "weights, soft": listed(weights),
            "weights, hard (the likeliest)": listed(chosen),
            "distance of the answer of the likeliest from the soft": float((hard - soft).norm()),
            "distance of the mean of 20,000 draws from the soft": float((mean - soft[0]).norm()),
        },
        (
            bars(
                "Weights",
                [f"x{n}" for n in range(1, 6)],
                {"soft": listed(weights), "hard (the likeliest)": listed(chosen)},
            ),
        ),
    )


@torch.no_grad()
def local_window() -> Lecture:
    """Luong's three: global looks everywhere; local-m at a window of D on either side of the target's own position;
    local-p at one around a position that it predicts, S sigmoid(v tanh(W h)), its weights times a Gaussian of σ = D/2,
    so that they sum to less than 1.
    """
    length, window, width = 24, 4, 8
    states, x = (torch.randn(1, length, width, dtype=torch.float64) for _ in range(2))
    inside, lengths = torch.ones(1, length, dtype=torch.bool), torch.tensor([length])
    made = {kind: LuongAttention(width, Dot(width), kind, window, softmax) for kind in ("global", "local-m", "local-p")}
    if made["local-p"].share is not None:
        made["local-p"].share.weight.mul_(12)  # so that the positions are spread over the source
    weights: dict[str, Tensor] = {}
    for kind, layer in made.items():
        layer.double()
        weights[kind] = layer(x, layer.prepare(states), lengths, 0, inside)[1][0, 0]
    centres = made["local-p"]._centres(x, lengths, 0)[0]
    distance = torch.arange(length) - centres[:, None]
    near = distance.abs() <= window
    bare = weigh(x[0] @ states[0].T, near)
    gaussian = (-(distance**2) / (2 * (window / 2) ** 2)).exp()
    far = (torch.arange(length) - torch.arange(length)[:, None]).abs() > window
    return Lecture(
        {
            "positions that word 10 looks at: global, local-m, local-p": [
                float((w[10] > 0).sum()) for w in weights.values()
            ],
            "largest weight outside of the window, local-m": float(weights["local-m"][far].max()),
            "largest weight outside of the window, local-p": float(weights["local-p"][~near].max()),
            "p_t of the first four words, local-p": listed(centres[:4]),
            "local-p against softmax times Gaussian, largest difference": float(
                (weights["local-p"] - bare * gaussian).abs().max()
            ),
            "sums of the weights, global, local-m": listed(
                torch.stack([weights["global"].sum(-1)[10], weights["local-m"].sum(-1)[10]])
            ),
            "sum of the weights of word 10, local-p": float(weights["local-p"][10].sum()),
            "products of scores for 24 words, global, in a window of 9": [24.0 * 24, 24.0 * 9],
        },
        tuple(heat(kind, w, axes="target/source") for kind, w in weights.items()),
    )
