"""What `test_threads.py` runs in processes of their own: every compiled kernel against PyTorch in float64.

Prints "agree" when all do. An argument says how they are run: plainly, inside of a parallel region, after a fork, or in
threads of their own.
"""

from __future__ import annotations

import copy
import ctypes
import os
import signal
import sys
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.kernels import native, recurrent, rotary
from regard.kernels.native import _openmp
from regard.nn.layers import LayerNorm
from regard.nn.positions import Rotary
from regard.nn.recurrent import LSTM, gru_cell, lstm_cell
from regard.train import label_smoothed

ROWS, WIDTH, OUTPUTS = 300, 64, 130


def near(ours: Tensor | None, exact: Tensor | None, bound: float) -> None:
    assert ours is not None
    assert exact is not None
    difference = (ours.double() - exact.double()).abs().max().item()
    assert difference <= bound * exact.abs().max().item(), f"{difference} of {exact.abs().max().item()}"


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    return [(torch.randn(*shape) * shape[-1] ** -0.25).bfloat16() for shape in shapes]


def maps() -> None:
    """A linear map, a feed-forward network and the loss behind a projection, with all gradients."""
    if native.products_lacking():
        return
    x, w1, b1, w2, b2, g = leaves(
        (ROWS, WIDTH), (OUTPUTS, WIDTH), (OUTPUTS,), (WIDTH, OUTPUTS), (WIDTH,), (ROWS, OUTPUTS)
    )
    dx, dw, db = native.linear_back(g, x, w1, True, True)
    near(dx, g.double() @ w1.double(), 0.01)
    near(dw, g.double().T @ x.double(), 0.01)
    near(db, g.double().sum(0), 0.01)
    fast = [t.clone().requires_grad_() for t in (x, w1, b1, w2, b2)]
    exact = [t.double().requires_grad_() for t in (x, w1, b1, w2, b2)]
    ours = native.feedforward(*fast)
    theirs = F.linear(F.linear(*exact[:3]).relu(), *exact[3:])
    ours.backward(x)
    theirs.backward(x.double())
    for one, other in zip([ours, *(t.grad for t in fast)], [theirs, *(t.grad for t in exact)], strict=True):
        near(one, other, 0.01)
    targets = torch.arange(ROWS) % OUTPUTS
    losses, *made = native.projected_loss(x, w1, b1, targets, 0.1)
    exact = [t.double().requires_grad_() for t in (x, w1, b1)]
    total = label_smoothed(F.linear(*exact), targets, 0.1)
    total.backward()
    near(losses.sum(), total.detach(), 0.01)
    for one, parameter in zip(made, exact, strict=True):
        near(one, parameter.grad, 0.02)


def passes() -> None:
    """Attention of packs, layer norm, dropout and the loss, with their gradients."""
    starts = torch.tensor([0, 100, 230, ROWS], dtype=torch.int32)
    drawn = [torch.randn(1, 4, ROWS, 16) for _ in range(3)]
    fast, exact = [t.clone().requires_grad_() for t in drawn], [t.double().requires_grad_() for t in drawn]
    ours = native.attend(*fast, starts, starts, True)
    row = torch.bucketize(torch.arange(ROWS), starts[1:].long(), right=True)
    sees = (row[:, None] == row) & (torch.arange(ROWS)[:, None] >= torch.arange(ROWS))
    theirs = F.scaled_dot_product_attention(*exact, attn_mask=sees, scale=1.0)
    ours.sin().sum().backward()
    theirs.sin().sum().backward()
    for one, other in zip([ours, *(t.grad for t in fast)], [theirs, *(t.grad for t in exact)], strict=True):
        near(one, other, 1e-4)
    norm, reference = LayerNorm(WIDTH), LayerNorm(WIDTH).double()
    x = torch.randn(ROWS, WIDTH)
    found = []
    for each, given in ((norm, x.clone().requires_grad_()), (reference, x.double().requires_grad_())):
        out = each(given)
        out.sin().sum().backward()
        found.append([out, given.grad, each.weight.grad, each.bias.grad])
    for one, other in zip(*found, strict=True):
        near(one, other, 1e-4)
    part, places, turned = Rotary(16, ROWS), torch.arange(ROWS), []
    for given in (drawn[0].clone().requires_grad_(), drawn[0].double().requires_grad_()):
        fast = given.dtype == torch.float32
        out = rotary.turn(given, part.table, places) if fast else part(given, places, ROWS)
        out.sin().sum().backward()
        turned.append([out, given.grad])
    for one, other in zip(*turned, strict=True):
        near(one, other, 1e-4)
    y = torch.ones(ROWS, WIDTH, requires_grad=True)
    dropped = native.drop_add(None, y, 0.5)
    dropped.sum().backward()
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(dropped, y.grad)  # type: ignore[arg-type]
    logits, targets = torch.randn(ROWS, OUTPUTS), torch.arange(ROWS) % OUTPUTS
    losses = native.smoothed(logits.clone(), targets, 0.1)
    near(losses.sum(), label_smoothed(logits.double(), targets, 0.1), 1e-5)


