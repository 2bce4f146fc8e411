"""Recurrences: Elman's, gated units and long short-term memory, in layers, in one direction or both; and the SSRU.

Sizes: B rows, T positions, I input features, D features, G sums of a step (D, 3 D or 4 D).
Inside, time comes first, (T, B, …), so that the rows of a step lie together. What does not depend on the step before
is computed for all positions at once: the products with the inputs, and the gradients of all weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .layers import Dropout, Map, Saves, applied, references_only, stand_in
from .state import Layout, Rows

Carry = tuple[Tensor, ...]
"""What goes from one position to the next: hidden (B, D), and an LSTM's cells (B, D)."""


# -- between layouts and columns ---------------------------------------------------------------------------------------


def as_columns(ids: Tensor, layout: Layout) -> Tensor:
    """Ids as they are laid out -> (T, B); what stands beyond a sequence's end is any id."""
    return layout.pad(ids[..., None])[..., 0].t()


def as_laid_out(x: Tensor, layout: Layout) -> Tensor:
    """(T, B, D) -> (…, D), as the layout has it."""
    return layout.flatten(x.transpose(0, 1))


class _Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Saves, x: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return x.flatten(0, 1).index_select(0, order).view_as(x)

    @staticmethod
    def backward(ctx: Saves, *gradients: Tensor) -> tuple[Tensor, None]:
        (order,), g = ctx.saved_tensors, gradients[0]
        return g.flatten(0, 1).index_select(0, order).view_as(g), None  # turning twice restores the order


def _turned(lengths: Tensor, positions: int) -> Tensor:
    """(T · B,) the order in which every row of (T, B) runs from its own end to its beginning, padding left in place."""
    position = torch.arange(positions, device=lengths.device)[:, None]
    other = torch.where(position < lengths, lengths - 1 - position, position)  # (T, B)
    return (other * len(lengths) + torch.arange(len(lengths), device=lengths.device)).flatten()


# -- products in a loop ------------------------------------------------------------------------------------------------


class _Defer(torch.autograd.Function):
    """The identity on sums (T, B, G); backward, the gradients of the weights that are used inside the loop."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor, inputs: list[tuple[Tensor, ...]], *weights: Tensor) -> Tensor:
        ctx.inputs = inputs
        return sums.view_as(sums)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        g = gradients[0][: len(ctx.inputs)].flatten(0, 1)  # (T · B, G)
        found = [g.t() @ torch.cat(x) for x in zip(*ctx.inputs, strict=True)]
        return gradients[0], None, *found


class Products:
    """In a loop over T, gives the sums (T, B, G) of position t plus products W x with inputs that are known only then.

    A gradient of W would cost a product a step, and in bfloat16 each sum of two of them a rounding. Since the gradient
    of x's part is that of the sums, it is one product when the loop is over.
    """

    def __init__(self, sums: Tensor, *weights: Tensor) -> None:
        self.inputs: list[tuple[Tensor, ...]] = []
        self.position = 0
        used = [w.to(sums.dtype) for w in weights]
        if weights and not references_only():
            sums = applied(_Defer, sums, self.inputs, *used)
            used = [w.detach() for w in used]
        self.sums = sums.unbind(0)
        self.weights = [w.t() for w in used]

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The sums of the next position, (B, G)."""
        found = self.sums[self.position]
        for x, weight in zip(inputs, self.weights, strict=True):
            found = torch.addmm(found, x, weight)
        self.inputs.append(tuple(x.detach() for x in inputs))
        self.position += 1
        return found


# -- one step ----------------------------------------------------------------------------------------------------------


