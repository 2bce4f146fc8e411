"""Exercise: rotary positions."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.nn.positions import Rotary

from ..exercise import Case, Check, Exercise, Law, Said, Source, Text, Wrong, doc, drawn


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Vectors x (T, D) at positions (T,), features 2i and 2i + 1 turned by position / 10000^(2i / D): (T, D)."""
    pairs = torch.arange(0, x.shape[-1], 2)
    angles = positions[:, None] / 10000 ** (pairs / x.shape[-1])
    even, odd = x[:, 0::2], x[:, 1::2]
    first = even * angles.cos() - odd * angles.sin()
    second = even * angles.sin() + odd * angles.cos()
    return torch.stack((first, second), dim=-1).flatten(1)


def scores(queries: Tensor, keys: Tensor) -> Tensor:
    """The dot products (T, S) of queries (T, D) and keys (S, D), both turned by their positions, which count from 0."""
    turned = rotate(queries, torch.arange(len(queries)))
    return turned @ rotate(keys, torch.arange(len(keys))).T


def _library(x: Tensor, positions: Tensor) -> Tensor:
    longest = int(positions.max()) + 1
    return Rotary(x.shape[-1], longest)(x[None, None], positions, longest)[0, 0]  # type: ignore[no-any-return]  # a module's call says nothing


def _lengths_stay(case: Case, value: object) -> bool:
    x = case["x"]
    assert isinstance(x, Tensor)
    assert isinstance(value, Tensor)
    return torch.allclose(x.norm(dim=-1), value.norm(dim=-1), atol=1e-3)


def _first_stays(case: Case, value: object) -> bool:
    x, positions = case["x"], case["positions"]
    assert isinstance(x, Tensor)
    assert isinstance(positions, Tensor)
    assert isinstance(value, Tensor)
    return torch.allclose(x[positions == 0], value[positions == 0], atol=1e-4)


_SWAPPED = ("even * angles.cos() - odd * angles.sin()", "even * angles.sin() + odd * angles.cos()")