def one_step() -> None:
    """A step of an LSTM and one of a GRU, with their gradients."""
    shapes: dict[Any, list[int]] = {lstm_cell: [4, 1], gru_cell: [3, 3, 1]}
    for fast, reference in ((recurrent.lstm_cell, lstm_cell), (recurrent.gru_cell, gru_cell)):
        drawn = [torch.randn(ROWS, times * WIDTH) for times in shapes[reference]]
        found = []
        for each, given in ((fast, [x.clone() for x in drawn]), (reference, [x.double() for x in drawn])):
            made = each(*(x.requires_grad_() for x in given))
            out = made if isinstance(made, tuple) else (made,)
            torch.cat(out, 1).sin().sum().backward()
            found.append([*out, *(x.grad for x in given)])
        for one, other in zip(*found, strict=True):
            near(one, other, 1e-5)


def layer() -> None:
    """An LSTM's whole layer, with its gradients."""
    if native.products_lacking():
        return
    module = LSTM(32, 48).bfloat16()
    exact = copy.deepcopy(module).double()
    x, nothing, last = torch.randn(5, 40, 32).bfloat16(), torch.zeros(40, 48), torch.full((40,), 4)
    weights = module.input.weight, module.input.bias, module.hidden.weight
    ours = recurrent.lstm_layer(x.requires_grad_(), *weights, nothing.bfloat16(), nothing, last)[0]
    read = x.detach().double().requires_grad_()
    theirs = exact(read)[0]
    near(ours, theirs, 0.02)
    ours.float().sin().sum().backward()
    theirs.sin().sum().backward()
    for one, other in ((x, read), *zip(module.parameters(), exact.parameters(), strict=True)):
        near(one.grad, other.grad, 0.03)


def everything() -> None:
    maps()
    passes()
    one_step()
    layer()


def in_a_region() -> None:
    """Inside of a parallel region of PyTorch's OpenMP, by one of its threads."""
    functions = _openmp()
    assert functions is not None
    parallel, thread = functions[:2]
    failures: list[BaseException] = []

    def guarded(_: object) -> None:
        try:
            if thread() == 0:
                everything()
        except BaseException as error:
            failures.append(error)

    parallel(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(guarded), None, 2, 0)
    if failures:
        raise failures[0]


def in_our_own_threads() -> None:
    """As where PyTorch has no OpenMP that can be found."""
    with patch.object(native, "_openmp", lambda: None):
        everything()


def kernels_alone() -> list[Any]:
    """What some kernels make, without PyTorch's own parallel work, which would hang in a forked process."""
    torch.manual_seed(0)
    x, w, g = torch.randn(ROWS, 16), torch.randn(32, 16), torch.randn(ROWS, 32)
    starts = torch.tensor([0, 100, ROWS], dtype=torch.int32)
    heads = x[None, None].expand(1, 4, ROWS, 16)
    made = [
        native.attend(heads, heads, heads, starts, starts, False),
        native.smoothed(g.clone(), starts[:1].expand(ROWS).long(), 0.1),
    ]
    made += recurrent.lstm_cell(torch.randn(ROWS, 4 * WIDTH), torch.randn(ROWS, WIDTH))
    if not native.products_lacking():
        made += native.linear_back(g.bfloat16(), x.bfloat16(), w.bfloat16(), True, True)
    return [each.float().numpy() for each in made]


def after_a_fork() -> None:
    everything()  # the parent's threads are there
    expected = kernels_alone()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that hangs must not stay
        code = 1
        try:
            pairs = zip(kernels_alone(), expected, strict=True)
            code = 0 if all(np.allclose(ours, theirs, 1e-2, 1e-2) for ours, theirs in pairs) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    ways = {
        "plainly": everything,
        "in a region": in_a_region,
        "after a fork": after_a_fork,
        "alone": in_our_own_threads,
    }
    ways[sys.argv[1]]()
    print("agree")