def lstm_cell(sums: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of input gate, forget gate, candidate and output gate (B, 4 D) and cells (B, D) -> hidden, next cells.

    Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000. Cells are at least float32.
    """
    if (fast := stand_in("lstm_cell", sums, cells)) is not None:
        hidden, cells = fast(sums, cells)
        return hidden, cells
    i, f, g, o = sums.chunk(4, -1)
    cells = f.sigmoid() * cells + i.sigmoid() * g.tanh()
    return (o.sigmoid() * cells.tanh()).to(sums.dtype), cells


def gru_cell(given: Tensor, recurred: Tensor, hidden: Tensor) -> Tensor:
    """What input and hidden give to reset gate, update gate and candidate, (B, 3 D) each, and hidden (B, D) -> hidden.

    Cho et al. 2014, equations 5 to 8, except that the reset gate acts after the product with the hidden state,
    not before. So a step is one product, as in cuDNN.
    """
    if (fast := stand_in("gru_cell", given, recurred, hidden)) is not None:
        return fast(given, recurred, hidden)
    (xr, xu, xn), (hr, hu, hn) = given.chunk(3, -1), recurred.chunk(3, -1)
    update = (xu + hu).sigmoid()
    return update * hidden + (1 - update) * (xn + (xr + hr).sigmoid() * hn).tanh()


# -- layers ------------------------------------------------------------------------------------------------------------

Step = Callable[..., Carry]
"""The carry, and what else each step is fed, (B, I) each -> the next carry."""


class Recurrence(nn.Module):
    """One layer in one direction."""

    sums: ClassVar[int]
    """G / D: how many sums of D features a step needs."""
    bias: ClassVar[bool] = False
    """Of the product with the hidden state; where sums are only added, the inputs' is enough."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.input = nn.Linear(inputs, self.sums * width)
        self.hidden = nn.Linear(width, self.sums * width, bias=self.bias)
        self.dropout = Dropout(0.0)  # of the weight of the hidden state

    def recurrent(self) -> Tensor:
        """The weight of the hidden state, some of it dropped in training for the whole pass (Merity et al. 2018)."""
        return self.dropout(self.hidden.weight)

    def nothing(self, like: Tensor) -> Carry:
        """The carry before the first position of (T, B, I): zeros."""
        return (like.new_zeros(like.shape[1], self.width),)

    def loop(self, given: Tensor, *fed: nn.Linear) -> Step:
        """The step of a loop over given sums (T, B, G); it adds the products of `fed` with each step's inputs."""
        raise NotImplementedError

    def forward(
        self, x: Tensor, carry: Carry | None = None, lengths: Tensor | None = None, more: Tensor | None = None
    ) -> tuple[Tensor, Carry]:
        """x (T, B, I) -> hidden (T, B, D) and the carry after each row's last position, given by `lengths` (B,).

        `more`, (B, G), is added to the sums of every position.
        """
        given = self.input(x) if more is None else self.input(x) + more
        step, passed = self.loop(given), []
        carry = carry or self.nothing(given)
        for _ in range(len(x)):
            carry = step(carry)
            passed.append(carry)
        outputs, *cells = (torch.stack(each) for each in list(zip(*passed, strict=True))[: 1 if lengths is None else 2])
        if lengths is not None:
            last = (lengths - 1).clamp(min=0)[None, :, None].expand(1, -1, self.width)
            carry = tuple(each.gather(0, last)[0] for each in (outputs, *cells))
        return outputs, carry


class Elman(Recurrence):
    """h' = tanh(W x + U h + b) (Elman 1990)."""

    sums = 1

    def loop(self, given: Tensor, *fed: nn.Linear) -> Step:
        products = Products(given, self.recurrent(), *(f.weight for f in fed))
        return lambda carry, *inputs: (products(carry[0], *inputs).tanh(),)


class GRU(Recurrence):
    """The gated recurrent unit (Cho et al. 2014), see `gru_cell`."""

    sums, bias = 3, True

    def loop(self, given: Tensor, *fed: nn.Linear) -> Step:
        products = Products(given, *(f.weight for f in fed))
        recurred = Products(self.hidden.bias.to(given.dtype).expand_as(given), self.recurrent())
        return lambda carry, *inputs: (gru_cell(products(*inputs), recurred(carry[0]), carry[0]),)


class LSTM(Recurrence):
    """Long short-term memory, see `lstm_cell`."""

    sums = 4

    def nothing(self, like: Tensor) -> Carry:
        (hidden,) = super().nothing(like)
        return hidden, hidden.to(torch.promote_types(hidden.dtype, torch.float32))

    def loop(self, given: Tensor, *fed: nn.Linear) -> Step:
        products = Products(given, self.recurrent(), *(f.weight for f in fed))
        return lambda carry, *inputs: lstm_cell(products(carry[0], *inputs), carry[1])

    def forward(
        self, x: Tensor, carry: Carry | None = None, lengths: Tensor | None = None, more: Tensor | None = None
    ) -> tuple[Tensor, Carry]:
        weights = self.input.weight, self.input.bias, self.recurrent()
        fast = None if more is not None else stand_in("lstm_layer", x, *weights)
        if fast is None:
            return super().forward(x, carry, lengths, more)
        hidden, cells = carry or self.nothing(x)
        last = torch.full((x.shape[1],), len(x) - 1) if lengths is None else (lengths - 1).clamp(min=0)
        found, *ends = fast(x, *weights, hidden, cells, last)
        return found, tuple(ends)


CELLS: dict[str, type[Recurrence]] = {"elman": Elman, "gru": GRU, "lstm": LSTM}


class Stack(nn.Module):
    """Layers of `width` features, the last perhaps of `last`, dropout between them; of two directions each has half."""

    __call__: Callable[..., tuple[Tensor, tuple[Carry, ...]]]

    def __init__(
        self,
        cell: str,
        inputs: int,
        width: int,
        layers: int,
        dropout: float,
        direction: Literal["forwards", "backwards", "both"] = "forwards",
        last: int | None = None,
    ) -> None:
        super().__init__()
        size = width // 2 if direction == "both" else width
        sizes = [*[size] * (layers - 1), last or size]
        self.forwards, self.backwards = (
            nn.ModuleList(CELLS[cell](width if i else inputs, own) for i, own in enumerate(sizes if reads else []))
            for reads in (direction != "backwards", direction != "forwards")
        )
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, carries: Sequence[Carry] = (), lengths: Tensor | None = None, more: Tensor | None = None
    ) -> tuple[Tensor, tuple[Carry, ...]]:
        """x (T, B, I) -> hidden of the last layer (T, B, D), and each layer's carry after the last position read.

        `lengths` (B,) say where rows end; reading backwards needs them. `more` goes to the first layer, see above.
        """
        order = _turned(lengths, len(x)) if lengths is not None and self.backwards else None
        ends = []
        for i in range(len(self.forwards or self.backwards)):
            if i:
                x, more = self.dropout(x), None
            parts: list[tuple[Tensor, Carry]] = []
            before = carries[i] if carries else None
            if self.forwards:
                parts.append(self.forwards[i](x, before, lengths, more))
            if self.backwards:
                found, end = self.backwards[i](applied(_Turn, x, order), before, lengths, more)
                parts.append((applied(_Turn, found, order), end))
            x = torch.cat([found for found, _ in parts], -1) if len(parts) > 1 else parts[0][0]
            ends.append(tuple(torch.cat(each, -1) for each in zip(*(end for _, end in parts), strict=True)))
        return x, tuple(ends)

    def loops(self, x: Tensor, fed: nn.Linear) -> list[Step]:
        """Of layers that read forwards, a step of each at a time: the first reads x (T, B, I) and what this map brings,
        every other what the layer below it has made."""
        first, *others = cast("Iterable[Recurrence]", self.forwards)
        given = first.input(x)
        return [
            first.loop(given, fed),
            *(each.loop(each.input.bias.to(given.dtype).expand_as(given), each.input) for each in others),
        ]


