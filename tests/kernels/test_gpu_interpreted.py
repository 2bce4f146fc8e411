"""The kernels for GPUs by Triton's interpreter, which needs no GPU; it knows no bfloat16.

pip install triton "numpy<2.3"
TRITON_INTERPRET=1 pytest tests/kernels/test_gpu_interpreted.py
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

_READY = bool(os.environ.get("TRITON_INTERPRET")) and find_spec("triton") is not None
pytestmark = [
    pytest.mark.skipif(not _READY, reason="needs Triton and TRITON_INTERPRET=1"),
    pytest.mark.filterwarnings("default::DeprecationWarning"),  # of NumPy's, about the interpreter
]
LENGTHS = torch.tensor([1, 7, 16, 0, 33, 70, 5, 3])
OTHERS = torch.tensor([3, 1, 17, 2, 40, 60, 9, 0])


def _close(found: Tensor, right: Tensor, bound: float) -> None:
    assert bool(found.isfinite().all())
    assert float((found.double() - right).norm() / right.norm()) < bound


def _attended(q: Tensor, k: Tensor, v: Tensor, lengths: list[tuple[int, int]], causal: bool) -> Tensor:
    """Attention one sequence after the other; zeros for the tail and for queries without keys."""
    parts, a, b = [], 0, 0
    for n, m in lengths:
        scores = q[:, :, a : a + n] @ k[:, :, b : b + m].transpose(2, 3)
        if causal:
            scores = scores.masked_fill(torch.ones(n, m).triu(1).bool(), -torch.inf)
        parts.append(scores.softmax(-1) @ v[:, :, b : b + m])
        a, b = a + n, b + m
    return F.pad(torch.cat(parts, 2), (0, 0, 0, q.shape[2] - a))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float16, 1e-3)])
def test_attention_agrees_with_float64(dtype: torch.dtype, bound: float, causal: bool) -> None:
    """Sequences of one block and of several, empty ones, queries without keys, a tail; widths that are no powers."""
    from regard.kernels import gpu

    torch.manual_seed(0)
    theirs = LENGTHS if causal else OTHERS
    sizes = (int(LENGTHS.sum()) + 53, 24), (int(theirs.sum()) + 37, 24), (int(theirs.sum()) + 37, 16)
    tensors = [torch.randn(1, n, 2 * w).div(w**0.25).to(dtype).unflatten(-1, (2, w)).transpose(1, 2) for n, w in sizes]
    given = torch.randn(1, 2, sizes[0][0], 16).to(dtype)
    exact: list[Any] = [x.double().requires_grad_() for x in tensors]
    right = _attended(*exact, list(zip(LENGTHS.tolist(), theirs.tolist(), strict=True)), causal)
    right.backward(given.double())
    leaves: list[Any] = [x.detach().requires_grad_() for x in tensors]
    starts = (F.pad(n.cumsum(0), (1, 0)).to(torch.int32) for n in (LENGTHS, theirs))
    found = gpu.attend(*leaves, *starts, causal)
    found.backward(given)
    for ours, other in zip([found.detach(), *(x.grad for x in leaves)], [right, *(x.grad for x in exact)], strict=True):
        _close(ours, other.detach(), bound)


@pytest.mark.parametrize("tokens", [5, 5001, 8200])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_agrees_with_float64(smoothing: float, tokens: int) -> None:
    """Fewer and more tokens than are read at a time, rows aligned or not; targets that lie apart, some not wanted."""
    from regard.kernels import gpu
    from regard.train.objectives import label_smoothed

    torch.manual_seed(0)
    logits = torch.randn(7, tokens)
    targets = torch.tensor([[3, 1], [-1, 1], [0, 1], [4, 1], [3, 1], [tokens - 1, 1], [-1, 1]])[:, 0]
    exact = logits.double().requires_grad_()
    total = label_smoothed(exact, targets, smoothing)
    total.backward()
    losses = gpu.smoothed(logits, targets, smoothing)
    assert losses[targets < 0].tolist() == [0.0, 0.0]
    _close(losses.sum(), total.detach(), 1e-6)
    assert exact.grad is not None
    _close(logits, exact.grad, 1e-6)
