"""Exercise: masks, causal and of padding, and rows with nothing to look at."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.nn.attention.core import Causal, Lengths, matrix
from regard.nn.attention.core import weigh as library

from ..exercise import Case, Check, Exercise, Law, Said, Source, Text, Wrong, doc, drawn


def causal(size: int) -> Tensor:
    """The causal mask (size, size): [i, j] is True where position i may look at position j, itself and before."""
    position = torch.arange(size)
    return position <= position[:, None]


def padding(lengths: Tensor, size: int) -> Tensor:
    """The padding mask (B, size) of sequences of these lengths (B,): True where there is a token, False at padding."""
    return torch.arange(size) < lengths[:, None]


def weigh(scores: Tensor, mask: Tensor) -> Tensor:
    """Weights (T, S) of scores (T, S): 0 where the mask is False, each row's sum 1; a row all False gives zeros."""
    hidden = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(hidden, dim=-1).masked_fill(~mask.any(-1, keepdim=True), 0.0)


def _mask(size: int) -> Tensor:
    return matrix(Causal(), 1, size, size, torch.device("cpu"))


def _padding(lengths: Tensor, size: int) -> Tensor:
    return matrix(Lengths(lengths), len(lengths), 1, size, torch.device("cpu"))[:, 0, 0]


def _hidden_weigh_nothing(case: Case, value: object) -> bool:
    assert isinstance(value, Tensor)
    mask = case["mask"]
    assert isinstance(mask, Tensor)
    return bool((value[~mask].nan_to_num(0.0).abs() < 1e-4).all())


def _no_future(case: Case, value: object) -> bool:
    assert isinstance(value, Tensor)
    return not bool(value.bool().triu(1).any())


def _no_padding(case: Case, value: object) -> bool:
    assert isinstance(value, Tensor)
    return torch.equal(value.bool() & ~_padding(**case), torch.zeros_like(value, dtype=torch.bool))  # type: ignore[arg-type]  # they are its arguments


_SCORES = torch.tensor([[1.0, 2.0], [0.0, 3.0]])

