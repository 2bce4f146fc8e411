"""Positions: sinusoids, learned vectors, T5's buckets, rotations; a layer whose weights are for positions alone.

Sizes: P positions, D width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.errors import ModelError
from regard.nn.positions import Learned, RelativeBuckets, Rotary, Sinusoidal, sinusoids
from regard.nn.state import Layout
from regard.pictures import curves

from .page import Lecture, heat, listed


class FullyConnected(nn.Module):
    """y_i = Σ_j W_ij x_j with one learned (T, T) matrix, so that every sequence must have T positions.

    To compare with attention, whose weights depend on the content instead.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, length))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """(…, D) -> (…, D); ModelError for a sequence that is not T long."""
        length = len(self.weight)
        if (others := layout.lengths[layout.lengths != length]).numel():
            raise ModelError(
                f"a fully connected layer of {length} positions cannot take a sequence of {int(others[0])}; give it "
                f"sequences of {length}, or take attention, which has weights for any length"
            )
        return layout.flatten(self.weight @ layout.pad(x))


def sinusoids_() -> Lecture:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) its cosine: 64 positions, 128 features."""
    table = Sinusoidal(128, 64)(torch.arange(64), 64).double()
    return Lecture(
        {
            "PE(0), first four": listed(table[0, :4]),
            "PE(1), first four": listed(table[1, :4]),
            "shortest wave": 2 * math.pi,
            "longest wave, D = 128": 2 * math.pi * 10000 ** (126 / 128),
        },
        (heat("Sinusoidal positions", table, axes="position/feature"),),
    )


def _placed(positions: Tensor, width: int) -> Tensor:
    return torch.cat(sinusoids(positions, width), dim=-1).double()


def sinusoid_laws() -> Lecture:
    """Each pair has its period; the product of two positions depends on their distance only, is largest at 0 and falls
    on the whole, though it rises at many a step; and one linear map leads from any position to the one k further, also
    beyond the positions that it was found on.
    """
    width, far = 128, 200
    table = _placed(torch.arange(0, far + 100), width)
    products = table @ table.T
    fall = products[0, :far] / products[0, 0]
    rises = [k for k in range(1, far) if fall[k] > fall[k - 1]]
    elsewhere = products[50, 50 : 50 + far] / products[50, 50]
    small = _placed(torch.arange(400), 16)
    noise = torch.randn(400, 16, dtype=torch.float64) / math.sqrt(2)  # as long as they, and as learned ones begin
    missed = {}
    for name, positions in (("sinusoids", small), ("independent vectors", noise)):
        step = torch.linalg.lstsq(positions[:199], positions[1:200], driver="gelsd").solution
        error = positions[299:399] @ step - positions[300:400]
        missed[f"one step on, found on positions to 199, tried from 300, error, {name}"] = float(
            error.norm() / positions[300:400].norm()
        )
    period = 2 * math.pi * 10000 ** (2 * 8 / width)
    exact = torch.arange(3, dtype=torch.float64) * period
    return Lecture(
        {
            "period of pair 8 of 64": period,
            "its sine after 0, 1, 2 periods": listed(sinusoids(exact, width)[0][:, 8]),
            "product with itself": float(products[0, 0]),
            "share of it at distances 1, 10, 50, 150": [float(fall[k]) for k in (1, 10, 50, 150)],
            "distances from 1 to 199 at which it rises": len(rises),
            "the first of them": [float(k) for k in rises[:3]],
            "largest difference between positions": float((fall - elsewhere).abs().max()),
            **missed,
        },
        (
            curves("PE(p) · PE(p + k)", list(range(far)), {"share of PE(p) · PE(p)": listed(fall)}, x="distance k"),
            curves(
                "Three pairs' sines",
                list(range(100)),
                {f"pair {i}": listed(sinusoids(torch.arange(100), width)[0][:, i]) for i in (0, 8, 24)},
                x="position",
            ),
        ),
    )


def learned_positions() -> Lecture:
    """Learned positions end where training did: a table of 5 positions has nothing for 7; sinusoids go on."""
    table = Learned(8, 5)
    try:
        table(torch.arange(7), 7)
        refusal = ""
    except ModelError as error:
        refusal = str(error)
    return Lecture(
        {
            "positions in the table": len(table.weight),
            "what a line of 7 gets": refusal,
            "positions that sinusoids made for it": len(Sinusoidal(8, 5)(torch.arange(7), 7)),
        },
        (
            heat("Learned: 5 positions", table.weight, axes="position/feature"),
            heat("Sinusoids: as many as wanted", Sinusoidal(8, 5)(torch.arange(7), 7), axes="position/feature"),
        ),
    )


def buckets() -> Lecture:
    """T5 adds a learned number by distance: near ones each have their own, farther ones share, from 128 on all do."""
    distances = torch.arange(-140, 141)
    both = RelativeBuckets(1, 8, 8, False)
    causal = RelativeBuckets(1, 8, 8, True)
    one, other = (bias.bucket(distances) for bias in (both, causal))
    return Lecture(
        {
            "buckets": len(set(one.tolist())),
            "buckets, causal": len(set(other.tolist())),
            "bucket of the word itself": int(one[140]),
            "buckets of 1, 7, 8, 64, 128 before": [float(one[140 - k]) for k in (1, 7, 8, 64, 128)],
            "the same, causal": [float(other[140 - k]) for k in (1, 7, 8, 64, 128)],
        },
        (
            curves(
                "Bucket of a distance",
                [float(d) for d in distances],
                {"both sides": listed(one), "causal": listed(other)},
                x="key's position minus query's",
            ),
        ),
    )


def turned(x: Tensor, position: int, longest: int = 4096) -> Tensor:
    """x (…, D) turned as at a position, by `Rotary`."""
    rotary = Rotary(x.shape[-1], longest)
    found: Tensor = rotary(x.reshape(1, -1, 1, x.shape[-1]), torch.tensor([position]), longest)
    return found.reshape_as(x)


def rotation_matrix(position: float, width: int) -> Tensor:
    """The block matrix (D, D) that turns each pair of features by its own angle (Su et al. 2021, equation 15)."""
    sines, cosines = (x.double() for x in sinusoids(torch.tensor(position), width))
    turns = [torch.stack((torch.stack((c, -s)), torch.stack((s, c)))) for s, c in zip(sines, cosines, strict=True)]
    matrix: Tensor = torch.block_diag(*turns)
    return matrix


def rotation() -> Lecture:
    """RoPE: (R_m q) · (R_n k) = q · (R_(n-m) k): turned by their positions, two vectors know how far apart they are."""
    width = 16
    q, k = (torch.randn(width, dtype=torch.float64) for _ in range(2))
    pairs = [(0, 3), (10, 13), (100, 103), (1000, 1003)]
    products = [float(turned(q, m) @ turned(k, n)) for m, n in pairs]
    x, y, angle = 3.0, 4.0, 1.0
    plane = rotation_matrix(1, 2) @ torch.tensor([x, y], dtype=torch.float64)
    first, second = rotation_matrix(2, width), rotation_matrix(5, width)
    alone = rotation_matrix(2, 2).T @ rotation_matrix(5, 2)
    return Lecture(
        {
            "(R_m q) · (R_n k), n - m = 3, m = 0, 10, 100, 1000": products,
            "q · (R_3 k)": float(q @ rotation_matrix(3, width) @ k),
            "R_2ᵀ R_5 against R_3, largest difference": float(
                (first.T @ second - rotation_matrix(3, width)).abs().max()
            ),
            "matrix against the code, largest difference": float((second @ q - turned(q, 5)).abs().max()),
            "(3, 4) turned by 1": listed(plane),
            "the same by x cos - y sin, x sin + y cos": [
                x * math.cos(angle) - y * math.sin(angle),
                x * math.sin(angle) + y * math.cos(angle),
            ],
            "length before and after": [float(q.norm()), float(turned(q, 5).norm())],
            "R_2ᵀ R_5 of one pair": listed(alone),
            "cos 3, -sin 3, sin 3, cos 3": [math.cos(3), -math.sin(3), math.sin(3), math.cos(3)],
        },
        (heat("R_5, D = 16", second), heat("R_2ᵀ R_5 = R_3", first.T @ second)),
    )


def rotation_decay() -> Lecture:
    """Products under RoPE fall with the distance for vectors that are alike; for independent ones they are about 0 at
    any distance; and cosine similarity does change with it.
    """
    width, pairs = 128, 2000
    distances = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
    ones = torch.ones(width, dtype=torch.float64)
    gauss = [torch.randn(pairs, width, dtype=torch.float64) for _ in range(2)]
    above = [torch.rand(pairs, width, dtype=torch.float64) for _ in range(2)]
    found: dict[str, list[float]] = {"q = k = (1, …, 1)": [], "q, k uniform in [0, 1)": [], "q, k normal": []}
    spread = []
    for n in distances:
        turn = rotation_matrix(n, width)
        products = ((gauss[1] @ turn.T) * gauss[0]).sum(-1)
        found["q = k = (1, …, 1)"].append(float(ones @ turn @ ones) / width)
        found["q, k uniform in [0, 1)"].append(float(((above[1] @ turn.T) * above[0]).sum(-1).mean()) / width)
        found["q, k normal"].append(float(products.mean()) / width)
        spread.append(float(products.std()) / math.sqrt(width))
    q = gauss[0][0]
    same = [float(torch.cosine_similarity(q, turned(q, n), dim=0)) for n in (0, 1, 8, 64)]
    return Lecture(
        {
            "distances": [float(n) for n in distances],
            **{f"mean product / D, {name}": values for name, values in found.items()},
            "its spread over √D, q, k normal": spread,
            "cosine of a vector with itself 0, 1, 8, 64 positions on": same,
        },
        (
            curves(
                "Mean of (R_0 q) · (R_n k) / D",
                [max(0.5, n) for n in distances],
                found,
                x="distance (0 drawn at 0.5)",
                logarithmic="x",
            ),
        ),
    )
