"""Recurrences: as PyTorch's own, both ways over rows of their own lengths; the fast paths as their references."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import regard.kernels.table  # noqa: F401  (fills the table of stand-ins)
from regard.kernels import native
from regard.nn.layers import only_references
from regard.nn.recurrent import CELLS, LSTM, Maxout, Products, Stack, gru_cell, lstm_cell

PEERS: dict[str, Any] = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
LENGTHS = torch.tensor([5, 2, 7, 1])

REFUSED = native.unavailable("cpu", torch.float32)
fast = pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED))


def _copied(stack: Stack, peer: nn.Module) -> None:
    """PyTorch's weights become those of a copy: the same names, the second bias aside."""
    with torch.no_grad():
        for name, parameter in peer.named_parameters():
            kind, which, layer, *back = name.split("_")
            one: Any = (stack.backwards if back else stack.forwards)[int(layer.removeprefix("l"))]
            map_ = one.input if which == "ih" else one.hidden
            if kind == "weight":
                map_.weight.copy_(parameter)
            elif map_.bias is None:
                parameter.zero_()
            else:
                map_.bias.copy_(parameter)


@pytest.mark.parametrize("direction", ["forwards", "both"])
@pytest.mark.parametrize("cell", CELLS)
def test_a_stack_is_as_pytorchs_in_values_ends_and_gradients(cell: str, direction: Any) -> None:
    torch.manual_seed(0)
    both = direction == "both"
    stack = Stack(cell, 3, 8, 2, 0.0, direction).double()
    peer = PEERS[cell](3, 4 if both else 8, 2, bidirectional=both).double()
    _copied(stack, peer)
    x = torch.randn(7, 4, 3, dtype=torch.float64)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, carries = stack(ours, lengths=LENGTHS)
    packed, end = peer(pack_padded_sequence(theirs, LENGTHS, enforce_sorted=False))
    expected = pad_packed_sequence(packed)[0]
    inside = (torch.arange(7)[:, None] < LENGTHS)[..., None]
    torch.testing.assert_close(found * inside, expected)
    ends = end if cell == "lstm" else (end,)
    for which, each in enumerate(ends):  # hidden, and an LSTM's cells: (layers · directions, B, D)
        for layer, carry in enumerate(carries):
            whole = torch.cat(tuple(each[2 * layer : 2 * layer + 2]), -1) if both else each[layer]
            torch.testing.assert_close(carry[which], whole)
    weights = torch.randn_like(expected)
    (found * inside * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_backwards_reads_each_row_from_its_own_end() -> None:
    torch.manual_seed(0)
    stack = Stack("gru", 3, 8, 1, 0.0, "backwards")
    x = torch.randn(7, 4, 3)
    found, ((end,),) = stack(x, lengths=LENGTHS)
    for row, length in enumerate(LENGTHS):
        alone, _ = stack.backwards[0](x[:length, row : row + 1].flip(0))
        torch.testing.assert_close(found[:length, row : row + 1], alone.flip(0))
        torch.testing.assert_close(end[row], alone[-1, 0])


def _agree(run: Any, inputs: list[Tensor], dtype: torch.dtype, bound: float) -> None:
    """The compiled path against the reference in float64, values and gradients."""

    def once(kind: torch.dtype) -> list[Tensor]:
        leaves = [x.to(kind, copy=True).requires_grad_() for x in inputs]
        found = run(*leaves)
        outs = found if isinstance(found, tuple) else (found,)
        sum((o.double() * torch.linspace(-1, 1, o.shape[-1])).sum() for o in outs).backward()  # type: ignore[union-attr]
        return [*outs, *(x.grad for x in leaves)]  # type: ignore[list-item]

    compiled = once(dtype)
    with only_references():
        exact = once(torch.float64)
    for a, b in zip(compiled, exact, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=bound, atol=bound)


@fast
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("rows", [1, 5, 300])  # on one thread, and on all of them
@pytest.mark.parametrize("width", [7, 64])
def test_the_compiled_cells_agree_with_their_references(
    dtype: torch.dtype, bound: float, rows: int, width: int
) -> None:
    torch.manual_seed(0)
    sums = [torch.randn(rows, n * width).to(dtype) * 2 for n in (3, 3, 4)]
    hidden = torch.randn(rows, width).to(dtype)
    _agree(gru_cell, [sums[0], sums[1], hidden], dtype, bound)
    cells = torch.randn(rows, width)
    _agree(lambda s: lstm_cell(s, cells.double() if s.dtype == torch.float64 else cells), [sums[2]], dtype, bound)
    if dtype == torch.float32:
        _agree(lstm_cell, [sums[2], cells], dtype, bound)


@pytest.mark.skipif(native.products_lacking() is not None, reason=str(native.products_lacking()))
@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize(("inputs", "width", "places", "rows"), [(6, 16, 3, 11), (64, 80, 7, 33), (300, 48, 2, 64)])
def test_a_whole_layer_agrees_with_its_reference_in_float64(
    inputs: int, width: int, places: int, rows: int, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "beaten", lambda: None)
    torch.manual_seed(0)
    given = LSTM(inputs, width).bfloat16()
    lengths = torch.randint(1, places + 1, (rows,)) if bounded else None
    inside = torch.ones(places, rows) if lengths is None else torch.arange(places)[:, None] < lengths
    leaves = [torch.randn(places, rows, inputs), torch.randn(rows, width) / 4, torch.randn(rows, width)]

    def once(dtype: torch.dtype, cells: torch.dtype) -> list[Any]:
        layer = copy.deepcopy(given).to(dtype)
        kinds = zip(leaves, (dtype, dtype, cells), strict=True)
        x, *carry = (leaf.bfloat16().to(kind).requires_grad_() for leaf, kind in kinds)
        outputs, ends = layer(x, tuple(carry), lengths)
        outputs = outputs * inside[..., None]
        sum((o.double() * torch.linspace(-1, 1, width)).sum() for o in (outputs, *ends)).backward()
        return [outputs, *ends, x.grad, *(each.grad for each in (*carry, *layer.parameters()))]

    compiled = once(torch.bfloat16, torch.float32)
    assert "_LSTMLayer" in type(given(leaves[0].bfloat16())[0].grad_fn).__name__
    for a, b in zip(compiled, once(torch.float64, torch.float64), strict=True):
        assert (a.double() - b).abs().max() <= 0.015 * b.abs().max()


@fast
def test_saturated_and_infinite_sums_give_ones_and_zeros_not_nan() -> None:
    sums = torch.tensor([[100.0, -100.0, 1000.0, 1e30], [-float("inf"), float("inf"), -1000.0, float("inf")]])
    for each in (sums, sums.bfloat16()):
        hidden, cells = lstm_cell(each, torch.full((2, 1), 0.5))
        torch.testing.assert_close(cells, torch.tensor([[1.0], [0.5]]))
        torch.testing.assert_close(hidden.float(), cells.tanh(), rtol=1e-2, atol=1e-2)


@fast
def test_gradients_put_off_to_the_end_of_a_loop_are_the_same() -> None:
    def gradients() -> list[Any]:
        torch.manual_seed(0)
        sums, one, other = (torch.randn(*s, requires_grad=True) for s in ((6, 4, 5), (5, 3), (5, 5)))
        products, state = Products(sums, one, other), torch.ones(4, 5)
        for place in range(6):
            state = products(torch.full((4, 3), 0.1 * place), state).tanh()
        state.square().sum().backward()  # type: ignore[no-untyped-call]
        return [sums.grad, one.grad, other.grad]

    put_off = gradients()
    with only_references():
        at_once = gradients()
    torch.testing.assert_close(put_off, at_once)


def test_maxout_takes_the_larger_of_two() -> None:
    torch.manual_seed(0)
    layer = Maxout(3, 4, 5, 2)
    state, token, context = torch.randn(6, 2, 3), torch.randn(6, 2, 4), torch.randn(2, 5)
    sums = layer.state(state) + layer.piece(token) + layer.context(context)
    torch.testing.assert_close(layer(state, token, context), torch.stack((sums[..., :2], sums[..., 2:])).amax(0))