EXERCISE = Exercise(
    number=3,
    name="masks",
    lectures=("masks",),
    sources=(
        Source(1, "Masked MHA掩码多头注意力"),
        Source(3, "3.3 模型优化与并行计算改进"),
        Source(5, "解码器对序列中一个元素输出时,不应该考虑该元素之后的元素"),
    ),
    texts={
        "en": Text(
            "Masks: the future and padding",
            """
A decoder that predicts the next word may not look at it, and nobody may look at padding. So some scores become -∞
before the softmax:

    e_ij = q_iᵀ k_j   where j ≤ i
    e_ij = -∞         where j > i

Here, as everywhere in Regard, a mask is True where one MAY look. A row in which nothing may be looked at (a sequence of
padding alone) gives zeros; a plain softmax of -∞ alone would be NaN.
""",
            {"causal": doc(causal), "padding": doc(padding), "weigh": doc(weigh)},
        ),
        "zh": Text(
            "掩码：未来的位置与填充",
            """
解码器要预测下一个词，就不可以看到它；填充则谁都不可以看。因此在 softmax 之前，有些分数要变成 -∞：

    e_ij = q_iᵀ k_j   当 j ≤ i
    e_ij = -∞         当 j > i

与 Regard 各处一样，掩码为 True 表示“可以看”。如果一行里什么都不可以看（例如整行都是填充），结果应为零；
若直接对全是 -∞ 的一行做 softmax，得到的是 NaN。
""",
            {
                "causal": "因果掩码 (size, size)：位置 i 可以看位置 j（自己和之前的）时，[i, j] 为 True。",
                "padding": "各序列长度为 lengths (B,) 时的填充掩码 (B, size)：有词元处为 True，填充处为 False。",
                "weigh": "分数 (T, S) 的权重 (T, S)：掩码为 False 处为 0，每行总和为 1；整行都是 False 时全为零。",
            },
        ),
    },
    answers=(causal, padding, weigh),
    reference={"causal": _mask, "padding": _padding, "weigh": library},
    checks=(
        Check("causal", 3, Said("the causal mask", "因果掩码"), ({"size": 2}, {"size": 4})),
        Check(
            "padding",
            2,
            Said("the padding mask", "填充掩码"),
            (
                {"lengths": torch.tensor([1]), "size": 2},
                {"lengths": torch.tensor([2, 0, 3]), "size": 3},
                {"lengths": torch.tensor([1, 4]), "size": 4},
            ),
        ),
        Check(
            "weigh",
            3,
            Said("hidden positions get no weight", "看不到的位置没有权重"),
            (
                {"scores": _SCORES, "mask": _mask(2)},
                {"scores": _SCORES, "mask": torch.tensor([[False, True], [True, True]])},
                {"scores": drawn(4, 4), "mask": _mask(4)},
            ),
        ),
        Check(
            "weigh",
            2,
            Said("a row with nothing to look at gives zeros", "什么都不可以看的一行为零"),
            (
                {"scores": torch.tensor([[1.0, 2.0]]), "mask": torch.tensor([[False, False]])},
                {"scores": drawn(3, 3), "mask": torch.tensor([[False] * 3, [True] * 3, [True, False, False]])},
            ),
        ),
    ),
    laws=(
        Law(
            "causal",
            "leaks-future",
            _no_future,
            Said(
                "Your mask leaks the future: position i may look at a later one.",
                "你的掩码泄露了未来：位置 i 可以看到它之后的位置。",
            ),
        ),
        Law("padding", "shows-padding", _no_padding, Said("Your mask shows padding.", "你的掩码让人看到了填充。")),
        Law(
            "weigh",
            "hidden-weight",
            _hidden_weigh_nothing,
            Said("A position that the mask hides gets weight.", "掩码遮住的位置得到了权重。"),
        ),
    ),
    wrong=(
        Wrong(
            "causal",
            "future-instead",
            Said(
                "Your mask is the wrong way round: it shows the future and hides the past.",
                "你的掩码方向反了：它露出未来，遮住过去。",
            ),
            (("position <= position[:, None]", "position >= position[:, None]"),),
        ),
        Wrong(
            "causal",
            "not-itself",
            Said("A position must see itself too: the diagonal is True.", "位置也应看到自己：对角线应为 True。"),
            (("position <= position[:, None]", "position < position[:, None]"),),
        ),
        Wrong(
            "causal",
            "one-ahead",
            Said(
                "Your mask leaks the future: each position sees one position ahead.",
                "你的掩码泄露了未来：每个位置多看到了后面一个位置。",
            ),
            (("position <= position[:, None]", "position <= position[:, None] + 1"),),
        ),
        Wrong(
            "causal",
            "true-hides",
            Said(
                "Your mask is True where one may NOT look; here True means “may look”.",
                "你的掩码在“不可以看”处为 True；这里 True 表示“可以看”。",
            ),
            (("position <= position[:, None]", "position > position[:, None]"),),
        ),
        Wrong(
            "causal",
            "all",
            Said("Your mask hides nothing: the future is visible.", "你的掩码什么都没有遮住：未来是可见的。"),
            (("position <= position[:, None]", "torch.ones(size, size, dtype=torch.bool)"),),
        ),
        Wrong(
            "padding",
            "one-too-many",
            Said(
                "One position of padding is visible: positions count from 0, so the last token stands at length - 1.",
                "多露出了一个填充：位置从 0 数起，最后一个词元在 length - 1 处。",
            ),
            (("< lengths[:, None]", "<= lengths[:, None]"),),
        ),
        Wrong(
            "padding",
            "true-hides",
            Said(
                "Your mask is True at padding; here True means “may look”.",
                "你的掩码在填充处为 True；这里 True 表示“可以看”。",
            ),
            (("< lengths[:, None]", ">= lengths[:, None]"),),
        ),
        Wrong(
            "padding",
            "left",
            Said(
                "Your mask takes the padding to be in front; it is at the end.", "你的掩码把填充当作在前面；它在末尾。"
            ),
            (("torch.arange(size) < lengths[:, None]", "torch.arange(size).flip(0) < lengths[:, None]"),),
        ),
        Wrong(
            "weigh",
            "mask-ignored",
            Said("The mask is not used: hidden positions get weight.", "没有用到掩码：看不到的位置也得到了权重。"),
            (('.masked_fill(~mask, float("-inf"))', ""),),
        ),
        Wrong(
            "weigh",
            "zero-score",
            Said(
                "Hidden scores become 0, and a score of 0 still gets weight; they must become -∞.",
                "看不到的分数变成了 0，而 0 分仍会得到权重；应当变成 -∞。",
            ),
            (('float("-inf")', "0.0"),),
        ),
        Wrong(
            "weigh",
            "after-softmax",
            Said(
                "The mask is applied after the softmax, so that the rows no longer sum to 1; apply it to the scores.",
                "掩码用在了 softmax 之后，每行总和不再是 1；应当用在分数上。",
            ),
            (('.masked_fill(~mask, float("-inf"))', ""), (".masked_fill(~mask.any(-1, keepdim=True), 0.0)", " * mask")),
        ),
        Wrong(
            "weigh",
            "inverted",
            Said("The mask is the wrong way round: True means “may look”.", "掩码用反了：True 表示“可以看”。"),
            (("scores.masked_fill(~mask,", "scores.masked_fill(mask,"), ("~mask.any", "mask.all")),
        ),
        Wrong(
            "weigh",
            "nan-row",
            Said(
                "A row with nothing to look at gives NaN; it must give zeros.",
                "什么都不可以看的一行得到了 NaN；应当为零。",
            ),
            ((".masked_fill(~mask.any(-1, keepdim=True), 0.0)", ""),),
        ),
        Wrong(
            "weigh",
            "uniform-row",
            Said(
                "A row with nothing to look at gets equal weights for what is hidden (a large negative number instead "
                "of -∞ does that); it must give zeros.",
                "什么都不可以看的一行得到了均匀的权重（用很大的负数代替 -∞ 就会这样）；应当为零。",
            ),
            (('float("-inf")', "-1e9"), (".masked_fill(~mask.any(-1, keepdim=True), 0.0)", "")),
        ),
        Wrong(
            "weigh",
            "wrong-axis",
            Said(
                "The softmax runs over the queries; it must run over the keys, the last axis (dim=-1).",
                "softmax 沿查询的方向做了；它应沿键的方向，即最后一维（dim=-1）。",
            ),
            (("dim=-1", "dim=0"),),
        ),
    ),
)
