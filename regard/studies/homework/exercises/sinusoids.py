"""Exercise: sinusoidal positions."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.nn.positions import Sinusoidal

from ..exercise import Check, Exercise, Said, Source, Text, Wrong, doc, drawn


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """The position vectors (P, width) of positions (P,), from 0 on: sines at even features, cosines at odd ones."""
    pairs = torch.arange(0, width, 2)
    angles = positions[:, None] / 10000 ** (pairs / width)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def add_positions(x: Tensor) -> Tensor:
    """Embeddings x (B, T, D), each with the vector of its position in its sequence added: (B, T, D)."""
    positions = torch.arange(x.shape[1])
    return x + sinusoids(positions, x.shape[-1])


def _library(positions: Tensor, width: int) -> Tensor:
    longest = int(positions.max()) + 1
    return Sinusoidal(width, longest)(positions, longest)  # type: ignore[no-any-return]  # a module's call says nothing


EXERCISE = Exercise(
    number=5,
    name="sinusoids",
    lectures=("sinusoids", "sinusoid-laws"),
    sources=(
        Source(1, "方法2: Sinusoidal (三角函数式) 位置编码"),
        Source(3, "3.2 非线性与位置表示"),
        Source(5, "位置编码"),
    ),
    texts={
        "en": Text(
            "Sinusoidal positions",
            """
Attention alone does not know the order of the words. The Transformer adds a vector of its position to each embedding:

    PE(pos, 2i)     = sin(pos / 10000^(2i / d))
    PE(pos, 2i + 1) = cos(pos / 10000^(2i / d))

    input = token + position

2i and 2i + 1 are the numbers of the features, and d is their count, which is even here.
""",
            {"sinusoids": doc(sinusoids), "add_positions": doc(add_positions)},
        ),
        "zh": Text(
            "正弦位置",
            """
注意力本身不知道词的次序。Transformer 给每个词嵌入加上它所在位置的向量：

    PE(pos, 2i)     = sin(pos / 10000^(2i / d))
    PE(pos, 2i + 1) = cos(pos / 10000^(2i / d))

    输入 = 词元 + 位置

2i 与 2i + 1 是特征的下标，d 是特征的个数，这里总是偶数。
""",
            {
                "sinusoids": "位置 (P,)（从 0 数起）的位置向量 (P, width)：偶数下标是正弦，奇数下标是余弦。",
                "add_positions": "给词嵌入 x (B, T, D) 加上各自在序列中的位置的向量：(B, T, D)。",
            },
        ),
    },
    answers=(sinusoids, add_positions),
    reference={"sinusoids": _library, "add_positions": lambda x: x + _library(torch.arange(x.shape[1]), x.shape[2])},
    checks=(
        Check(
            "sinusoids",
            7,
            Said("the position vectors", "位置向量"),
            (
                {"positions": torch.tensor([1]), "width": 2},
                {"positions": torch.arange(3), "width": 4},
                {"positions": torch.tensor([0, 7, 100]), "width": 6},
            ),
        ),
        Check(
            "add_positions",
            3,
            Said("positions added to embeddings", "把位置加到词嵌入上"),
            ({"x": torch.ones(1, 2, 2)}, {"x": drawn(2, 3, 4)}),
        ),
    ),
    wrong=(
        Wrong(
            "sinusoids",
            "exchanged",
            Said(
                "Sine and cosine are exchanged: sines stand at even features, cosines at odd ones.",
                "正弦与余弦互换了：偶数下标是正弦，奇数下标是余弦。",
            ),
            (("(angles.sin(), angles.cos())", "(angles.cos(), angles.sin())"),),
        ),
        Wrong(
            "sinusoids",
            "halves",
            Said(
                "All sines come first and all cosines behind; they alternate in the lectures' formula.",
                "所有正弦在前、所有余弦在后；讲义的公式里二者交替排列。",
            ),
            (
                (
                    "torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)",
                    "torch.cat((angles.sin(), angles.cos()), -1)",
                ),
            ),
        ),
        Wrong(
            "sinusoids",
            "exponent-twice",
            Said(
                "The exponent is twice too large: 2i is already the number of the even feature.",
                "指数大了一倍：2i 已经是偶数下标本身。",
            ),
            (("(pairs / width)", "(2 * pairs / width)"),),
        ),
        Wrong(
            "sinusoids",
            "exponent-half",
            Said("The exponent is i / d; it must be 2i / d.", "指数是 i / d；应为 2i / d。"),
            (("(pairs / width)", "(pairs / 2 / width)"),),
        ),
        Wrong(
            "sinusoids",
            "multiplied",
            Said(
                "The position is multiplied with the power; it must be divided by it.", "位置乘以了那个幂；应当除以它。"
            ),
            (("positions[:, None] / 10000", "positions[:, None] * 10000"),),
        ),
        Wrong(
            "sinusoids",
            "from-one",
            Said(
                "Your positions count from 1; they are given as they are, from 0.",
                "你的位置从 1 数起；应按给出的值，从 0 数起。",
            ),
            (("positions[:, None] / 10000", "(positions[:, None] + 1) / 10000"),),
        ),
        Wrong(
            "sinusoids",
            "base",
            Said("The base is 1000 in your result; it must be 10000.", "你的底数是 1000；应为 10000。"),
            (("10000 **", "1000 **"),),
        ),
        Wrong(
            "sinusoids",
            "own-exponent",
            Said(
                "The cosine has an exponent of its own, (2i + 1) / d; sine and cosine of a pair share 2i / d.",
                "余弦用了自己的指数 (2i + 1) / d；同一对的正弦与余弦共用 2i / d。",
            ),
            (("angles.cos()", "(positions[:, None] / 10000 ** ((pairs + 1) / width)).cos()"),),
        ),
        Wrong(
            "add_positions",
            "multiplied",
            Said(
                "The positions are multiplied with the embeddings; they must be added.",
                "位置与词嵌入相乘了；应当相加。",
            ),
            (("return x + sinusoids", "return x * sinusoids"),),
        ),
        Wrong(
            "add_positions",
            "from-one",
            Said("The first position is 0, not 1.", "第一个位置是 0，不是 1。"),
            (("torch.arange(x.shape[1])", "torch.arange(1, x.shape[1] + 1)"),),
        ),
        Wrong(
            "add_positions",
            "same-for-all",
            Said("Every word gets the vector of position 0.", "每个词都加上了位置 0 的向量。"),
            (("torch.arange(x.shape[1])", "torch.zeros(x.shape[1])"),),
        ),
        Wrong(
            "add_positions",
            "batch-axis",
            Said(
                "The positions run along the batch; each sequence begins with position 0 anew.",
                "位置沿着批的方向变化；每个序列都应从位置 0 开始。",
            ),
            (
                ("torch.arange(x.shape[1])", "torch.arange(x.shape[0])"),
                ("x + sinusoids(positions, x.shape[-1])", "x + sinusoids(positions, x.shape[-1])[:, None]"),
            ),
        ),
    ),
)
