"""Multi-head attention (Vaswani et al. 2017, section 3.2.2).

Sizes: B batch, H heads, T queries, S keys, D width of the model, Dk key width and Dv value width of a head.
"""

from __future__ import annotations

from torch import Tensor, nn

from ..layout import Layout
from ..state import KeysValues
from .kernels import Call, run
from .masks import Mask
from .scores import Score

__all__ = ["MultiHead"]


class MultiHead(nn.Module):
    """H attentions side by side, each on its own projection of queries, keys and values.

    Keys and values come from the same memory, so their projections are one product.
    """

    def __init__(self, width: int, heads: int, key_width: int, value_width: int, score: Score) -> None:
        super().__init__()
        self.heads, self.key_width, self.value_width = heads, key_width, value_width
        self.query = nn.Linear(width, heads * key_width)
        self.key_value = nn.Linear(width, heads * (key_width + value_width))  # all heads' keys, then all their values
        self.output = nn.Linear(heads * value_width, width)
        self.score = score

    def _split(self, x: Tensor, layout: Layout) -> Tensor:
        rows = layout.rows(x)
        return rows.view(*rows.shape[:2], self.heads, -1).transpose(1, 2)  # (B, T, H·D) -> (B, H, T, D)

    def prepare(self, memory: Tensor, layout: Layout) -> KeysValues:
        """Keys and values of what is looked at, (…, D) -> (B, H, S, Dk) and (B, H, S, Dv); kept in a state."""
        widths = self.heads * self.key_width, self.heads * self.value_width
        keys, values = self.key_value(memory).split(widths, dim=-1)
        return KeysValues(self.score.keys(self._split(keys, layout)), self._split(values, layout), layout)

    def forward(
        self, x: Tensor, layout: Layout, memory: KeysValues, mask: Mask | None, record: list[Tensor] | None = None
    ) -> Tensor:
        """Queries from x, (…, D), mixed with the memory's values -> (…, D); `record` gets the weights (B, H, T, S)."""
        queries = self.score.queries(self._split(self.query(x), layout))
        call = Call(queries, memory.keys, memory.values, self.score, mask, record is not None, layout, memory.layout)
        mixed, weights = run(call)
        if record is not None and weights is not None:
            record.append(weights)
        return self.output(layout.unrows(mixed.transpose(1, 2).flatten(-2)))  # type: ignore[no-any-return]
