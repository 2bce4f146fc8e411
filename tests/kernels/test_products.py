"""Compiled linear maps agree with float64 for every shape, and a row does not know its neighbours or the threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.kernels import native
from regard.nn.layers import Dropout, FeedForward, LayerNorm, Linear
from regard.train import label_smoothed, projected_loss

pytestmark = pytest.mark.skipif(native.products_lacking() is not None, reason=str(native.products_lacking()))


@pytest.fixture(autouse=True)
def _taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are used although this machine may have faster ones, so that they are tested here."""
    monkeypatch.setattr(native, "beaten", lambda: None)


def _drawn(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    return [(torch.randn(*s) * s[-1] ** -0.25).bfloat16() for s in shapes]


def _compare(fast: Callable[..., Tensor], exact: Callable[..., Tensor], leaves: Sequence[Tensor]) -> None:
    """Outputs and gradients of both; bfloat16 keeps 8 bits, and nothing may be further off than their rounding."""
    found = []
    for function, dtype in ((fast, torch.bfloat16), (exact, torch.float64)):
        given = [x.detach().to(dtype).requires_grad_() for x in leaves]
        out = function(*given)
        torch.manual_seed(1)
        out.backward(torch.randn(out.shape).bfloat16().to(dtype))
        found.append([out.double(), *(x.grad.double() for x in given if x.grad is not None)])
    assert len(found[0]) == len(found[1]) == len(leaves) + 1
    for one, other in zip(*found, strict=True):
        assert (one - other).abs().max() <= 0.006 * other.abs().max()


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("rows", "width", "outputs"),
    [(1, 2, 2), (7, 16, 48), (33, 30, 50), (200, 256, 130), (701, 96, 64), (50, 1030, 98), (40, 2200, 6)],
)
def test_a_linear_map_agrees_with_float64(rows: int, width: int, outputs: int, biased: bool) -> None:
    leaves = _drawn((rows, width), (outputs, width), (outputs,))
    if not biased:
        _compare(lambda x, w: native.linear(x, w, None), F.linear, leaves[:2])
    else:
        _compare(native.linear, F.linear, leaves)


@pytest.mark.parametrize(("rows", "width", "inner"), [(1, 2, 4), (67, 30, 70), (601, 64, 256), (40, 128, 2050)])
def test_a_feed_forward_network_agrees_with_float64(rows: int, width: int, inner: int) -> None:
    def exact(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        return F.linear(F.linear(x, w1, b1).relu(), w2, b2)

    _compare(native.feedforward, exact, _drawn((rows, width), (inner, width), (inner,), (width, inner), (width,)))


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("rows", "width", "vocabulary"), [(33, 16, 50), (700, 64, 1002), (40, 32, 5000), (300, 16, 66000)]
)
def test_the_loss_behind_a_projection_agrees_with_float64(rows: int, width: int, vocabulary: int, biased: bool) -> None:
    hidden, weight, bias = _drawn((rows, width), (vocabulary, width), (vocabulary,))
    targets = torch.randint(0, vocabulary, (rows,))
    targets[[2, rows - 1]] = -1
    leaves = [hidden, weight, bias] if biased else [hidden, weight]

    def fast(h: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return projected_loss(h, w, b, targets, 0.1, 64)

    def exact(h: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return label_smoothed(F.linear(h, w, b), targets, 0.1)

    assert native.refuses_linear(hidden, weight, bias if biased else None) is None
    _compare(fast, exact, leaves)


def test_the_loss_has_the_same_bits_and_hardly_more_memory_however_many_threads_there_are() -> None:
    """Also with more threads than cores; of a large vocabulary no thread has a gradient of its own."""
    hidden, weight, bias = _drawn((1100, 32), (20_000, 32), (20_000,))
    targets, sizes = torch.randint(0, 20_000, (1100,)), (ctypes.c_int64(1100), 20_000, 32)
    threads, found, bytes_ = torch.get_num_threads(), [], []
    try:
        for many in (1, 3, 8):
            torch.set_num_threads(many)
            assert native.refuses_linear(hidden, weight, bias) is None
            found.append(native.projected_loss(hidden, weight, bias, targets, 0.1))
            bytes_.append(
                native._PRODUCTS.call("projected_loss", *[None] * 5, ctypes.c_float(0.1), *[None] * 4, *sizes)
            )
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
    assert bytes_[2] < bytes_[0] + 2**25 + 8 * 20_000 * 32


def test_modules_use_them_and_no_row_knows_its_neighbours_or_the_threads() -> None:
    torch.manual_seed(0)
    network, x = FeedForward(64, 256, "relu", 0.0).bfloat16(), torch.randn(5, 61, 64).bfloat16()
    whole = network(x)
    assert type(whole.grad_fn).__name__ == "_FeedForwardBackward"
    assert torch.equal(network(x[2:4]), whole[2:4])
    line = Linear(64, 96).bfloat16()
    whole = line(x)
    assert type(whole.grad_fn).__name__ == "_LinearBackward"
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert torch.equal(line(x[1:]), whole[1:])
    finally:
        torch.set_num_threads(threads)


def test_what_they_cannot_take_goes_to_pytorch() -> None:
    odd, even = torch.zeros(40, 3, dtype=torch.bfloat16), torch.zeros(40, 4, dtype=torch.bfloat16)
    assert native.refuses_linear(even, even) is None
    assert "of even sizes" in str(native.refuses_linear(odd, odd))
    assert "for bfloat16" in str(native.refuses_linear(even.float(), even.float()))
    assert "so few rows" in str(native.refuses_linear(even[:2], even))
    assert Linear(3, 5).bfloat16()(odd).shape == (40, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_residual_and_norm_in_one_pass_have_the_bits_of_the_two(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    norm, dropout = LayerNorm(64).to(dtype), Dropout(0.3)
    x, y, g = (torch.randn(77, 64).to(dtype) for _ in range(3))
    found = []
    for ensemble_with in (True, False):
        a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
        torch.manual_seed(5)
        out = norm.of_sum(a, b, dropout) if ensemble_with else norm(dropout.add(a, b))
        found.append([out, *torch.autograd.grad(out, [a, b, norm.weight, norm.bias], g)])
    assert (found[0][2] == 0).double().mean().item() == pytest.approx(0.3, abs=0.03)
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