class Maxout(nn.Module):
    """The larger of each two sums of state, last token and context (Cho et al. 2014 and Bahdanau et al. 2015)."""

    def __init__(self, state: int, token: int, context: int, width: int) -> None:
        super().__init__()
        self.state = nn.Linear(state, 2 * width)
        self.piece = nn.Linear(token, 2 * width, bias=False)
        self.context = nn.Linear(context, 2 * width, bias=False)

    def forward(self, state: Tensor, token: Tensor, context: Tensor) -> Tensor:
        """(T, B, …) each, the context perhaps (B, …) -> (T, B, width)."""
        one, other = (self.state(state) + self.piece(token) + self.context(context)).chunk(2, -1)
        return torch.maximum(one, other)


# -- in the place of a decoder's attention to itself -------------------------------------------------------------------


@dataclass(frozen=True)
class Cells(Rows):
    """What an SSRU has come to, (B, D); none before the first token."""

    cells: Tensor | None = None


def gated_sums(gates: Tensor, given: Tensor) -> Tensor:
    """c_t = f_t c_{t-1} + g_t of gates and what is given, (B, T, D) each, from c_0 = 0; by doubling, in log T steps.

    Each step joins twice as many positions as the one before (Hillis and Steele 1986), and none divides.
    """
    reach = 1
    while reach < given.shape[1]:
        before, through = (F.pad(x[:, :-reach], (0, 0, reach, 0)) for x in (given, gates))
        given, gates, reach = torch.addcmul(given, gates, before), gates * through, 2 * reach
    return given


class SSRU(nn.Module):
    """The simpler simple recurrent unit, a decoder's way to know the tokens before (Kim et al. 2019).

    f_t = sigmoid(W_f x_t + b_f), c_t = f_t c_{t-1} + (1 - f_t) (W x_t + b), and relu(c_t) comes out: no product waits
    for the step before, and what is kept does not grow. Theirs has no b; with it both maps are one product.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gates = Map(width, 2 * width)

    def begin(self, capacity: int | None) -> Cells:
        """What is kept before the first token."""
        return Cells()

    def of_itself(
        self, x: Tensor, layout: Layout, mask: object, past: Rows | None, observe: object
    ) -> tuple[Tensor, Rows]:
        """x (…, D) after the past -> (…, D) and the next past; there are no weights to be observed, and no mask."""
        both = layout.pad(self.gates(x))  # (B, T, 2 D)
        gates, given = both.to(torch.promote_types(both.dtype, torch.float32)).chunk(2, -1)
        gates = gates.sigmoid()
        given = (1 - gates) * given
        if isinstance(past, Cells) and past.cells is not None:
            given = torch.cat((torch.addcmul(given[:, :1], gates[:, :1], past.cells[:, None]), given[:, 1:]), 1)
        cells = gated_sums(gates, given)
        return layout.flatten(cells.relu().to(x.dtype)), Cells(cells[:, -1])