EXERCISE = Exercise(
    number=6,
    name="rotary",
    lectures=("rotation", "rotation-decay"),
    sources=(Source(1, "思想: 通过绝对位置编码的方式实现相对位置编码"), Source(3, "3.2 非线性与位置表示")),
    texts={
        "en": Text(
            "Rotary positions (RoPE)",
            """
Instead of adding something, RoPE turns each pair of features (x, y) by an angle that grows with the position:

    x' = x cos θ - y sin θ
    y' = x sin θ + y cos θ

so the product of a query at m and a key at n depends on n - m alone. The pairs are features 2i and 2i + 1; pair i turns
by θ = position / 10000^(2i / D), each pair at a speed of its own. (The lecture's matrix shows one θ in every block;
models use the speeds of the sinusoids, as here.)
""",
            {"rotate": doc(rotate), "scores": doc(scores)},
        ),
        "zh": Text(
            "旋转位置编码（RoPE）",
            """
RoPE 不加任何东西，而是把每对特征 (x, y) 旋转一个随位置增大的角度：

    x' = x cos θ - y sin θ
    y' = x sin θ + y cos θ

于是位置 m 的查询与位置 n 的键的点积只取决于 n - m。每一对是特征 2i 与 2i + 1；第 i 对旋转
θ = position / 10000^(2i / D)，各对有自己的速度。（讲义的矩阵里各块写的是同一个 θ；
实际的模型用与正弦位置相同的各种速度，这里也是。）
""",
            {
                "rotate": "位置 (T,) 上的向量 x (T, D)，特征 2i 与 2i + 1 旋转 position / 10000^(2i / D)：(T, D)。",
                "scores": "查询 (T, D) 与键 (S, D) 按各自位置（从 0 数起）旋转后的点积 (T, S)。",
            },
        ),
    },
    answers=(rotate, scores),
    reference={
        "rotate": _library,
        "scores": lambda queries, keys: (
            _library(queries, torch.arange(len(queries))) @ _library(keys, torch.arange(len(keys))).T
        ),
    },
    checks=(
        Check(
            "rotate",
            7,
            Said("vectors turned", "旋转向量"),
            (
                {"x": torch.tensor([[1.0, 0.0]]), "positions": torch.tensor([1])},
                {"x": torch.tensor([[1.0, 2.0, 3.0, 4.0]] * 2), "positions": torch.tensor([0, 1])},
                {"x": drawn(3, 6), "positions": torch.tensor([0, 5, 40])},
            ),
        ),
        Check(
            "scores",
            3,
            Said("products know the distance", "点积知道距离"),
            (
                {"queries": torch.tensor([[1.0, 2.0]] * 2), "keys": torch.tensor([[2.0, 1.0]] * 3)},
                {"queries": drawn(3, 4), "keys": drawn(4, 4)},
            ),
        ),
    ),
    laws=(
        Law(
            "rotate",
            "lengths",
            _lengths_stay,
            Said(
                "A rotation does not change the length of a vector; yours does.",
                "旋转不改变向量的长度，而你的函数改变了。",
            ),
        ),
        Law(
            "rotate",
            "zero",
            _first_stays,
            Said(
                "At position 0 nothing is turned; yours changes the vector there.",
                "位置 0 处不旋转，而你的函数改变了那里的向量。",
            ),
        ),
    ),
    wrong=(
        *(
            Wrong("rotate", name, said, edits)
            for name, said, edits in (
                (
                    "backwards",
                    Said(
                        "The rotation goes in the wrong direction: by -θ instead of θ.",
                        "旋转方向反了：转了 -θ 而不是 θ。",
                    ),
                    (
                        (_SWAPPED[0], "even * angles.cos() + odd * angles.sin()"),
                        (_SWAPPED[1], "odd * angles.cos() - even * angles.sin()"),
                    ),
                ),
                (
                    "exchanged",
                    Said("Sine and cosine are exchanged.", "正弦与余弦互换了。"),
                    (
                        (_SWAPPED[0], "even * angles.sin() - odd * angles.cos()"),
                        (_SWAPPED[1], "even * angles.cos() + odd * angles.sin()"),
                    ),
                ),
                (
                    "same-signs",
                    Said(
                        "The minus is missing: x' = x cos θ - y sin θ. So it is no rotation.",
                        "缺少负号：x' = x cos θ - y sin θ。这样就不是旋转了。",
                    ),
                    ((_SWAPPED[0], "even * angles.cos() + odd * angles.sin()"),),
                ),
                (
                    "halves",
                    Said(
                        "You turn feature i with feature i + D/2, as some programs do; here neighbours are pairs, 2i "
                        "and 2i + 1.",
                        "你把特征 i 与 i + D/2 配成一对（有些程序如此）；这里相邻的 2i 与 2i + 1 是一对。",
                    ),
                    (
                        ("x[:, 0::2], x[:, 1::2]", "x.chunk(2, -1)"),
                        ("torch.stack((first, second), dim=-1).flatten(1)", "torch.cat((first, second), -1)"),
                    ),
                ),
                (
                    "one-speed",
                    Said(
                        "All pairs turn by the same angle; pair i turns by position / 10000^(2i / D).",
                        "所有的对都旋转了同一角度；第 i 对应旋转 position / 10000^(2i / D)。",
                    ),
                    (("(pairs / x.shape[-1])", "(0 * pairs)"),),
                ),
                (
                    "exponent-twice",
                    Said("The exponent is twice too large.", "指数大了一倍。"),
                    (("(pairs / x.shape[-1])", "(2 * pairs / x.shape[-1])"),),
                ),
                (
                    "from-one",
                    Said("Your positions count from 1 instead of 0.", "你的位置从 1 数起，而不是 0。"),
                    (("positions[:, None] / 10000", "(positions[:, None] + 1) / 10000"),),
                ),
                (
                    "not-interleaved",
                    Said(
                        "The turned features come out as two halves; they belong back at 2i and 2i + 1.",
                        "旋转后的特征成了前后两半；它们应放回 2i 与 2i + 1 的位置。",
                    ),
                    (("torch.stack((first, second), dim=-1).flatten(1)", "torch.cat((first, second), -1)"),),
                ),
            )
        ),
        Wrong(
            "scores",
            "queries-only",
            Said("Only the queries are turned; the keys must be turned too.", "只旋转了查询；键也要旋转。"),
            (("rotate(keys, torch.arange(len(keys))).T", "keys.T"),),
        ),
        Wrong(
            "scores",
            "not-turned",
            Said("Neither is turned: these are plain dot products.", "两者都没有旋转：这只是普通的点积。"),
            (
                ("rotate(keys, torch.arange(len(keys))).T", "keys.T"),
                ("rotate(queries, torch.arange(len(queries)))", "queries"),
            ),
        ),
        Wrong(
            "scores",
            "opposite",
            Said(
                "The keys turn against the queries, so that the product depends on the sum of the positions.",
                "键与查询旋转方向相反，点积取决于位置之和。",
            ),
            (("rotate(keys, torch.arange(len(keys)))", "rotate(keys, -torch.arange(len(keys)))"),),
        ),
    ),
)
